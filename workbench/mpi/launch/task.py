"""Task of a run for its ranks: the spec as JSON; plan, model and optimiser state as arrays.

Errors are JSON as well, so that they can be passed between processes.
"""

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from workbench.core import problems, schemes
from workbench.core.base.arrays import from_bytes, to_bytes
from workbench.core.base.by_value import received, register, sent
from workbench.core.base.errors import ClusterError, QuorumLost, RunError
from workbench.core.base.files import sha256
from workbench.core.base.older import renamed
from workbench.core.base.plugins import OWN_KINDS
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.base.user_code import fault_of, is_own
from workbench.core.contract.adaptive import AdaptiveController
from workbench.core.contract.batches import BatchSampler, with_batches
from workbench.core.contract.configurations import Configuration
from workbench.core.contract.delays import DelayStream, law_of
from workbench.core.contract.faults import fault_from
from workbench.core.contract.links import Link
from workbench.core.contract.optimisers import State, optimiser_class
from workbench.core.contract.plan import Plan
from workbench.core.experiment import Experiment
from workbench.core.problems import OnData, problem_from
from workbench.core.problems.data import PREPARED_PREFIX, catalogue, hashes, trust
from workbench.core.trace.definitions import definitions_of
from workbench.core.trace.layout import SPEC, TASK
from workbench.mpi.engine.learner import Learner
from workbench.mpi.engine.setup import Emulate, Setup
from workbench.mpi.launch.processes import ProcessId

T = TypeVar("T")
PUT_BACK = "put it back, or start a new run"
# assumed cost of a change of scheme on real processes, s, as long as none was measured
ASSUMED_RESTART_S = 0.3


@dataclass(frozen=True)
class Task:
    """One run, as the client submits it. `arrays` go to every rank, so that none has to compute the plan."""

    run: int
    spec: dict[str, Any]  # fields of the experiment
    folder: str
    arrays: bytes
    emulate: Emulate = "all"
    record: bool = True
    first: int = 0  # first round
    steps: Sequence[int] = ()  # first step of each worker, see `Setup`
    offset: float = 0.0  # duration of earlier rounds, s
    gradients: bool = False  # whether to save every committed gradient
    checkpoint_every: float = 2.0  # s
    patience: float = 600.0  # s without a round after which the run fails
    cwd: str = field(default_factory=os.getcwd)
    data: Mapping[str, Any] | None = None  # prepared data of every host, see `data_of`; None: found by name
    hashes: Sequence[Sequence[Any]] = ()  # hashes of the data's files, computed once per machine
    # facts of the start of the run, which a resumed run must match
    begun: Mapping[str, str] = field(default_factory=dict)
    # for tests, pickled by value: a function of a class and a rank that returns the class to use instead
    substitutes: str = ""
    # state of the controller of an adaptive run, see `controller_of`
    controller: Mapping[str, Any] | None = None
    code: str = ""  # user-defined classes by value, see `core.base.by_value`; never saved
    # modules of the package that define the classes of the run, so that ranks import no others
    homes: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return all fields but the arrays, for JSON."""
        return {name: value for name, value in vars(self).items() if name != "arrays"}

    @property
    def workers(self) -> int:
        """Number of workers."""
        return int(self.spec["workers"])


def task_of(
    e: Experiment, folder: Path, model: Array | None = None, state: State | None = None, **options: Any
) -> Task:
    """Return the task of a run.

    The problem is opened here, so that data are prepared once and step sizes are tuned once. For a resumed run, the
    caller passes model and optimiser state. Raises `SettingError` if the delays cannot be sampled.
    """
    if options.get("emulate") != "nothing":
        e.delays.check_loads(e.plan.loads[1:])
    problem = e.build_problem()
    if model is None or state is None:
        model, state = problem.start(), e.build_optimiser().start(problem)
    data = e.problem_spec.prepared()
    fields: dict[str, Any] = (
        {} if data is None else {"hashes": hashes(data.folder, Path(data.name).expanduser())}
    )
    arrays = pack(e.plan, model, state)
    begun, definitions = begun_with(e) | {"how": _how(options)}, definitions_of(e)
    homes = [home for value in e.parts if (home := type(value).__module__).startswith("workbench.")]
    fields |= {"begun": begun, "code": sent(definitions) if definitions else "", "homes": homes, **options}
    return Task(secrets.randbits(63), _named(e), str(folder), arrays, **fields)


def _named(e: Experiment) -> dict[str, Any]:
    """Return the experiment's fields with bare names of classes, even of classes from files that ranks cannot read."""
    spec = e.model_dump(mode="json", context=OWN_KINDS)
    sent_along = {f: obj.__name__ for f, obj in e.problem_spec.model_args().items() if is_own(obj)}
    spec["problem_args"] = {**spec["problem_args"], **sent_along}
    # includes the scheme's own parameters
    optimiser = e.build_optimiser()
    spec["optimiser_args"] = optimiser.model_dump(mode="json", exclude_unset=True, context=OWN_KINDS)
    own = (e.built_scheme.name, e.problem_spec.name, optimiser.name)
    return {**spec, **dict(zip(("scheme", "problem", "optimiser"), own, strict=True))}


