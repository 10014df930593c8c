"""What a scheme keeps on real processes: five rounds over MPI give what the virtual clock gives."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.checking.law import Broken, Case, Law
from workbench.core.scheme import Scheme
from workbench.experiment import Experiment
from workbench.running.start import run

ROUNDS = 5


def same(cls: type[Scheme], case: Case) -> None:
    """Five rounds on real processes give what the virtual clock gives: what is learnt, where the scheme is exact."""
    e = Experiment(**(case or example(cls)))
    real = run(e, engine="mpi", emulate="nothing")
    if len(real.rounds) != e.rounds:
        raise Broken(f"{len(real.rounds)} of {e.rounds} rounds were committed")
    if cls.exact and not cls.numeric:
        wanted, found = run(e).rounds["loss"].to_numpy(), real.rounds["loss"].to_numpy()
        if not np.allclose(found, wanted, rtol=1e-8):
            r = int(np.argmax(~np.isclose(found, wanted, rtol=1e-8)))
            raise Broken(
                f"round {r}: the loss is {found[r]:.10g}; on the virtual clock it is {wanted[r]:.10g}"
            )


def example(cls: type[Scheme]) -> Case:
    """The first setting that fits four workers, or as many more as it takes."""
    for workers in range(4, 17):
        for args in cls.candidates(workers):
            try:
                case = {"scheme": cls.name, "scheme_args": dict(args), "workers": workers, "rounds": ROUNDS}
                case |= {"problem": "least_squares", "problem_args": {"samples": 10 * workers, "features": 5}}
                Experiment(**case)
            except ValueError:
                continue
            return case
    raise Broken("nothing of what `candidates` gives fits 4 to 16 workers")


LAWS: tuple[Law[Any], ...] = (Law("mpi", same, once=True),)
