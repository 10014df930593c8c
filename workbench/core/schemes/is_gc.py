"""Gradient coding that ignores any number of stragglers, IS-GC: the master adds up plain sums of disjoint parts.

"On arbitrary ignorance of stragglers with gradient coding", 2023, after its authors' public program
(PipelinedGradientCoding, `resnet18_cifar10.py`: IS_GC_FR, IS_GC_CR). Worker i stores c parts and sends their plain
sum. The master waits for any w workers. It adds up the answers of a largest set of them that share no part, and
divides by the number of parts that these cover. With fractional repetition such a set is one worker per group. With
cyclic repetition it is a largest set of workers with pairwise distances of at least c on the circle.
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

# random stream of the place at which the circle is cut; stream 4 is for shuffling, stream 5 for ties
STARTS_STREAM = 6


class ISGC(Approximate):
    """Gradient coding for any number of answers: the sum of disjoint ones, over the share of the parts they cover.

    A commit estimates the sum over all parts. Averaged over which workers are late, every part has the weight 1. For
    that, the search for a largest set starts from an answer that is drawn in every round. (The authors' program
    always starts from the first.) Parts have equal weights, even if they differ by a sample.

    >>> ISGC().loads(workers=6, samples=60).tolist()
    [20, 20, 20, 20, 20, 20]
    """

    name: ClassVar[str] = "IS-GC"
    title: ClassVar[str] = "Ignore-straggler gradient coding"
    paper: ClassVar[str] = "On arbitrary ignorance of stragglers with gradient coding, 2023"
    placement: Literal["cyclic", "fractional"] = setting(
        "cyclic", "worker i stores the parts i, ..., i+c-1, or groups of c workers store the same c parts"
    )
    code_seed: int = setting(0, "seed of the answers from which the search for largest sets starts", ge=0)

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return both placements for the values of all approximate schemes.

        With one copy of each part it would be `Backup`.
        """
        tried = [args for args in super().candidates(workers) if args["replication"] > 1]
        return [{**args, "placement": kind} for args in tried for kind in ("cyclic", "fractional")]

    def check(self, workers: int) -> None:
        super().check(workers)
        if self.placement == "fractional":
            more = "; or placement = 'cyclic'"
            groups_divide("scheme_args.replication", self.replication, workers, self.replication, more)

    def build_code(self, workers: int) -> GradientCode:
        """Return the 0/1 matrix of the allocation."""
        if self.placement == "fractional":
            return fractional(workers, self.replication - 1)
        return circulant(workers, self.replication)

    @property
    def shrinks(self) -> bool:
        """False: the weights are scaled to 1 on average."""
        return False

    def weigh(self, code: GradientCode, answered: tuple[int, ...], round: int = 0) -> Decoding:
        """Return weights: parts over covered parts for the answers of the set, 0 for the others."""
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
    """Return indices of a largest set of ascending places with pairwise distances of at least `apart` on a circle.

    `around` is the length of the circle.

    For a given start, it is optimal to take the next place that is far enough. Some largest set starts within `apart`
    of any place: otherwise its last place could be moved onto that place. So the starts from number `first` on, up to
    `apart` further, are tried. Of equally large sets the first is returned.

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
