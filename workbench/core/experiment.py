"""An experiment: one validated bag of settings, to and from JSON and YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Never, Self, TypeVar

from pydantic import (
    BeforeValidator,
    ConfigDict,
    PrivateAttr,
    SerializeAsAny,
    field_validator,
    model_validator,
)

from workbench.core import problems, schemes
from workbench.core.base.files import write_file
from workbench.core.base.plugins import KindFamily
from workbench.core.base.settings import (
    SettingError,
    Settings,
    at_most,
    check_ending,
    check_kind,
    check_writable,
    path_of,
    setting,
    within,
)
from workbench.core.base.text import dump, read_yaml
from workbench.core.base.trust import limited
from workbench.core.base.type_checks import span, there_are
from workbench.core.base.types import Array
from workbench.core.base.user_code import name_of, with_fault
from workbench.core.contract.adaptive import AdaptiveController
from workbench.core.contract.batches import BatchSampler, with_batches
from workbench.core.contract.configurations import Configuration, configurations_of, reason_fixed
from workbench.core.contract.delays import DelayModel, Delays, DelayStream, ShiftedExponential, law_of
from workbench.core.contract.faults import Fault, Faults, fault_from
from workbench.core.contract.links import Link
from workbench.core.contract.optimisers import Optimiser, optimiser_class
from workbench.core.contract.plan import Plan
from workbench.core.contract.scheme import Scheme
from workbench.core.problems import Problem, ProblemArgs, problem_from

MOST_SAMPLES = 10**12
MAX_ROUNDS, MAX_WORKERS = 10**8, 10**6  # 20 GB of rows; 8 TB of a code


_MADE_OF = {  # what an experiment makes once -> the fields that it is made of
    "built_scheme": {"scheme", "scheme_args"},
    "problem_spec": {"problem", "problem_args"},
    "plan": {"scheme", "scheme_args", "problem", "problem_args", "workers"},
    "_optimiser": {"optimiser", "optimiser_args", "rounds"},
    "sampler": {"batch", "seed", "problem", "problem_args"},
}


class Experiment(Settings):
    """What to run: scheme, problem, optimiser, cluster size, delays, link. Frozen; a bad value is one sentence.

    >>> Experiment(scheme="GC", scheme_args={"stragglers": 2}, workers=12).load
    0.252
    """

    scheme: str = setting("CR", "gradient aggregation scheme")
    scheme_args: dict[str, Any] = setting({}, "parameters of the scheme")
    problem: str = setting("logistic", "what is minimised")
    problem_args: dict[str, Any] = setting({}, "data and regularisation")
    optimiser: str = setting("gd", "how the model is updated")
    optimiser_args: dict[str, Any] = setting({}, "parameters of the optimiser")
    workers: Annotated[int, at_most(MAX_WORKERS)] = setting(
        12, "number of workers (N), master not counted", ge=1
    )
    batch: Annotated[int | None, at_most(MOST_SAMPLES)] = setting(
        None,
        "samples of a round's mini-batch, the same for every scheme of one seed; empty = all",
        "samples",
        ge=1,
    )
    rounds: Annotated[int, at_most(MAX_ROUNDS)] = setting(100, "number of model updates", ge=1)
    seed: int = setting(0, "seed of the delays; the same seed gives every scheme the same stragglers", ge=0)
    delays: Delays = setting(ShiftedExponential(), "how long workers take")
    link: Link = setting(Link(), "how long messages take")
    decode_rate: float | None = setting(
        None, "speed of decoding; empty = free, as in the papers", "floats/s", gt=0
    )
    evaluate_every: Annotated[int | None, at_most(MAX_ROUNDS)] = setting(
        None,
        "rounds from one evaluation of loss and metrics to the next, outside the clock; empty = 1, with mini-batches"
        " an epoch, or a 20th of the run where that is shorter",
        "rounds",
        ge=1,
    )
    faults: tuple[Faults, ...] = setting((), "what workers do wrong: die, pause, slow down, answer wrongly")
    adaptive: bool = setting(
        False,
        "re-plan between rounds: go on with another scheme, or other numbers, once the measured times say so",
    )

    @field_validator("scheme_args", "problem_args", "optimiser_args")
    @classmethod
    def _plain(cls, args: dict[str, Any]) -> dict[str, Any]:
        """Make lists tuples, NumPy's numbers Python's, functions names and settings dicts: JSON gives these back."""
        return {k: name_of(v, k) if callable(v) else _tuples(v) for k, v in args.items()}

    @model_validator(mode="after")
    def _fits(self) -> Self:
        scheme = self.built_scheme
        try:
            scheme.check(self.workers)
        except SettingError:
            raise
        except Exception as error:  # of a scheme of the user's own
            raise SettingError(f"scheme = {self.scheme!r}: {with_fault(error)}") from error
        self.build_optimiser()
        self.problem_spec.model_args()  # what is named is there
        samples = self.problem_spec.declared_samples()
        scheme.check_problem(self.problem)
        if samples is not None:  # else whoever opens the data finds out
            scheme.check_samples(self.workers, samples)
        if self.batch is not None and samples is not None:
            self._check_batch(self.batch, samples)
        if self.adaptive:
            self._steerable(samples)
        with within("delays"):
            self.delays.check(self.workers)
        for fault in self.faults:
            if fault.worker > self.workers:
                raise SettingError(f"faults.worker = {fault.worker}: {there_are('worker', 1, self.workers)}")
            if fault.round >= self.rounds:
                raise SettingError(f"faults.round = {fault.round}: {there_are('round', 0, self.rounds - 1)}")
        return self

    def _check_batch(self, batch: int, samples: int) -> None:
        why = ""
        if self.problem == "unit":
            why = "the parameters of problem = 'unit' are the plan's own parts; leave it empty, or take another problem"
        elif batch > samples:
            why = f"there are {samples} samples; take {span(1, samples)}, or leave it empty for all"
        if why:
            raise SettingError(f"batch = {batch}: {why}")
        self.built_scheme.check_batch(self.plan, BatchSampler(samples, batch, self.seed))

    @cached_property
    def sampler(self) -> BatchSampler | None:
        """What says which samples a job's mini-batch has; None: every round goes through all samples.

        >>> Experiment(batch=100).sampler.rows(0).shape
        (100,)
        """
        samples = self.problem_spec.count()
        if self.batch is None:
            return None
        self._check_batch(self.batch, samples)  # of data that had not been opened before
        return BatchSampler(samples, self.batch, self.seed)

    @property
    def evaluation_interval(self) -> int:
        """Rounds from one evaluation of loss and metrics to the next.

        >>> Experiment(batch=100, rounds=100).evaluation_interval, Experiment(batch=10).evaluation_interval
        (5, 5)
        """
        if self.evaluate_every is not None or self.sampler is None:
            return self.evaluate_every or 1
        return max(1, min(self.sampler.batches_per_epoch, self.rounds // 20))

    def delay_stream(self, rounds: int | None = None, seed: int | None = None) -> DelayStream:
        """Return the draws of a run of it: of its own length and seed, or of others."""
        seed, rounds = self.seed if seed is None else seed, self.rounds if rounds is None else rounds
        stream = self.built_scheme.stream(self.delays, seed, self.workers, rounds)
        stream.share = self.share
        return stream

    @property
    def share(self) -> float:
        """Share of its load that a worker goes through in a round, on average: below 1 with mini-batches."""
        return 1.0 if self.sampler is None else self.sampler.share

    def _steerable(self, samples: int | None) -> None:
        why, scheme = "", self.built_scheme
        if self.faults:
            why = "a run with faults is not re-planned; take faults = (), or adaptive = false"
        elif self.problem == "unit":
            why = "the parameters of problem = 'unit' are the plan's own parts; take another problem"
        elif samples is not None and (reason := reason_fixed(scheme, scheme.plan(self.workers, samples))):
            instead = "take adaptive = false, or begin with another scheme, e.g. 'GC'"
            why = f"scheme = {self.scheme!r} cannot be changed between rounds, as {reason}; {instead}"
        if why:
            raise SettingError(f"adaptive = True: {why}")

    @cached_property
    def built_scheme(self) -> Scheme:
        """The scheme, made from its name and numbers."""
        return _within("scheme_args", schemes.get(self.scheme), self.scheme_args)

    def build_optimiser(self) -> Optimiser:
        """Make the optimiser."""
        return self._optimiser

    @property
    def parts(self) -> list[Settings]:
        """Scheme, problem, optimiser, delay model and faults, and what is nested in these, such as a schedule.

        >>> [type(part).__name__ for part in Experiment(scheme="UMW").parts]
        ['UMW', 'LogisticArgs', 'GradientDescent', 'ShiftedExponential', 'ConstantSchedule']
        """
        own = [self.built_scheme, self.problem_spec, self.build_optimiser(), self.delays, *self.faults]
        return [*own, *(inner for part in own for inner in KindFamily.nested_in(part))]

    @cached_property
    def _optimiser(self) -> Optimiser:
        cls = optimiser_class(self.optimiser)
        own = {k: v for k, v in self.built_scheme.optimiser_args.items() if k in cls.model_fields}
        return _within("optimiser_args", cls, {**own, **self.optimiser_args}).for_rounds(self.rounds)

    def current(self) -> Experiment:
        """The experiment with the classes that its names stand for now: itself, unless a cell was run again.

        Raises `SettingError` where its numbers do not fit a class any more.

        >>> e = Experiment(scheme="UMW")
        >>> e.current() is e
        True
        """
        made = self.parts
        now = (schemes.get(self.scheme), problems.get(self.problem), optimiser_class(self.optimiser))
        chosen = [part.newest for part in made if isinstance(part, KindFamily)]
        if all(type(part) is cls for part, cls in zip(made, [*now, *chosen], strict=True)):
            return self
        delays, *faults = (part.model_dump(exclude_unset=True) for part in (self.delays, *self.faults))
        return self.replace(delays=delays, faults=faults)

    @cached_property
    def problem_spec(self) -> ProblemArgs:
        """Validated arguments of the problem."""
        return _within("problem_args", problems.get(self.problem), self.problem_args)

    @property
    def line(self) -> Link:
        """The link with the length of the problem's parameters."""
        return self.link.carrying(self.problem_spec.width)

    @cached_property
    def plan(self) -> Plan:
        """Who holds what and who talks to whom."""
        return self.built_scheme.plan(self.workers, self.problem_spec.count())

    def __eq__(self, other: object) -> bool:
        """Are all fields equal? What was made of them says nothing more."""
        return type(other) is type(self) and self._key() == other._key()

    def _key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in type(self).model_fields)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy with some fields changed; what is made of those is made anew when it is asked for."""
        copy = super().model_copy(update=update, deep=deep)
        for made, fields in _MADE_OF.items():
            if not fields.isdisjoint(update or ()):
                vars(copy).pop(made, None)
        return copy

    def adaptive_controller(self) -> AdaptiveController:
        """Return what re-plans a run of it, from the scheme that it names on."""
        samples, floats = self.shape()
        self._steerable(samples)
        configuration = Configuration(self.built_scheme.name, dict(self.scheme_args), self.workers, samples)
        shape = getattr(self.problem_spec, "known", lambda: None)()
        row = self.line.width * ((shape[1] if shape else floats) + 1)
        tried = configurations_of(configuration, self.problem, self.sampler)
        return AdaptiveController(tried, self.rounds, self.line, floats, self.decode_rate, row)

    def build_problem(self) -> Problem:
        """Open the data and make the problem; raises `DataError`."""
        return with_batches(problem_from(self.problem_spec, self.plan), self.sampler)

    def shape(self) -> tuple[int, int]:
        """Samples d and parameters p; looks at the data's size only."""
        args = self.problem_spec
        return args.count(), args.size(self.plan if self.problem == "unit" else None)

    @property
    def load(self) -> float:
        """Largest share of the data set that one worker goes through per round; above 1 where it does so repeatedly."""
        samples, scheme = self.problem_spec.count(), self.built_scheme
        most = float(scheme.loads(self.workers, samples).max())
        return most * scheme.epochs_per_round * self.share / samples

    @classmethod
    def read(cls, path: str | Path, trust: bool = False) -> Experiment:
        """Read a .json, .yaml or .yml file; raises `SettingError` naming file, field and value.

        `trust`: run the code that the file names, such as "mine.py:Half". Without it, an experiment that names such
        code is a `Description`: its fields can be read, and it cannot be run.
        """
        check_kind("trust", trust, bool)
        spec = read_yaml(path, "scheme: CR")  # JSON is YAML
        try:
            return (
                Experiment(**spec)
                if trust
                else described(spec, f"wb.Experiment.read({str(path)!r}, trust=True) (--trust)")
            )
        except SettingError as error:
            raise SettingError(f"{path}: {error}") from None

    def write(self, path: str | Path) -> Path:
        """Write to a .json, .yaml or .yml file, atomically; raises `SettingError` for another name."""
        file = path_of(path, "path")
        check_ending(file, (".json", ".yaml", ".yml"), "path")
        check_writable(file, "path")
        json = file.suffix == ".json"
        text = self.model_dump_json(indent=2) + "\n" if json else dump(self.model_dump(mode="json"))
        write_file(file, text.encode())
        return file


