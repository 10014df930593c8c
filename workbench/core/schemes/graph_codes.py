"""Graph codes, GGC: a worker is an edge of a graph, and stores the parts at its two ends. Decoding takes linear time.

M. Glasgow, M. Wootters, "Approximate gradient coding with optimal decoding", 2021; N. Raviv, I. Tamo, R. Tandon,
A. G. Dimakis, "Gradient coding from cyclic MDS codes and expander graphs", 2018. The graph is a random regular one,
which is an expander with high probability. See `codes.graph` for the weights.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from workbench.core.base.settings import setting
from workbench.core.codes import Decoding, GradientCode, GraphCode, random_regular
from workbench.core.codes.graph import graph_fits
from workbench.core.contract.plan import Plan, even_plan
from workbench.core.contract.scheme import divisors, log_spaced_ints
from workbench.core.schemes.approximate import Approximate


class GGC(Approximate):
    """Approximate gradient coding on a random regular graph, for a large number of workers.

    The least-squares estimate is committed, as in all approximate schemes here. Weights of single answers may grow with
    the graph, to thousands with 100 000 workers. A weight of a thousand costs three of the 16 digits.

    >>> GGC(replication=3).loads(workers=6, samples=60).tolist()
    [30, 30, 30, 30, 30, 30]
    """

    name = "GGC"
    title: ClassVar[str] = "Graph-coded gradients"
    paper: ClassVar[str] = "Glasgow, Wootters 2021"
    code_seed: int = setting(0, "seed of the graph", ge=0)

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return every number of copies of a part, up to eight, for which there is a graph."""
        fits = [d for d in divisors(2 * workers) if 1 < d <= 8 and 2 * workers // d > d]
        waits = sorted(workers - s for s in log_spaced_ints(1, workers - 1, 5))
        return [{"replication": d, "wait_for": k} for d in fits for k in waits]

    def check(self, workers: int) -> None:
        """Raise `SettingError` unless a graph can have one edge per worker and `replication` edges at each vertex."""
        graph_fits("scheme_args.replication", self.replication, workers)
        super().check(workers)

    def graph(self, workers: int) -> GraphCode:
        return random_regular(workers, self.replication, self.code_seed)

    def build_code(self, workers: int) -> GradientCode:
        """Return the code as a matrix, which needs much memory with many workers."""
        return GradientCode(self.graph(workers).matrix(), 0)

    def codes(self, workers: int) -> list[GradientCode]:
        """Return no codes to check for lost digits, because decoding inverts no matrix."""
        return []

    def plan(self, workers: int, samples: int) -> Plan:
        """Return a plan with one part per vertex."""
        graph = self.graph(workers)
        return even_plan(graph.edges, samples, graph.parts)

    def weigher(self, workers: int) -> Callable[[tuple[int, ...], int], Decoding]:
        """Return a decoder that takes linear time and needs no matrix."""
        graph = self.graph(workers)
        return lambda answered, round: graph.decode(answered)
