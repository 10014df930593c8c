"""Gradient coding that ignores any number of stragglers, IS-GC: the master adds up answers whose parts are disjoint.

"On arbitrary ignorance of stragglers with gradient coding", 2023, after its authors' public programs
(PipelinedGradientCoding, `resnet18_cifar10.py`: IS_GC_FR, IS_GC_CR; IS-GC, `ray_gc.py`: IS_GC_HR). Worker i stores c
parts and sends their plain sum. The master waits for any w workers. It adds up the answers of a largest set of them
that share no part, and divides by the share of parts that the set covers. With fractional repetition such a set is one
worker per group. With cyclic repetition it is a largest set of workers with pairwise distances of at least c on the
circle. With the hybrid placement, workers of one group share a part, and the last ones of a group share parts with the
first ones of the next.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from workbench.core.base.settings import SettingError, setting
from workbench.core.codes import Decoding, GradientCode, circulant, fractional, hybrid
from workbench.core.codes.checks import between, groups_divide
from workbench.core.contract.delays import CounterRNG
from workbench.core.schemes.approximate import Approximate

# random stream of the worker at which the search starts; `contract.delays.base` lists all streams
STARTS_STREAM = 6
# number of groups of workers in the hybrid placement; other placements ignore it, even with fewer workers
DEFAULT_GROUPS = 3


class ISGC(Approximate):
    """Gradient coding for any number of answers: answers with disjoint parts, divided by the share of covered parts.

    A commit estimates the sum over all parts. On average over the sets of late workers, every part has the weight 1.
    For this, the search for a largest set starts from an answer that is drawn in every round, as in the authors'
    `ray_gc.py`. (Their other program always starts from the first answer.) With the hybrid placement, equal weights
    also need groups of c workers. In larger groups, some parts get far less weight than others. Parts have equal
    weights, even if they differ by a sample.

    >>> ISGC().loads(workers=6, samples=60).tolist()
    [20, 20, 20, 20, 20, 20]
    """

    name = "IS-GC"
    title: ClassVar[str] = "Ignore-straggler gradient coding"
    paper: ClassVar[str] = "On arbitrary ignorance of stragglers with gradient coding, 2023"
    follows: ClassVar[Literal["paper", "abstract", "code"]] = "code"
    placement: Literal["cyclic", "fractional", "hybrid"] = setting(
        "cyclic",
        "cyclic: worker i stores the parts i, ..., i+c-1; fractional: groups of c workers store the same c parts;"
        " hybrid: c1 of the c copies of a part are in its group, and the others are cyclic (IS-HR)",
    )
    group_replication: int = setting(
        1, "copies of a part that are cyclic inside its group, with placement = 'hybrid' (c1)", ge=0
    )
    groups: int = setting(DEFAULT_GROUPS, "groups of workers, with placement = 'hybrid' (g)", ge=1)
    code_seed: int = setting(0, "seed of the answers from which the search for largest sets starts", ge=0)

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return the three placements, each with the numbers of copies and answers that approximate schemes try.

        With one copy of each part, the scheme would be `Backup`. Groups of the hybrid placement have as many workers as
        a part has copies, so that no part is favoured. With two copies, such groups would be the fractional placement.
        """
        tried = [args for args in super().candidates(workers) if args["replication"] > 1]
        placed = [{**args, "placement": kind} for args in tried for kind in ("cyclic", "fractional")]
        mixed = [
            {**args, "placement": "hybrid", "groups": workers // args["replication"]}
            for args in tried
            if args["replication"] > 2 and workers % args["replication"] == 0
        ]
        return placed + mixed

    def check(self, workers: int) -> None:
        super().check(workers)
        if self.placement == "fractional":
            more = "; or placement = 'cyclic'"
            groups_divide("scheme_args.replication", self.replication, workers, self.replication, more)
        what = f"some of a part's {self.replication} copies are inside its group"
        between("scheme_args.group_replication", self.group_replication, 0, self.replication, what)
        if self.placement == "hybrid":
            try:
                self.build_code(workers)
            except SettingError as error:
                raise SettingError(f"scheme_args.{error}; or placement = 'cyclic'") from None
        most = max(workers, DEFAULT_GROUPS)
        between("scheme_args.groups", self.groups, 1, most, f"there are {workers} workers")

    def build_code(self, workers: int) -> GradientCode:
        """Return the 0/1 matrix of the allocation."""
        if self.placement == "fractional":
            return fractional(workers, self.replication - 1)
        if self.placement == "hybrid":
            return hybrid(workers, self.replication, self.group_replication, self.groups)
        return circulant(workers, self.replication)

    @property
    def shrinks(self) -> bool:
        """False: the weights are scaled to 1 on average."""
        return False

    def weigh(self, code: GradientCode, answered: tuple[int, ...], round: int = 0) -> Decoding:
        """Return the weights: number of parts / number of covered parts for answers of the set, 0 for the others."""
        size, around = self.replication, code.workers
        first = int(CounterRNG(self.code_seed, STARTS_STREAM).rng(round).integers(len(answered)))
        if self.placement == "fractional":
            groups = np.array(answered) // size
            chosen = np.unique(groups, return_index=True)[1].tolist()
        elif self.placement == "cyclic":
            chosen = largest_apart(answered, [size] * around, around, first)
        # the search starts at the first answer in the group of the drawn worker, as in the authors' program
        else:
            group = around // self.groups
            first = bisect_left(answered, answered[first] // group * group)
            chosen = largest_apart(answered, self.reach(around), around, first)
        weights, covered = np.zeros(len(answered)), size * len(chosen)
        weights[chosen] = scale = around / covered
        return Decoding(weights, covered * (scale - 1) ** 2 + around - covered)

    def reach(self, workers: int) -> list[int]:
        """Return for each worker the distance to the next one with which it shares no part, with hybrid placement.

        That is c if the worker's cyclic parts extend into the next group, else the distance to that group.
        """
        size, after = workers // self.groups, self.replication - self.group_replication
        places = (i % size for i in range(workers))
        return [self.replication if place + after > size else size - place for place in places]


def largest_apart(places: Sequence[int], reach: Sequence[int], around: int, first: int = 0) -> list[int]:
    """Return indices of a largest set of ascending places on a circle, each far enough before the next.

    `around` is the length of the circle. `reach[p]`: distance from place p to the first place that may follow it.
    p + reach[p] must not decrease with p.

    For a given start, it is optimal to take the next place that is far enough. Some largest set contains place number
    `first`, or a place within the reach of `first`. (In a set without these, the last place before `first` could be
    replaced by `first`.) So `first` and all places within its reach are tried as starts. Of equally large sets, the
    first one found is returned.

    >>> largest_apart([0, 1, 3, 4], reach=[2] * 6, around=6)
    [0, 2]
    >>> largest_apart([0, 1, 3, 5], reach=[2] * 6, around=6, first=1)
    [1, 2, 3]
    """
    count = len(places)
    order = [(first + i) % count for i in range(count)]
    circle = [(places[i] - places[first]) % around for i in order]
    far = [reach[places[i]] for i in order]
    best: list[int] = []
    for start in range(bisect_left(circle, far[0])):
        chosen, last = [start], around + circle[start]
        while (at := bisect_left(circle, circle[chosen[-1]] + far[chosen[-1]])) < count and (
            circle[at] + far[at] <= last
        ):
            chosen.append(at)
        best = max(best, chosen, key=len)
    return sorted(order[i] for i in best)