class _Unknown(DelayModel):
    """Delays that a `Description` names: their kind and parameters, and nothing that draws."""

    model_config = ConfigDict(extra="allow")

    def draw(self, keyed: Any, round: int, workers: int, slot: int, before: Array | None) -> Array:
        raise self._error

    def compute(self, draw: Array, samples: Any) -> Array:
        raise self._error

    @property
    def _error(self) -> SettingError:
        return SettingError(
            f"delays.kind = {self.written_kind!r}: is a description, and cannot be drawn from"
        )


class _UnknownFault(Fault):
    """A fault that a `Description` names."""

    model_config = ConfigDict(extra="allow")


def _known_or(unknown: type[KindFamily], build: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that builds the settings of a description: of a known class, or of `unknown`."""

    def described(value: Any) -> Any:
        with limited() as now:
            try:
                return build(value)
            except SettingError:
                if not now.refused:
                    raise
        found = unknown(**{name: given for name, given in value.items() if name != "kind"})
        found.__dict__.update(kind=str(value["kind"]), written=str(value["kind"]))
        return found

    return described


class Description(Experiment):
    """An experiment that was read and that names code which reading does not run, or nothing that is known here.

    Its fields say what was run. Whatever needs the code raises `error`: one sentence, with the name and what to do.

    >>> e = described({"scheme": "mine.py:Half", "workers": 4})
    >>> e.scheme, e.workers, type(e).__name__
    ('mine.py:Half', 4, 'Description')
    """

    delays: Annotated[SerializeAsAny[DelayModel], BeforeValidator(_known_or(_Unknown, law_of))] = setting(
        ShiftedExponential(), "how long workers take"
    )
    faults: tuple[
        Annotated[SerializeAsAny[Fault], BeforeValidator(_known_or(_UnknownFault, fault_from))], ...
    ] = setting((), "what workers do wrong")
    _why: str = PrivateAttr("")
    _code: bool = PrivateAttr(False)
    _spec: dict[str, Any] = PrivateAttr({})

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Nothing that needs the code is checked."""
        return self

    @property
    def error(self) -> SettingError:
        """What using it raises."""
        return SettingError(self._why)

    @property
    def names_code(self) -> bool:
        """Does it name code? Otherwise it names what is not known here."""
        return self._code

    @property
    def spec(self) -> dict[str, Any]:
        """The fields as they were read."""
        return deepcopy(self._spec)

    @property
    def built_scheme(self) -> Never:
        """Raise `error`."""
        raise self.error

    @property
    def problem_spec(self) -> Never:
        """Raise `error`."""
        raise self.error

    @property
    def _optimiser(self) -> Never:
        raise self.error

    def current(self) -> Experiment:
        """Raise `SettingError`: it cannot be run."""
        raise self.error

    def replace(self, *given: Never, **changes: Any) -> Any:
        """Return a copy with some fields changed: an experiment, where it names nothing unknown any longer."""
        return described({**self.spec, **changes})


def described(spec: Mapping[str, Any], hint: str = "", unknown: str = "") -> Experiment:
    """Make an experiment of fields that were read, without running code that they name: see `Description`.

    `hint`: the call that runs it; `unknown`: what is added of a name that is not known here. Raises `SettingError` as
    `Experiment` does where the fields are wrong.
    """
    with limited() as now:
        try:
            return Experiment(**spec)
        except SettingError:
            if not now.refused:
                raise
        found = Description(**spec)
    found._code, found._spec = bool(now.names), deepcopy(dict(spec))
    found._why = now.refused[0] + (unknown if not now.names else f"; {hint} runs it" if hint else "")
    return found


def put(fields: dict[str, Any], name: str, value: Any) -> None:
    """Set a field of a spec by its dotted name, in place; raises `SettingError`.

    Where no kind of delays is named, numbers of theirs belong to the default's.

    >>> spec = {"workers": 6}
    >>> put(spec, "delays.rate", 2.0)
    >>> spec
    {'workers': 6, 'delays': {'kind': 'shifted_exponential', 'rate': 2.0}}
    """
    *outer, last = name.split(".")
    place: Any = fields
    for depth, key in enumerate(outer, 1):
        place = place.setdefault(key, {})
        if not isinstance(place, dict):
            owner = ".".join(outer[:depth])
            why = f"{owner} has no fields of its own; set {owner} itself"
            raise SettingError(f"{name} = {value!r:.60}: {why}")
    place[last] = value
    delays = fields.get("delays")
    if name.partition(".")[0] == "delays" and isinstance(delays, dict) and "kind" not in delays:
        fields["delays"] = {"kind": Experiment.model_fields["delays"].default.kind, **delays}


def _tuples(value: Any) -> Any:
    if isinstance(value, Settings):  # such as a schedule
        value = value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, dict):
        return {name: _tuples(item) for name, item in value.items()}
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays
        value = value.tolist()
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple | range) else value


S = TypeVar("S", bound=Settings)


def _within(field: str, cls: type[S], args: dict[str, Any]) -> S:
    """Build from a nested dict; an error names the whole way to the field."""
    with within(field):
        return cls(**args)