def begun_with(e: Experiment) -> dict[str, str]:
    """Return what a run begins with, for its checkpoints: spec as JSON, hashes of data and of recorded delays."""
    data, times = e.problem_spec.prepared(), getattr(e.delays, "path", None)
    return {
        "spec": e.model_dump_json(),
        "data": data.digest if data else "",
        "delays": sha256(file) if times is not None and (file := Path(times).expanduser()).is_file() else "",
    }


def _how(options: Mapping[str, Any]) -> str:
    """Return, as JSON, the task's options that define the meaning of its files."""
    return json.dumps({name: options.get(name, getattr(Task, name)) for name in ("emulate", "gradients")})


def check_begun(e: Experiment, begun: Mapping[str, str], options: Mapping[str, Any]) -> None:
    """Raise `SettingError` that names the first difference from a run's checkpoint: spec, options or data.

    Checkpoints of older versions do not contain these.
    """
    if not begun:
        return
    before, how = Experiment(**renamed(json.loads(begun["spec"]))), json.loads(begun.get("how", "{}"))
    spec = differing(before.model_dump(mode="json"), e.model_dump(mode="json"))
    task = differing(how, {name: options[name] for name in how})
    for file, changes in ((SPEC, spec), (TASK, task)):
        for name, was, now in changes:
            raise SettingError(f"{file}: {name} = {now!r}, and the run began with {was!r}; {PUT_BACK}")
    found = begun_with(e)
    for name, of in (("data", e.problem_args.get("data")), ("delays", getattr(e.delays, "path", None))):
        if found[name] != begun[name]:
            raise SettingError(f"{name}: {of!r} holds something else than when the run began; {PUT_BACK}")


def differing(was: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield dotted name, old and new value wherever nested fields differ. None stands for a missing field.

    >>> list(differing({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}}))
    [('b.c', 2, 3)]
    """
    if not isinstance(was, dict) or not isinstance(now, dict):
        if was != now:
            yield name, was, now
        return
    for key in {**was, **now}:
        yield from differing(was.get(key), now.get(key), f"{name}.{key}" if name else key)


def data_of(e: Experiment) -> dict[str, Any] | None:
    """Return the prepared data of a run, for hosts that do not see this machine's files. None if it needs none.

    `key`: name of their folder in a host's cache. `make`: problem and arguments if any host can make the same data,
    else None.
    """
    args, data = e.problem_spec, e.problem_spec.prepared()
    if data is None or not isinstance(args, OnData):
        return None
    known = catalogue().get(args.data)
    makes = known is not None and known.bundled and not any(map(is_own, args.model_args().values()))
    makes &= not isinstance(args.test, str)  # held-out samples in a file exist on this host only
    make = {"problem": e.problem, "problem_args": e.problem_args} if makes else None
    return {"key": data.folder.name, "make": make}


def pack(plan: Plan, model: Array, state: State) -> bytes:
    """Pack plan (without its notes), model and optimiser state into one archive of arrays."""
    known = {field.name: getattr(plan, field.name) for field in fields(plan) if field.name != "notes"}
    columns = {f"plan_{name}": value for name, value in known.items() if value is not None}
    return to_bytes({"model": model, **columns, **{f"state_{name}": value for name, value in state.items()}})


def unpack(arrays: bytes) -> tuple[Plan, Array, State]:
    """Unpack an archive of `pack`."""
    stored = from_bytes(arrays)
    plan, state = _of(stored, "plan_"), _of(stored, "state_")
    return Plan(**{**plan, "committers": tuple(plan["committers"].tolist())}), stored["model"], state


def controller_state(
    planned: AdaptiveController, changes: Sequence[Mapping[str, Any]], left: float | None = None
) -> dict[str, Any]:
    """Return the state of the adaptive controller for a task, after these changes.

    `left`: time of the last segment's end, on the master's wall clock, if the run continues at once.
    """
    last = changes[-1] if changes else None
    ways = [[each.name, each.parameters] for each in planned.configurations]
    pause = last["seconds"] if last and left else 0.0
    known = {"ways": ways, "row": planned.row_bytes, "left": left, "restart": ASSUMED_RESTART_S}
    return {**known, "memory": last and last["memory"], "pause": pause}


def controller_of(task: Task, setup: Setup) -> AdaptiveController | None:
    """Return the adaptive controller for the master's rank, or None if the run is not adaptive."""
    if task.controller is None:
        return None
    known, spec, plan = task.controller, task.spec, setup.plan
    configurations = [Configuration(name, args, plan.workers, plan.samples) for name, args in known["ways"]]
    link, rate = (setup.link, setup.decode_rate) if task.emulate == "all" else (setup.link.free(), None)
    more = {name: known[name] for name in ("row", "restart", "memory")}
    return AdaptiveController(configurations, spec["seed"], link, setup.floats, rate, **more)


