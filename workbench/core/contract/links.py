"""Links: the time that a message takes.

t = latency + bytes / bandwidth (Hockney). The latency is the time on the wire. The transfer occupies the receiver's
port, which takes one message at a time (paper 1, section III-C), while the receiver can compute.

Links may differ by worker. A worker's link is the one to its parent, and in a ring the one to the next worker. The link
determines the time of each message that the worker sends. If `downloads` is set, it also determines the time of the
models that the worker receives. The time that a link adds to the common latency is drawn, or constant, for each round
and worker. `DelayStream.sending` adds this time to the sending times of the delay model, so that all engines and
forecasts treat both alike. `DelayStream.receiving` returns the drawn times that are added for models. A model that
arrives after a newer one is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from workbench.core.base.settings import SettingError, Settings, setting, within
from workbench.core.base.type_checks import there_are
from workbench.core.base.types import Array
from workbench.core.contract.delays.base import DelayModel, Delays, DelayStream
from workbench.core.contract.delays.independent import Constant

BYTES_PER_FLOAT = 8
# random streams of the delays of answers and of models; `contract.delays.base` lists all streams
MESSAGES_STREAM, MODELS_STREAM = 10, 13
NO_DELAY = Constant(shift=0.0)


def _of_messages(delays: DelayModel) -> DelayModel:
    if getattr(delays, "per", "worker") == "part":
        raise SettingError("a draw for each part does not fit messages; take per = 'worker'")
    return delays


# type of a field that accepts every delay model of messages
MessageDelays = Annotated[Delays, AfterValidator(_of_messages)]


class LinkGroup(Settings):
    """Links of some workers that differ from the links of the others. Empty fields are as in the common link.

    >>> LinkGroup(workers=(1, 2), latency=0.01).bandwidth is None
    True
    """

    workers: tuple[int, ...] = setting(..., "ranks of the workers with this link, from 1")
    latency: float | None = setting(
        None, "time on the wire, in place of the common latency; empty = the common one", "s", ge=0
    )
    bandwidth: float | None = setting(
        None,
        "rate of the transfers from these workers, in place of the common bandwidth; empty = the common one",
        "bytes/s",
        gt=0,
    )
    delays: MessageDelays | None = setting(
        None, "delay model of the messages that these workers send; empty = the common one"
    )
    download_delays: MessageDelays | None = setting(
        None, "delay model of the models that these workers receive; empty = the common one"
    )

    @field_validator("workers")
    @classmethod
    def _ranks(cls, workers: tuple[int, ...]) -> tuple[int, ...]:
        if min(workers, default=0) < 1 or len(set(workers)) < len(workers):
            raise SettingError(f"workers = {list(workers)}: take at least one rank, from 1, and each once")
        return workers


class Link(Settings):
    """Link between each pair of nodes: latency, bandwidth and delays of messages.

    >>> Link(latency=0.001, bandwidth=8e5).transfer(5000)  # seconds on the port for 5000 float64
    0.05
    """

    latency: float = setting(0.0, "time that a message spends on the wire before its transfer", "s", ge=0)
    bandwidth: float | None = setting(
        None, "rate at which a receiver's port takes messages in; empty = infinite", "bytes/s", gt=0
    )
    downloads: bool = setting(
        False, "also count the time that models take to reach the workers (the papers ignore this time)"
    )
    delays: MessageDelays = setting(
        NO_DELAY,
        "delay model of messages from workers, added to the latency; one sample stands for a message as long as the"
        " model",
    )
    download_delays: MessageDelays = setting(
        NO_DELAY,
        "delay model of the models that workers receive; its time for one sample is added to the latency; needs"
        " downloads",
    )
    groups: tuple[LinkGroup, ...] = setting(
        (), "workers whose links differ, such as [{workers: [1, 2], latency: 0.01, bandwidth: 1e6}]"
    )

    _width: int = PrivateAttr(BYTES_PER_FLOAT)

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out delays and groups that are not used, so that the names of runs stay those of earlier versions."""
        fields: dict[str, Any] = handler(self)
        unused = {name: getattr(self, name) == NO_DELAY for name in ("delays", "download_delays")}
        for group in fields.get("groups", ()):
            if group["download_delays"] is None:
                del group["download_delays"]
        return {
            name: value
            for name, value in fields.items()
            if not (unused.get(name) or (name == "groups" and not value))
        }

    @field_validator("groups")
    @classmethod
    def _apart(cls, groups: tuple[LinkGroup, ...]) -> tuple[LinkGroup, ...]:
        ranks = [rank for group in groups for rank in group.workers]
        if twice := next((rank for rank in ranks if ranks.count(rank) > 1), None):
            raise SettingError(f"worker {twice} is in two groups; name each worker once")
        return groups

    @model_validator(mode="after")
    def _counted(self) -> Self:
        if not self.downloads and self._models("download_delays"):
            why = "models take no time without downloads; take downloads = true"
            raise SettingError(f"download_delays.kind = {self._models('download_delays')[0].kind!r}: {why}")
        return self

    def check(self, workers: int, ordered: str = "") -> None:
        """Raise `SettingError` if a group names a worker that the run does not have, or if models could be lost.

        `ordered`: name of a scheme whose workers need all models, in order, or empty.
        """
        if ordered and self._models("download_delays"):
            why = f"workers of {ordered} need all models in order, and a drawn delay would lose some"
            raise SettingError(
                f"download_delays.kind = {self._models('download_delays')[0].kind!r}: {why}; leave it out, or"
                " take another scheme"
            )
        for place, group in enumerate(self.groups):
            if (most := max(group.workers)) > workers:
                why = there_are("worker", 1, workers)
                raise SettingError(
                    f"groups.{place}.workers = {list(group.workers)}: {most} is too large; {why}"
                )
        for name in ("delays", "download_delays"):
            for delay_model in self._models(name):
                with within(name):
                    delay_model.check(workers)

    def carrying(self, width: int) -> Self:
        """Return the link for floats of `width` bytes each, such as 4 for float32.

        >>> Link(bandwidth=8e5).carrying(4).transfer(5000)
        0.025
        """
        link = self.model_copy()
        link._width = width
        return link

    def free(self) -> Self:
        """Return a link without latency, delays and transfer times, for messages that take real time.

        >>> Link(latency=0.1, bandwidth=8e5).free().transfer(5000)
        0.0
        """
        return type(self)().carrying(self._width)

    def without(self, latency: bool = False, transfers: bool = False) -> Self:
        """Return the link without its latency and delays (`latency`), or without transfer times (`transfers`).

        >>> Link(latency=0.1, bandwidth=8e5).without(transfers=True).latency
        0.1
        """
        gone: dict[str, Any] = {"bandwidth": None} if transfers else {}
        gone |= {"latency": 0.0, "delays": NO_DELAY, "download_delays": NO_DELAY} if latency else {}
        each = dict.fromkeys(gone)
        groups = tuple(group.model_copy(update=each) for group in self.groups)
        return self.model_copy(update={**gone, "groups": groups})

    @property
    def width(self) -> int:
        """Bytes of one float in a message."""
        return self._width

    @property
    def is_free(self) -> bool:
        """Whether messages take no time."""
        return (
            not self.latency and self.bandwidth is None and self.alike and not self._models("download_delays")
        )

    @property
    def alike(self) -> bool:
        """Whether all answers of one length take the same time: one link for all workers, without delays."""
        return not self.groups and not self._models("delays")

    @property
    def least_extra(self) -> float:
        """Least difference of a worker's latency from the common one, s: 0 or negative."""
        return min([0.0, *(latency - self.latency for latency in self._each("latency"))])

    def _models(self, name: str) -> list[Delays]:
        """Return the delay models in the field `name`, the common one and those of groups, that add any time."""
        return [model for model in [getattr(self, name), *self._each(name)] if model != NO_DELAY]

    def _each(self, name: str) -> list[Any]:
        return [value for group in self.groups if (value := getattr(group, name)) is not None]

    def by_worker(self, name: str, workers: int) -> Array:
        """Return the `latency` (s) or `bandwidth` (bytes/s, infinite if empty) of every worker's link, (workers,)."""
        common = getattr(self, name)
        found = np.full(workers, np.inf if common is None else common)
        for group in self.groups:
            if (value := getattr(group, name)) is not None:
                found[[rank - 1 for rank in group.workers if rank <= workers]] = value
        return found

    def transfer(self, floats: float, worker: int | None = None) -> float:
        """Return the seconds for which a message of that many floats occupies the receiver's port.

        `worker`: rank of the worker whose link is used, from 1. Raises `SettingError` if `worker` is None and the
        links' bandwidths differ.
        """
        bandwidth = self.bandwidth
        if self.groups:
            if worker is None and self._each("bandwidth"):
                why = "bandwidths differ, and one for all workers is asked for; `SampledTimes.transfer` has each"
                raise SettingError(f"link.groups: {why}")
            of = (g.bandwidth for g in self.groups if worker in g.workers and g.bandwidth is not None)
            bandwidth = next(of, bandwidth)
        return 0.0 if bandwidth is None else self.width * floats / bandwidth

    def transfers(self, floats: float, workers: int) -> Array | float:
        """Return the seconds on the port of each worker's message, (workers,), or one number if all are equal."""
        if not self._each("bandwidth"):
            return self.transfer(floats)
        return np.asarray(self.width * floats / self.by_worker("bandwidth", workers))

    def downlink(self, floats: float, workers: int) -> Array | float:
        """Return the seconds that a model takes to reach each worker, (workers,), or one number if all are equal."""
        if not self.downloads:
            return 0.0
        latency = self.by_worker("latency", workers) if self._each("latency") else self.latency
        return latency + self.transfers(floats, workers)

    def model_arrivals(
        self, now: float, floats: float, to: tuple[int, ...], workers: int, drawn: Array | None = None
    ) -> list[tuple[float, tuple[int, ...]]]:
        """Return the arrival times of a model that is sent now, each with those ranks of `to` that it reaches then.

        `drawn`: seconds of `DelayStream.receiving`, (workers,), or None. They do not delay a message without floats.

        >>> link = Link(latency=0.1, downloads=True, groups=({"workers": (2,), "latency": 0.5},))
        >>> link.model_arrivals(1.0, 10, to=(1, 2, 3), workers=3)
        [(1.1, (1, 3)), (1.5, (2,))]
        """
        down = self.downlink(floats, workers)
        if drawn is not None and floats:
            down = down + drawn
        if not isinstance(down, np.ndarray):
            return [(now + self.latency + self.transfer(floats) if self.downloads else now, to)]
        found: dict[float, list[int]] = {}
        for rank in to:
            found.setdefault(now + float(down[rank - 1]), []).append(rank)
        return [(arrives, tuple(ranks)) for arrives, ranks in found.items()]

    def attach(self, stream: DelayStream, seed: int, first: int = 0) -> DelayStream:
        """Add the delays of messages to the delays of a run (`stream`), and return the stream.

        `first`: number of rounds that the same workers ran before.
        """
        stream.transit = self.transit(seed, stream.workers, first)
        stream.download = self.download(seed, stream.workers, first)
        return stream

    def transit(self, seed: int, workers: int, first: int = 0) -> Callable[[int, float], Array] | None:
        """Return a function that draws the seconds that links add to the common latency, or None if they add none.

        The function's arguments are a round, and the length of a message as a share of a model's. It returns seconds,
        (workers,).
        """
        fixed = self.by_worker("latency", workers) - self.latency
        drawn = self._streams("delays", MESSAGES_STREAM, seed, workers, first)
        return _added(fixed, drawn) if drawn or fixed.any() else None

    def download(self, seed: int, workers: int, first: int = 0) -> Callable[[int, float], Array] | None:
        """Return the function that draws the delays of models, as `transit` does, or None if there are none."""
        drawn = self._streams("download_delays", MODELS_STREAM, seed, workers, first)
        return _added(np.zeros(workers), drawn) if drawn else None

    def _streams(
        self, name: str, number: int, seed: int, workers: int, first: int
    ) -> list[tuple[NDArray[np.int64], DelayStream]]:
        """Return the delay models of the field `name` as streams, each with the workers that it applies to."""
        models = {k: m for k, m in enumerate([self, *self.groups]) if getattr(m, name) is not None}
        place = np.zeros(workers, dtype=int)
        for k, group in enumerate(self.groups, 1):
            place[[rank - 1 for rank in group.workers if rank <= workers]] = k if k in models else 0
        drawn = [(np.flatnonzero(place == k), getattr(each, name)) for k, each in models.items()]
        return [
            (who, DelayStream(model, seed, workers, first=first, stream=number))
            for who, model in drawn
            if model != NO_DELAY and len(who)
        ]


def _added(
    fixed: Array, drawn: Sequence[tuple[NDArray[np.int64], DelayStream]]
) -> Callable[[int, float], Array]:
    """Return the function that adds drawn seconds to fixed ones, by round and share of a model."""

    def extra(round: int, share: float) -> Array:
        found = fixed.copy()
        for who, stream in drawn:
            found[who] += stream.model.compute(stream.draw(round), np.full(len(fixed), share))[who]
        return found

    return extra
