"""User-defined networks for problem="torch", and a loss in NumPy for problem="numpy".

For instance, with this file beside the notebook:

    wb.Experiment(problem="torch", problem_args={"module": "networks.py:DigitsNet", "data": "digits"}, ...)
    wb.Experiment(problem="torch", problem_args={"module": "networks.py:CharNet", "dataset": "networks.py:text"}, ...)
    wb.Experiment(problem="numpy", problem_args={"loss_and_gradient": "networks.py:huber", "data": "diabetes"}, ...)
"""

from __future__ import annotations

from pydoc_data.topics import topics  # text that is part of every Python

import numpy as np
import torch
from torch import Tensor, nn

SIGNS = 96  # printable characters, and one for the rest


class DigitsNet(nn.Module):
    """Two convolutions for the 8 x 8 pictures of `digits`: 3,850 parameters."""

    def __init__(self, channels: int = 8, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)),
            nn.Conv2d(1, channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1),
            # not BatchNorm, whose result depends on the other samples of a batch
            nn.GroupNorm(4, 2 * channels),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(32 * channels, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (samples, 10)."""
        return self.layers(x)


class Block(nn.Module):
    """Attention to earlier places, then a perceptron for every place."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return an array of the input's shape, (samples, places, width)."""
        apart = self.mix(self.before(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(*apart.unbind(0), is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.think(self.after(x))


class CharNet(nn.Module):
    """Transformer that predicts the next character of a text: 32,736 parameters, 1,020,384 with `million`."""

    def __init__(self, width: int = 32, heads: int = 4, blocks: int = 2, places: int = 32) -> None:
        super().__init__()
        self.sign, self.place = nn.Embedding(SIGNS, width), nn.Embedding(places, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)), nn.LayerNorm(width))
        self.scores = nn.Linear(width, SIGNS)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (samples, characters, places) for cross_entropy."""
        seen = self.sign(x) + self.place.weight[: x.shape[1]]
        return self.scores(self.blocks(seen)).transpose(1, 2)


def million() -> nn.Module:
    """Return a `CharNet` with 1,020,384 parameters."""
    return CharNet(width=128, heads=4, blocks=5)


def text(samples: int = 64, places: int = 32) -> tuple[Tensor, Tensor]:
    """Return pieces of Python's own help, and the same text shifted by one character.

    Both are numbers of characters, of shape (samples, places).
    """
    signs = "".join(topics[name] for name in sorted(topics)).encode("ascii", "replace")[
        : samples * places + 1
    ]
    codes = torch.tensor([min(max(sign - 31, 0), SIGNS - 1) for sign in signs])
    return codes[:-1].reshape(-1, places), codes[1:].reshape(-1, places)


def more_text() -> tuple[Tensor, Tensor]:
    """Return four times as much text as `text()`: 256 samples."""
    return text(256)


def huber(model: np.ndarray, X: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the mean loss of a robust regression, and its gradient: quadratic near 0, linear beyond 1."""
    off = X @ model - y
    near = np.abs(off) <= 1.0
    loss = np.where(near, 0.5 * off**2, np.abs(off) - 0.5).mean()
    return float(loss), X.T @ np.clip(off, -1.0, 1.0) / len(y)
