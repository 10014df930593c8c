"""Callbacks in the trainers of Lightning and Hugging Face, where these are installed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.analysis.recorder.callbacks import LIGHTNING_MODULES

torch = pytest.importorskip("torch", reason="callbacks are for PyTorch, which is not installed")
LIGHTNING = next((name for name in LIGHTNING_MODULES if find_spec(name.partition(".")[0])), None)


def steps_in(folder: Path) -> Any:
    (file,) = folder.iterdir()
    return np.load(file)["steps"]


@pytest.mark.skipif(LIGHTNING is None, reason="Lightning is not installed")
@pytest.mark.parametrize("fails", [False, True])
def test_callback_records_training_with_lightning(fails: bool, tmp_path: Path) -> None:
    lightning: Any = import_module(LIGHTNING or "")

    class Network(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 2)

        def training_step(self, batch: Any, place: int) -> Any:
            if fails and place == 7:
                raise ZeroDivisionError
            return self.layer(batch).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    options = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "accelerator": "cpu",
    }
    recorder = wb.record(tmp_path / "steps")
    trainer = lightning.Trainer(
        max_epochs=1, accumulate_grad_batches=2, callbacks=[recorder.lightning()], **options
    )
    loader = torch.utils.data.DataLoader(torch.ones(40, 8), batch_size=4)
    if fails:
        with pytest.raises(ZeroDivisionError):
            trainer.fit(Network(), loader)
    else:
        trainer.fit(Network(), loader)
    steps = steps_in(tmp_path / "steps")
    assert len(steps) == (3 if fails else 5)
    assert set(steps["samples"]) == {8.0}
    assert all((steps[phase] > 0).all() for phase in ("data", "forward", "backward", "optimiser"))


@pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
def test_callback_records_training_with_transformers(tmp_path: Path) -> None:
    from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForMaskedLM(BertConfig(vocab_size=50, **sizes))
    rows = [{"input_ids": torch.arange(12), "labels": torch.arange(12)} for _ in range(24)]
    args = TrainingArguments(
        output_dir=str(tmp_path / "out"),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        num_train_epochs=1,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    recorder = wb.record(tmp_path / "steps")
    Trainer(model=model, args=args, train_dataset=rows, callbacks=[recorder.transformers()]).train()
    steps = steps_in(tmp_path / "steps")
    assert steps["tokens"].tolist() == [96.0] * 3  # tokens count in the step that uses them
    assert all((steps[phase] > 0).all() for phase in ("data", "forward", "backward", "optimiser"))


@pytest.mark.parametrize(
    ("name", "module"), [("lightning", LIGHTNING_MODULES[-1]), ("transformers", "transformers")]
)
def test_callback_without_the_library_names_it(name: str, module: str, tmp_path: Path) -> None:
    if find_spec(module) is not None or (name == "lightning" and LIGHTNING is not None):
        pytest.skip(f"{module} is installed")
    with pytest.raises(ModuleNotFoundError, match=module):
        getattr(wb.record(tmp_path), name)()
