"""Callbacks that open a recorder when training begins: for Lightning and for the Trainer of Hugging Face."""

from __future__ import annotations

from importlib import import_module
from typing import Any

LIGHTNING_MODULES = ("lightning.pytorch", "pytorch_lightning")


def lightning_callback(recorder: Any) -> Any:
    """Return a callback of Lightning that records from `on_train_start` to `on_train_end`, or to an exception.

    Raises `ImportError` if Lightning is not installed.
    """
    base: Any = _lightning().Callback

    class Recording(base):
        def on_train_start(self, *_: Any) -> None:
            recorder.__enter__()

        def on_train_batch_start(self, _trainer: Any, _module: Any, batch: Any, _place: int) -> None:
            recorder.measure(batch)

        def on_train_end(self, *_: Any) -> None:
            recorder.close()

        def on_exception(self, *_: Any) -> None:
            recorder.close()

    return Recording()


def transformers_callback(recorder: Any) -> Any:
    """Return a callback of Hugging Face's Trainer that records from `on_train_begin` to `on_train_end`.

    The work of a batch is measured when the model gets it, because the Trainer's loader is one batch ahead. Raises
    `ImportError` if transformers is not installed.
    """
    base: Any = import_module("transformers").TrainerCallback

    class Recording(base):
        hook: Any = None

        def on_train_begin(self, *_: Any, model: Any = None, **_named: Any) -> None:
            recorder.__enter__()
            if model is not None:
                self.hook = model.register_forward_pre_hook(self.measure, with_kwargs=True)

        def measure(self, model: Any, inputs: Any, named: Any) -> None:
            if model.training:
                recorder.measure(named or inputs)

        def on_train_end(self, *_: Any, **_named: Any) -> None:
            recorder.close()
            if self.hook is not None:
                self.hook.remove()

    return Recording()


def _lightning() -> Any:
    for name in LIGHTNING_MODULES[:-1]:
        try:
            return import_module(name)
        except ModuleNotFoundError:
            continue
    return import_module(LIGHTNING_MODULES[-1])
