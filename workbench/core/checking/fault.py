"""Properties of faults: they are reproducible, and JSON does not change their settings.

Each case is a short simulated run.
"""

from typing import Any

from workbench.core.base.errors import RunError
from workbench.core.checking.property import Case, Property, PropertyFailed, through_json
from workbench.core.contract.faults import Fault
from workbench.core.experiment import Experiment
from workbench.core.running.simulated import run_simulated

ROUNDS, WORKERS = 3, 4
SCHEMES: dict[str, dict[str, Any]] = {"UMW": {}, "GC": {"stragglers": 1}, "RAR": {}}


def _models(fault: Fault, case: Case) -> tuple[bytes, list[float]] | str:
    """Return the last model and the round times, or the message of the error that ends the run."""
    at = fault.replace(worker=1 + case["seed"] % WORKERS, round=case["seed"] % ROUNDS)
    data = {"samples": 24, "features": 3}
    shape = {"workers": WORKERS, "rounds": ROUNDS, "seed": case["seed"]}
    scheme = {"scheme": case["scheme"], "scheme_args": SCHEMES[case["scheme"]]}
    e = Experiment(**shape, **scheme, problem="least_squares", problem_args=data, faults=[at])
    (run,) = run_simulated([e], numeric=True)
    try:
        trace = run.result()
    except RunError as error:
        return str(error)
    return trace.model.tobytes(), trace.rounds["time"].tolist()


def repeats(fault: Fault, case: Case) -> None:
    """Check that two runs with one seed are equal, or end with the same error."""
    if _models(fault, case) != _models(fault, case):
        raise PropertyFailed(
            "two runs with one seed differ; draw from `CounterRNG(self.seed, stream).rng(round)`"
        )


PROPERTIES = (Property("settings", through_json), Property("repeats", repeats))
