"""Properties of schemes, which follow from the contract between schemes and engines (`contract.protocol`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.core.base.errors import RunError
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.checking.cases import MAX_WORKERS
from workbench.core.checking.property import Case, Property, PropertyFailed
from workbench.core.codes.quality import FLOAT64_DIGITS, lost, measured_error
from workbench.core.contract.plan import Plan, uncoded_plan
from workbench.core.contract.scheme import Scheme
from workbench.core.contract.weights import Decoding, VersionedWeights
from workbench.core.engine.timeline import Timeline
from workbench.core.engine.virtual.arithmetic import EXACT_TOLERANCE, Coefficients, Numbers
from workbench.core.experiment import Experiment
from workbench.core.forecasting import forecast
from workbench.core.problems import ProblemArgs
from workbench.core.running.simulated import timeline
from workbench.core.running.start import run
from workbench.core.trace.learning import last_uses

Class = type[Scheme]
SURVIVOR_SETS = 20  # number of survivor sets with which each code is tested
REAL_ROUNDS = 5  # rounds on real processes
REAL_EXPERIMENT_FIELDS = {"problem": "least_squares", "optimiser": "gd", "optimiser_args": {"step": 1e-3}}


def _simulated(e: Experiment) -> tuple[Timeline, Coefficients]:
    weights = Coefficients(e.plan)
    return timeline(e, weights, events=False), weights


def _with_numbers(e: Experiment) -> tuple[Timeline, Numbers]:
    numbers = Numbers(e.plan, e.build_problem(), e.build_optimiser(), e.seed)
    return timeline(e, numbers, events=False), numbers


def _on_data(case: Case) -> Experiment:
    data = {"samples": max(2, case["problem_args"]["samples"]), "features": 3}
    return Experiment(**{**case, **REAL_EXPERIMENT_FIELDS, "problem_args": data})


def _played(cls: Class, case: Case) -> tuple[Timeline, list[Decoding]]:
    """Simulate a run. Return its timeline and its commits: weights of parts (None: all 1), or vectors if `numeric`."""
    if not cls.numeric:
        timeline, weights = _simulated(Experiment(**case))
        return timeline, weights.weights
    timeline, numbers = _with_numbers(_on_data(case))
    return timeline, list(numbers.gradients)


def _tolerance(e: Experiment) -> float:
    """Return the maximum error of decoding: the error of its codes, but at least 1e-8."""
    return max([EXACT_TOLERANCE, *(10.0 ** (lost(code) - 14) for code in e.built_scheme.codes(e.workers))])


def _ones(weights: Decoding, e: Experiment, round: int) -> None:
    """Raise `PropertyFailed` if a part that has samples does not have the weight 1 in a commit."""
    if weights is None:
        return
    if isinstance(weights, VersionedWeights):
        if e.plan.versions == 1:
            raise PropertyFailed(
                f"round {round}: gradients of other models than the round's own are committed"
            )
        if len(models := np.unique(weights.versions)) > 1:
            raise PropertyFailed(
                f"round {round}: gradients of models {models.tolist()} are mixed in one commit"
            )
        weights = weights.total(e.plan.parts)
    placed = e.plan.sizes > 0
    off = np.abs(np.where(placed, weights - 1, 0.0))
    if off.max() > _tolerance(e):
        j = int(off.argmax())
        why = f"part {j} has weight {weights[j]:.6g} in what is committed, instead of 1"
        raise PropertyFailed(f"round {round}: {why}")


def plans(cls: Class, case: Case) -> None:
    """Check that every part is stored by a worker, none by the master, and loads are as declared."""
    e = Experiment(**case)
    plan, samples = e.plan, e.problem_spec.count()
    if plan.samples != samples:
        raise PropertyFailed(f"the plan's parts have {plan.samples} samples; there are {samples}")
    if plan.workers != e.workers:
        raise PropertyFailed(f"the plan is for {plan.workers} workers; there are {e.workers}")
    if plan.work[0].samples:
        raise PropertyFailed(f"rank 0, the master, stores {plan.work[0].samples} samples; it must store none")
    nobody = set(np.flatnonzero(plan.sizes)) - set(plan.indices.tolist())
    if nobody and cls.exact:
        raise PropertyFailed(f"no worker stores part {min(nobody)}, so its gradient cannot be committed")
    declared = e.built_scheme.loads(e.workers, samples)
    if not np.array_equal(declared, plan.loads[1:]):
        raise PropertyFailed(
            f"`loads` says {declared.tolist()}, the plan {plan.loads[1:].tolist()} samples a round"
        )


def through_json(cls: Class, case: Case) -> None:
    """Check that settings come back from JSON unchanged."""
    e = Experiment(**case)
    back = Experiment.model_validate_json(e.model_dump_json())
    if back != e:
        raise PropertyFailed(f"{e.scheme_args} became {back.scheme_args}")


def finishes(cls: Class, case: Case) -> None:
    """Check that every round is committed, in order, at times that do not decrease."""
    timeline, _ = _played(cls, case)
    if len(timeline.times) != case["rounds"]:
        raise PropertyFailed(f"{len(timeline.times)} of {case['rounds']} rounds were committed")
    if np.any(np.diff([0.0, *timeline.times]) < 0):
        raise PropertyFailed(f"rounds end at {[round(t, 6) for t in timeline.times]} s, which goes back")


def exact(cls: Class, case: Case) -> None:
    """Check that every commit is the full gradient, whichever workers straggle: all weights 1, at one model."""
    e = Experiment(**case)
    _, committed = _simulated(e)
    for round, weights in enumerate(committed.weights):
        _ones(weights, e, round)


def residuals(cls: Class, case: Case) -> None:
    """Check that the residual of a commit is its error: the squared distance of the weights from all ones."""
    e = Experiment(**case)
    _, committed = _simulated(e)
    timeline, _ = _with_numbers(e)  # with real vectors, residuals are those that the scheme returns
    for round, (weights, declared) in enumerate(zip(committed.weights, timeline.residuals, strict=True)):
        total = weights.total(e.plan.parts) if isinstance(weights, VersionedWeights) else weights
        true = 0.0 if total is None else float(((total - 1) ** 2).sum())
        if abs(declared - true) > 1e-8 * max(1.0, true):
            why = f"the residual is {declared:.6g}; the weights' distance from ones is {true:.6g}"
            raise PropertyFailed(f"round {round}: {why}")


def fresh(cls: Class, case: Case) -> None:
    """Check that the committed vector is the weighted sum of gradients at the models that its weights belong to."""
    e = _on_data(case)
    committed = [None] * e.rounds if cls.numeric else _simulated(e)[1].weights
    _, numbers = _with_numbers(e)
    problem, bounds = numbers.problem, e.plan.bounds

    def sum_at(weighted: Sequence[tuple[int, float]], version: int) -> Array:
        slices = [(int(bounds[j]), int(bounds[j + 1]), float(w)) for j, w in weighted]
        return problem.gradient(slices, numbers.models[version])

    for round, got in enumerate(numbers.gradients):
        weights = committed[round]
        if isinstance(weights, VersionedWeights):
            wanted = np.zeros(problem.size) + weights.gradient(sum_at)
        else:
            w = np.ones(e.plan.parts) if weights is None else weights
            wanted = sum_at(list(enumerate(w)), round)
        off = float(np.abs(got - wanted).max() / max(1.0, np.abs(wanted).max()))
        if not off <= 100 * _tolerance(e):
            raise PropertyFailed(
                f"round {round}: the gradient is off by {off:.2g} of its size from the weighted sum at that round's"
                " model; is an answer of an earlier round taken for a new one?"
            )


def forecasts(cls: Class, case: Case) -> None:
    """Check that `round_times` gives the rounds of the event engine, ties included: times, messages and bytes."""
    e = _on_data(case) if cls.numeric else Experiment(**case)
    timeline, _ = _played(cls, case)
    predicted, engine = forecast(e), np.diff(timeline.times, prepend=0.0)
    off = np.abs(predicted.seconds - engine) > 1e-9 * np.abs(engine) + 1e-12 * timeline.times[-1]
    if off.any():
        r = int(off.argmax())
        raise PropertyFailed(
            f"round {r} takes {engine[r]:.6g} s; `round_times` says {predicted.seconds[r]:.6g} s"
        )
    # relays receive answers even after the commit, until the next model arrives
    if e.link.downloads and e.plan.depth.max() > 1:
        return
    for what in ("messages", "bytes"):
        found, expected = float(np.mean(getattr(timeline, what))), float(getattr(predicted, what))
        if abs(found - expected) > 1e-12 * max(found, 1.0):
            raise PropertyFailed(
                f"{found:.6g} {what} a round are received; `round_times` says {expected:.6g}"
            )


def digits(cls: Class, case: Case) -> None:
    """Check that codes keep the estimated number of digits, by which codes are refused before a run."""
    e = Experiment(**case)
    for code in e.built_scheme.codes(e.workers):
        found, judged = measured_error(code, sets=SURVIVOR_SETS), 10.0 ** (lost(code) + 1 - FLOAT64_DIGITS)
        if found > judged:
            why = f"its code is judged to be off by {judged:.2g}"
            raise PropertyFailed(f"decoding is off by {found:.2g} of the sum; {why}")


def repeats(cls: Class, case: Case) -> None:
    """Check that two runs with one seed are equal: all random numbers follow from the seed."""
    (one, a), (two, b) = _played(cls, case), _played(cls, case)
    if one.times != two.times:
        raise PropertyFailed("two runs with one seed end their rounds at different times")
    for round, (u, v) in enumerate(zip(a, b, strict=True)):
        if (u is None) != (v is None) or (u is not None and v is not None and u.tobytes() != v.tobytes()):
            raise PropertyFailed(f"round {round}: two runs with one seed commit different weights")


def versions(cls: Class, case: Case) -> None:
    """Check that the number of models in use at the same time does not exceed `versions` of the plan."""
    e = Experiment(**case)
    _, committed = _simulated(e)
    uses = last_uses(committed.weights)
    for round in range(e.rounds):
        used = sum(version <= round <= last for version, last in uses.items())
        if used > e.plan.versions:
            why = f"{used} models are in use; the plan says {e.plan.versions} (`versions`)"
            raise PropertyFailed(f"round {round}: {why}")


def deaths(cls: Class, case: Case) -> None:
    """Check that the death of a worker changes no commit, or ends the run with an error of one sentence."""
    worker = 1 + case["seed"] % case["workers"]
    e = Experiment(**{**case, "faults": [{"worker": worker, "round": case["seed"] % case["rounds"]}]})
    try:
        _, committed = _played(cls, {**case, "faults": e.faults})
    except RunError:
        return
    for round, weights in enumerate(committed if cls.exact and not cls.numeric else []):
        try:
            _ones(weights, e, round)
        except PropertyFailed as broken:
            raise PropertyFailed(f"worker {worker} died: {broken}") from None


def lateness(cls: Class, case: Case) -> None:
    """Check that workers that are always a thousand times slower change no commit."""
    slow = {"kind": "heterogeneous", "shift": 1e-3, "factor": 1e3, "slow": 0.3, "slow_straggles": 1.0}
    late = {**case, "delays": slow}
    if not cls.numeric:
        (exact if cls.exact else residuals)(cls, late)
    fresh(cls, late)


def candidates(cls: Class, case: Case) -> None:
    """Check that candidates for the planner are valid, or refused with an error of one sentence."""
    for workers in range(1, MAX_WORKERS + 1):
        for args in cls.candidates(workers):
            try:
                cls(**args).check(workers)
            except SettingError:
                continue


def same(cls: Class, case: Case) -> None:
    """Check that five rounds on real processes have the commits of the virtual clock; if exact, also the losses."""
    e = Experiment(**(case or example(cls)))
    real = run(e, engine="mpi", emulate="nothing")
    if len(real.rounds) != e.rounds:
        raise PropertyFailed(f"{len(real.rounds)} of {e.rounds} rounds were committed")
    if cls.exact and not cls.numeric:
        wanted, found = run(e).rounds["loss"].to_numpy(), real.rounds["loss"].to_numpy()
        if not np.allclose(found, wanted, rtol=1e-8):
            r = int(np.argmax(~np.isclose(found, wanted, rtol=1e-8)))
            why = f"the loss is {found[r]:.10g}; on the virtual clock it is {wanted[r]:.10g}"
            raise PropertyFailed(f"round {r}: {why}")


def example(cls: Class) -> Case:
    """Return the first candidate that fits four workers, or else the smallest larger number of workers."""
    for workers in range(4, MAX_WORKERS + 1):
        for args in cls.candidates(workers):
            try:
                case = {"scheme": cls.name, "scheme_args": dict(args), "rounds": REAL_ROUNDS}
                case |= {"workers": workers, "problem": "least_squares"}
                case |= {"problem_args": {"samples": 10 * workers, "features": 5}}
                Experiment(**case)
            except ValueError:
                continue
            return case
    raise PropertyFailed("nothing of what `candidates` gives fits 4 to 16 workers")


def plan_of(args: ProblemArgs) -> Plan:
    """Return a plan with one worker that stores all data of a problem."""
    return uncoded_plan(1, args.count())


def _sampled(cls: Class) -> str:
    """Return why commits cannot be compared, or "".

    They cannot be compared if the scheme is inexact and has no weights of parts.
    """
    return _carries_numbers(cls) if not cls.exact else ""


def _carries_numbers(cls: Class) -> str:
    why = (
        "its decisions depend on the values of gradients (`numeric = True`), so there are no weights to test"
    )
    return why if cls.numeric else ""


def _inexact(cls: Class) -> str:
    return "" if cls.exact else "it does not promise the full gradient (`exact = False`)"


NO_FORECAST = "gradients decide which workers it asks (`data_dependent = True`)"
PROPERTIES: tuple[Property[Any], ...] = (
    Property("settings", through_json),
    Property("candidates", candidates, once=True),
    Property("plan", plans),
    Property("rounds", finishes),
    Property("exact", exact, lambda cls: _carries_numbers(cls) or _inexact(cls)),
    Property("versions", versions, _carries_numbers),
    Property("residual", residuals, _carries_numbers),
    Property("fresh", fresh, _sampled),
    Property("lateness", lateness, _sampled),
    Property("deaths", deaths),
    Property("forecast", forecasts, lambda cls: NO_FORECAST if cls.data_dependent else ""),
    Property("digits", digits, _inexact),
    Property("repeats", repeats),
)
ON_PROCESSES: tuple[Property[Any], ...] = (Property("mpi", same, once=True),)