def _of(stored: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return arrays and numbers whose names begin with `prefix`."""
    found = {name.removeprefix(prefix): value for name, value in stored.items() if name.startswith(prefix)}
    return {name: value.item() if value.ndim == 0 else value for name, value in found.items()}


def unpacked(task: Task) -> tuple[Setup, Learner]:
    """Return the task in the form that a rank uses. The experiment was checked before it was submitted."""
    spec = task.spec
    for home in task.homes:
        import_module(home)
    if task.code:
        register(task.code)
    plan, model, state = unpack(task.arrays)
    trust(task.hashes)
    # If the task names prepared data, use their folder in this host's cache.
    mapped = {} if task.data is None else {"data": f"{PREPARED_PREFIX}{task.data['key']}"}
    args = problems.get(spec["problem"])(**{**spec["problem_args"], **mapped})
    scheme = schemes.get(spec["scheme"])(**spec["scheme_args"])
    problem, sampler, batch = problem_from(args, plan), None, spec.get("batch")
    delays = DelayStream(law_of(spec["delays"]), spec["seed"], spec["workers"])
    if batch is not None:
        sampler = BatchSampler(problem.samples, batch, spec["seed"])
        problem, delays.share = with_batches(problem, sampler), sampler.share
    fields = {name: getattr(task, name) for name in ("emulate", "first", "steps", "record")}
    link = Link(**spec["link"]).carrying(args.width)
    link.attach(delays, spec["seed"])
    fields |= {"decode_rate": spec["decode_rate"], "link": link}
    fields["faults"] = tuple(map(fault_from, spec["faults"]))
    setup = Setup(scheme, plan, spec["rounds"], len(model), delays, **fields)
    optimiser = optimiser_class(spec["optimiser"])(**spec["optimiser_args"])
    return setup, Learner(plan, problem, optimiser, spec["seed"], model, state)


def substitute(task: Task, cls: type[T], rank: int) -> type[T]:
    """Return the class that a rank uses in place of `cls`, see `Task.substitutes`."""
    return received(task.substitutes)[0](cls, rank) if task.substitutes else cls


def described(error: BaseException, places: Sequence[ProcessId]) -> dict[str, Any]:
    """Describe an error for another rank, or for a file. Dead ranks are named with their hosts."""
    if isinstance(error, QuorumLost):
        why = {r: error.why.get(r) or f"{places[r]} died" for r in error.missing}
        fields = {"parent": error.parent, "round": error.round, "missing": list(error.missing)}
        return {"kind": "QuorumLost", **fields, "why": {str(r): text for r, text in why.items()}}
    if isinstance(error, RunError):
        return {"kind": type(error).__name__, "text": str(error)}
    fault = fault_of(error)
    return {"kind": "RunError", "text": fault.sentence if fault else f"{type(error).__name__}: {error}"}


def not_finite(report: dict[str, Any]) -> bool:
    """Return whether a described error may come from values that are not finite."""
    missed = report.get("why", {}).values()
    return report["kind"] == "Diverged" or (bool(missed) and set(missed) == {"not finite"})


def rebuilt(report: dict[str, Any]) -> RunError:
    """Return the error that `described` has described: a `QuorumLost`, a `ClusterError`, or else a `RunError`."""
    if report["kind"] == "QuorumLost":
        why = {int(r): text for r, text in report["why"].items()}
        return QuorumLost(report["parent"], report["round"], report["missing"], why)
    return {"ClusterError": ClusterError}.get(report["kind"], RunError)(report["text"])
