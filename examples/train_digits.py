"""Train a network on the digits, in one process or with a code. Lines with a number as comment are those of ddp.

python examples/train_digits.py
torchrun --nproc-per-node=8 -m workbench.ddp --scheme GC --set stragglers=1 examples/train_digits.py
"""

from __future__ import annotations

import torch
from networks import DigitsNet
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from workbench import ddp  # 1

STEPS_SHOWN = 20

torch.manual_seed(0)
X, y = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(X / 16, dtype=torch.float32), torch.tensor(y))
loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=True)
model = DigitsNet()
optimiser = torch.optim.Adam(model.parameters(), lr=0.003)
job = ddp.prepare(model, optimiser, loader)  # 2

for _ in range(8):
    for inputs, targets in job:  # 3
        optimiser.zero_grad()
        losses = nn.functional.cross_entropy(model(inputs), targets, reduction="none")  # 4
        job.backward(losses)  # 5
        optimiser.step()
        if job.rank == 0 and job.step % STEPS_SHOWN == 0:
            print(f"step {job.step}: loss {job.loss:.4f}", flush=True)

if job.rank == 0:
    with torch.no_grad():
        correct = (model(data.tensors[0]).argmax(1) == data.tensors[1]).float().mean()
    print(f"{100 * correct:.1f} % of the digits are recognised")
