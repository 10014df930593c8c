"""Gradient coding that ignores any number of stragglers, IS-GC: plain sums, of which the master adds up disjoint ones.

"On arbitrary ignorance of stragglers with gradient coding", 2023; after its authors' public program
(PipelinedGradientCoding, `resnet18_cifar10.py`: IS_GC_FR, IS_GC_CR). Worker i holds c parts and sends their plain sum;
the master waits for any w workers, adds up the answers of a largest set of them that share no part, and divides by the
parts that these cover. Such a set is one worker per group with fractional repetition; with cyclic repetition a largest
set of workers that stand pairwise at least c apart on the circle.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from workbench.core.base.settings import setting
from workbench.core.codes import Decoding, GradientCode, circulant, fractional
from workbench.core.codes.checks import groups_divide
from workbench.core.contract.delays import CounterRNG
from workbench.core.schemes.approximate import Approximate

STARTS_STREAM = 6  # random stream of where the circle is cut; shuffling has 4, ties 5


class ISGC(Approximate):
    """Gradient coding for any number of answers: the sum of disjoint ones, over the share of the parts they cover.

    A commit stands for all parts: on average over who is late every part has the weight 1, as the master looks for its
    largest set from an answer drawn anew in every round (the authors' program: always from the first). Parts count
    alike, also where they differ by a sample.

    >>> ISGC().loads(workers=6, samples=60).tolist()
    [20, 20, 20, 20, 20, 20]
    """

    name: ClassVar[str] = "IS-GC"
    title: ClassVar[str] = "Ignore-straggler gradient coding"
    paper: ClassVar[str] = "On arbitrary ignorance of stragglers with gradient coding, 2023"
    placement: Literal["cyclic", "fractional"] = setting(
        "cyclic", "worker i holds the parts i, ..., i+c-1, or groups of c workers the same c parts"
    )
    code_seed: int = setting(0, "seed of the answers from which largest sets are looked for", ge=0)

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Both placements, with the numbers that all approximate schemes try; one holder a part is `Backup`."""
        tried = [args for args in super().candidates(workers) if args["replication"] > 1]
        return [{**args, "placement": kind} for args in tried for kind in ("cyclic", "fractional")]

    def check(self, workers: int) -> None:
        super().check(workers)
        if self.placement == "fractional":
            more = "; or placement = 'cyclic'"
            groups_divide("scheme_args.replication", self.replication, workers, self.replication, more)

    def build_code(self, workers: int) -> GradientCode:
        """The 0/1 matrix of who holds what."""
        if self.placement == "fractional":
            return fractional(workers, self.replication - 1)
        return circulant(workers, self.replication)

    def weigh(self, code: GradientCode, answered: tuple[int, ...], round: int = 0) -> Decoding:
        """Parts over parts covered for the answers of the set, 0 for the others."""
        size, first = (
            self.replication,
            int(CounterRNG(self.code_seed, STARTS_STREAM).rng(round).integers(len(answered))),
        )
        if self.placement == "fractional":
            groups = np.array(answered) // size
            chosen = np.unique(groups, return_index=True)[1].tolist()
        else:
            chosen = largest_apart(answered, size, code.workers, first)
        weights, covered = np.zeros(len(answered)), size * len(chosen)
        weights[chosen] = scale = code.workers / covered
        return Decoding(weights, covered * (scale - 1) ** 2 + code.workers - covered)


def largest_apart(places: Sequence[int], apart: int, around: int, first: int = 0) -> list[int]:
    """Indices of a largest set of ascending places that are pairwise at least `apart` apart on a circle of `around`.

    From a start, taking the next place that is far enough is best. Some largest set starts within `apart` of any place:
    a set that does not could have its last place before that one moved onto it. So the starts from number `first` on,
    up to `apart` further, are tried, and of equally large sets the first is taken.

    >>> largest_apart([0, 1, 3, 4], apart=2, around=6)
    [0, 2]
    >>> largest_apart([0, 1, 3, 5], apart=2, around=6, first=1)
    [1, 2, 3]
    """
    count = len(places)
    order = [(first + i) % count for i in range(count)]
    circle = [(places[i] - places[first]) % around for i in order]
    best: list[int] = []
    for start in range(bisect_left(circle, apart)):
        chosen, last = [start], around - apart + circle[start]
        while (at := bisect_left(circle, circle[chosen[-1]] + apart)) < count and circle[at] <= last:
            chosen.append(at)
        best = max(best, chosen, key=len)
    return sorted(order[i] for i in best)
