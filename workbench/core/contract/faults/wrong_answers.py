"""Faults that make a worker send wrong answers: attacks from the literature on Byzantine gradients.

A fault replaces the vector of each message that is not a model, such as an answer to the parent. It also replaces the
vector that a worker adds to an all-reduce. Models that a worker passes on are unchanged.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from workbench.core.base.errors import RunError
from workbench.core.base.settings import setting
from workbench.core.base.types import Array
from workbench.core.contract.delays import CounterRNG
from workbench.core.contract.faults.base import Lasting
from workbench.core.contract.protocol import MODEL, AllReduce, Effect, Send

NOISE_STREAM = 9  # random stream of the noise; `contract.delays.base` lists all streams
NUMBER_SLOT = 2**32  # distance between the slots of the random stream for successive answers of a round


class WrongAnswer(Lasting):
    """Base of faults that change answers. A user-defined one is a subclass with a `kind` and an `answer`.

    >>> sorted(kind for kind in WrongAnswer.catalogue if issubclass(WrongAnswer.catalogue[kind], WrongAnswer))
    ['noise', 'same_value', 'scale', 'sign_flip', 'zeros']
    """

    changes_times: ClassVar[bool] = False
    changes_answers: ClassVar[bool] = True

    @abstractmethod
    def answer(self, value: Array, round: int, number: int) -> Array:
        """Return the array that replaces an answer, of the same shape. `number`: index of the answer in its round."""

    def change(self, effect: Effect) -> Effect:
        """Replace the vector of an answer."""
        if isinstance(effect, AllReduce):
            return effect._replace(value=self._wrong(effect.value, effect.round, 0))
        if isinstance(effect, Send) and effect.kind != MODEL and isinstance(effect.value, np.ndarray):
            return effect._replace(value=self._wrong(effect.value, effect.round, effect.number))
        return effect

    def _wrong(self, right: Array, round: int, number: int) -> Array:
        wrong = np.asarray(self.answer(right, round, number), right.dtype)
        if wrong.shape != right.shape:
            why = f"`answer` returns an array of shape {wrong.shape} in place of {right.shape}"
            raise RunError(f"faults.kind = {self.written_kind!r}: {why}; return one of the same shape")
        return wrong


class SignFlip(WrongAnswer):
    """The worker sends -factor times its answer: the sign-flipping attack.

    Li, Xu, Chen, Giannakis and Ling, RSA: Byzantine-robust stochastic aggregation methods, AAAI 2019 (factor 4).
    """

    kind = "sign_flip"

    factor: float = setting(1.0, "magnitude of the wrong answer divided by that of the right one", gt=0)

    def answer(self, value: Array, round: int, number: int) -> Array:
        """Return -factor times the answer."""
        return -self.factor * value


class Scale(WrongAnswer):
    """The worker sends factor times its answer: boosting, as in model replacement.

    Bagdasaryan, Veit, Hua, Estrin and Shmatikov, How to backdoor federated learning, AISTATS 2020.
    """

    kind = "scale"

    factor: float = setting(10.0, "magnitude of the wrong answer divided by that of the right one", gt=0)

    def answer(self, value: Array, round: int, number: int) -> Array:
        """Return factor times the answer."""
        return self.factor * value


class Noise(WrongAnswer):
    """The worker adds independent Gaussian noise to each number of its answer: a Gaussian attack.

    Xie, Koyejo and Gupta, Generalized Byzantine-tolerant SGD, 2018, send the noise alone. Wu, Ling, Chen and Giannakis
    add it to the mean of the right answers (Federated variance-reduced SGD, IEEE Trans. Signal Processing 2020). Here
    it is added to the worker's own answer, because the worker has no other answers.
    """

    kind = "noise"

    deviation: float = setting(1.0, "standard deviation of the noise", gt=0)
    seed: int = setting(0, "seed of the noise", ge=0)

    def answer(self, value: Array, round: int, number: int) -> Array:
        """Add noise that depends only on seed, worker, round and number."""
        rng = CounterRNG(self.seed, NOISE_STREAM).rng(round, self.worker + NUMBER_SLOT * number)
        return value + self.deviation * rng.standard_normal(value.shape)


class SameValue(WrongAnswer):
    """The worker sends the same value in all coordinates: the same-value attack.

    Li, Xu, Chen, Giannakis and Ling, RSA: Byzantine-robust stochastic aggregation methods, AAAI 2019 (value 100).
    """

    kind = "same_value"

    value: float = setting(100.0, "value of all coordinates of the worker's answers")

    def answer(self, value: Array, round: int, number: int) -> Array:
        """Return an array with the same value in all coordinates."""
        return np.full_like(value, self.value)


class Zeros(WrongAnswer):
    """The worker sends zeros: the same-value attack with value 0, as if it answered without computing."""

    kind = "zeros"

    def answer(self, value: Array, round: int, number: int) -> Array:
        """Return zeros."""
        return np.zeros_like(value)
