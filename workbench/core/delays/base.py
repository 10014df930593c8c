"""What a delay law is: random numbers of a round, and seconds that follow from them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, SerializeAsAny
from pydantic_core import PydanticKnownError

from workbench.base.plugins import Catalogue, Family
from workbench.base.types import Array


class Keyed:
    """Counter-based random numbers: a fresh generator for every (round, slot) of a seed."""

    def __init__(self, seed: int, stream: int = 0) -> None:
        self.key = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        self.stream = stream

    def rng(self, round: int, slot: int = 0) -> np.random.Generator:
        """Generator of that round; slot tells parts apart (-1 serves the whole run's draws)."""
        counter = np.array([0, slot + 1, self.stream, round + 1], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=self.key, counter=counter))


class DelayModel(Family):
    """Base class: `draw` gives the random numbers of a round, `compute` turns them into seconds."""

    catalogue: ClassVar[Catalogue[DelayModel]] = Catalogue(
        "delays.kind", "workbench.core.delays", "workbench.delays"
    )
    memory: ClassVar[bool] = False  # does a round's draw depend on the round before?
    lasting: ClassVar[bool] = False  # are some workers slower than others for a whole run?

    kind: str = ""

    @abstractmethod
    def draw(
        self, keyed: Keyed, round: int, workers: int, slot: int = 0, before: Array | None = None
    ) -> Array:
        """Random numbers of a round, shape (k, workers); `before` is the last round's, for models with memory."""

    @abstractmethod
    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        """Seconds to go through `samples` samples, per worker."""

    def sending(self, draw: Array, share: float) -> Array | None:
        """Seconds that sending `share` of a model takes a worker, None for no such delay (see `TwoPart`)."""
        return None


def law_of(value: Any) -> DelayModel:
    """The law that fields say, its kind among them; a law as it is."""
    if isinstance(value, DelayModel):
        return value
    if not isinstance(value, dict):
        raise PydanticKnownError("model_attributes_type")
    if "kind" not in value:
        raise ValueError("has no kind; give one, e.g. {kind: constant}")
    laws, kind = DelayModel.catalogue, value["kind"]
    if not isinstance(kind, str) or kind not in laws:
        raise ValueError(f"kind = {str(kind)!r}: choose one of {', '.join(map(repr, laws))}")
    return laws[kind](**value)


Delays = Annotated[
    SerializeAsAny[DelayModel], BeforeValidator(law_of)
]  # a field that takes every law there is


def delay_models() -> Catalogue[DelayModel]:
    """All delay models by their kind.

    >>> sorted(delay_models())[:2]
    ['constant', 'exponential']
    """
    return DelayModel.catalogue
