"""Experiments: one validated set of settings, read from and written to JSON and YAML."""

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
    errors_of,
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
MAX_ROUNDS = 10**8  # max number of rounds; a trace of this length takes 20 GB
MAX_WORKERS = 10**6  # max number of workers; their encoding matrix takes 8 TB


_MADE_OF = {  # cached property -> fields on which it depends
    "built_scheme": {"scheme", "scheme_args"},
    "problem_spec": {"problem", "problem_args"},
    "plan": {"scheme", "scheme_args", "problem", "problem_args", "workers"},
    "_optimiser": {"optimiser", "optimiser_args", "rounds"},
    "sampler": {"batch", "seed", "problem", "problem_args"},
}


class Experiment(Settings):
    """Settings of a run: scheme, problem, optimiser, number of workers, delays and link. Instances are frozen.

    A wrong value raises `SettingError`, whose message is one sentence.

    >>> Experiment(scheme="GC", scheme_args={"stragglers": 2}, workers=12).load
    0.252
    """

    scheme: str = setting("CR", "gradient aggregation scheme")
    scheme_args: dict[str, Any] = setting({}, "parameters of the scheme")
    problem: str = setting("logistic", "objective that is minimised")
    problem_args: dict[str, Any] = setting({}, "data and regularisation")
    optimiser: str = setting("gd", "how the model is updated")
    optimiser_args: dict[str, Any] = setting({}, "parameters of the optimiser")
    workers: Annotated[int, at_most(MAX_WORKERS)] = setting(
        12, "number of workers (N), master not counted", ge=1
    )
    batch: Annotated[int | None, at_most(MOST_SAMPLES)] = setting(
        None,
        "size of a round's mini-batch; its samples depend on the seed, not on the scheme; empty = all samples",
        "samples",
        ge=1,
    )
    rounds: Annotated[int, at_most(MAX_ROUNDS)] = setting(100, "number of model updates", ge=1)
    seed: int = setting(0, "seed of the delays; the same seed gives every scheme the same stragglers", ge=0)
    delays: Delays = setting(ShiftedExponential(), "delay model: time that workers take to compute")
    link: Link = setting(Link(), "time that messages take")
    decode_rate: float | None = setting(
        None, "speed of decoding; empty = decoding takes no time, as in the papers", "floats/s", gt=0
    )
    evaluate_every: Annotated[int | None, at_most(MAX_ROUNDS)] = setting(
        None,
        "rounds between evaluations of loss and metrics, which the clock does not count; empty = 1; with mini-batches"
        " an epoch, at most rounds / 20",
        "rounds",
        ge=1,
    )
    faults: tuple[Faults, ...] = setting(
        (), "faults of workers: they die, pause, slow down or send wrong answers"
    )
    adaptive: bool = setting(
        False,
        "adaptive selection: change the scheme or its parameters between rounds, based on measured times",
    )

    @field_validator("scheme_args", "problem_args", "optimiser_args")
    @classmethod
    def _plain(cls, args: dict[str, Any]) -> dict[str, Any]:
        """Convert lists to tuples, NumPy values to Python's, functions to names and settings to dicts, as in JSON."""
        return {k: name_of(v, k) if callable(v) else _tuples(v) for k, v in args.items()}

    @model_validator(mode="after")
    def _fits(self) -> Self:
        scheme = self.built_scheme
        try:
            scheme.check(self.workers)
        except SettingError:
            raise
        except Exception as error:  # raised by a user-defined scheme
            raise SettingError(f"scheme = {self.scheme!r}: {with_fault(error)}") from error
        self.build_optimiser()
        self.problem_spec.model_args()  # raises an error if a named model cannot be found
        samples = self.problem_spec.declared_samples()
        scheme.check_problem(self.problem)
        if samples is not None:  # if it is unknown, this is checked when the data are opened
            scheme.check_samples(self.workers, samples)
        if self.batch is not None and samples is not None:
            _check_batch(self, self.batch, samples)
        if self.adaptive:
            self._steerable(samples)
        with within("delays"):
            self.delays.check(self.workers)
        with within("link"):
            self.link.check(self.workers, self.scheme if scheme.all_models else "")
        for fault in self.faults:
            for name, first, last in (("worker", 1, self.workers), ("round", 0, self.rounds - 1)):
                if (value := getattr(fault, name)) > last:
                    raise SettingError(f"faults.{name} = {value}: {there_are(name, first, last)}")
        return self

    @cached_property
    def sampler(self) -> BatchSampler | None:
        """Sampler of the mini-batches, or None if each round processes all samples.

        >>> Experiment(batch=100).sampler.rows(0).shape
        (100,)
        """
        samples = self.problem_spec.count()
        if self.batch is None:
            return None
        _check_batch(self, self.batch, samples)  # again, because the number of samples may have been unknown
        return BatchSampler(samples, self.batch, self.seed)

    @property
    def evaluation_interval(self) -> int:
        """Rounds from one evaluation of loss and metrics to the next."""
        if self.evaluate_every is not None or self.sampler is None:
            return self.evaluate_every or 1
        return max(1, min(self.sampler.batches_per_epoch, self.rounds // 20))

    def delay_stream(self, rounds: int | None = None, seed: int | None = None) -> DelayStream:
        """Return the delays that a run draws. Defaults of `rounds` and `seed`: those of the experiment."""
        seed, rounds = self.seed if seed is None else seed, self.rounds if rounds is None else rounds
        stream = self.built_scheme.stream(self.delays, seed, self.workers, rounds)
        stream.share = self.share
        return self.link.attach(stream, seed)

    @property
    def share(self) -> float:
        """Mean share of a worker's load that it processes in a round: below 1 with mini-batches."""
        return 1.0 if self.sampler is None else self.sampler.share

    def _steerable(self, samples: int | None) -> None:
        self.problem_spec.check_exact("adaptive = True")
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
        """The scheme, made from `scheme` and `scheme_args`."""
        return _within("scheme_args", schemes.get(self.scheme), self.scheme_args)

    def build_optimiser(self) -> Optimiser:
        """Return the optimiser, made from `optimiser` and `optimiser_args`."""
        return self._optimiser

    @property
    def parts(self) -> list[Settings]:
        """Scheme, problem, optimiser, delay model and faults, and settings nested in these, or in the link.

        >>> [type(part).__name__ for part in Experiment(scheme="UMW").parts]
        ['UMW', 'LogisticArgs', 'GradientDescent', 'ShiftedExponential', 'ConstantSchedule', 'Constant', 'Constant']
        """
        own = [self.built_scheme, self.problem_spec, self.build_optimiser(), self.delays, *self.faults]
        return [*own, *(inner for part in [*own, self.link] for inner in KindFamily.nested_in(part))]

    @cached_property
    def _optimiser(self) -> Optimiser:
        cls = optimiser_class(self.optimiser)
        own = {k: v for k, v in self.built_scheme.optimiser_args.items() if k in cls.model_fields}
        return _within("optimiser_args", cls, {**own, **self.optimiser_args}).for_rounds(self.rounds)

    def current(self) -> Experiment:
        """Return the experiment with the newest classes: itself, unless a cell that defines one of them was run again.

        Raises `SettingError` if a new class no longer accepts the parameters.

        >>> e = Experiment(scheme="UMW")
        >>> e.current() is e
        True
        """
        made = self.parts
        now = (schemes.get(self.scheme), problems.get(self.problem), optimiser_class(self.optimiser))
        chosen = [part.newest for part in made if isinstance(part, KindFamily)]
        if all(type(part) is cls for part, cls in zip(made, [*now, *chosen], strict=True)):
            return self
        settings = (self.delays, self.link, *self.faults)
        delays, link, *faults = (part.model_dump(exclude_unset=True) for part in settings)
        return self.replace(delays=delays, link=link, faults=faults)

    @cached_property
    def problem_spec(self) -> ProblemArgs:
        """Validated arguments of the problem."""
        return _within("problem_args", problems.get(self.problem), self.problem_args)

    @property
    def line(self) -> Link:
        """Link with the problem's number of bytes per float."""
        return self.link.carrying(self.problem_spec.width)

    @cached_property
    def plan(self) -> Plan:
        """Plan of the scheme: the allocation of parts, and which ranks communicate."""
        return self.built_scheme.plan(self.workers, self.problem_spec.count())

    def __eq__(self, other: object) -> bool:
        """Compare the fields. Cached properties follow from them."""
        return type(other) is type(self) and self._key() == other._key()

    def _key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in type(self).model_fields)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with some fields changed, without the cached properties that depend on them."""
        copy = super().model_copy(update=update, deep=deep)
        for made, fields in _MADE_OF.items():
            if not fields.isdisjoint(update or ()):
                vars(copy).pop(made, None)
        return copy

    def adaptive_controller(self) -> AdaptiveController:
        """Return the controller that changes the scheme between rounds, starting with the scheme of the experiment."""
        samples, floats = self.shape()
        self._steerable(samples)
        configuration = Configuration(self.built_scheme.name, dict(self.scheme_args), self.workers, samples)
        shape = getattr(self.problem_spec, "known", lambda: None)()
        row = self.line.width * ((shape[1] if shape else floats) + 1)
        tried = configurations_of(configuration, self.problem, self.sampler, self.problem_spec.width)
        return AdaptiveController(tried, self.seed, self.line, floats, self.decode_rate, row)

    def build_problem(self) -> Problem:
        """Open the data and make the problem. Raises `DataError`."""
        return with_batches(problem_from(self.problem_spec, self.plan), self.sampler)

    def shape(self) -> tuple[int, int]:
        """Return the number of samples d and of parameters p, for which only the sizes of the data are read."""
        args = self.problem_spec
        return args.count(), args.size(self.plan if self.problem == "unit" else None)

    @property
    def load(self) -> float:
        """Largest share of the data set that one worker processes per round; above 1 with several epochs per round."""
        samples, scheme = self.problem_spec.count(), self.built_scheme
        most = float(scheme.loads(self.workers, samples).max())
        return most * scheme.epochs_per_round * self.share / samples

    @classmethod
    def read(cls, path: str | Path, trust: bool = False) -> Experiment:
        """Read a .json, .yaml or .yml file. Raises `SettingError` with the file, the field and its value.

        `trust`: run the user-defined code that the file names, such as "mine.py:Half". Without it, an experiment that
        names such code becomes a `Description`, which can be read but not run.
        """
        check_kind("trust", trust, bool)
        spec = read_yaml(path, "scheme: CR")  # JSON is YAML
        call = f"wb.Experiment.read({str(path)!r}, trust=True) (--trust)"
        with errors_of(path):
            return Experiment(**spec) if trust else described(spec, call)

    def write(self, path: str | Path) -> Path:
        """Write to a .json, .yaml or .yml file, atomically. Raises `SettingError` for another file ending."""
        file = path_of(path, "path")
        check_ending(file, (".json", ".yaml", ".yml"), "path")
        check_writable(file, "path")
        json = file.suffix == ".json"
        text = self.model_dump_json(indent=2) + "\n" if json else dump(self.model_dump(mode="json"))
        write_file(file, text.encode())
        return file


def _check_batch(e: Experiment, batch: int, samples: int) -> None:
    why = ""
    if e.problem == "unit":
        why = "the parameters of problem = 'unit' are the plan's own parts; leave it empty, or take another problem"
    elif batch > samples:
        why = f"there are {samples} samples; take {span(1, samples)}, or leave it empty for all"
    if why:
        raise SettingError(f"batch = {batch}: {why}")
    e.built_scheme.check_batch(e.plan, BatchSampler(samples, batch, e.seed))


class _Unknown(DelayModel):
    """Delay model of a `Description`: kind and parameters. It has no code, so it draws no times."""

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
    """Fault of a `Description`: kind and parameters, without code."""

    model_config = ConfigDict(extra="allow")


def _known_or(unknown: type[KindFamily], build: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that builds settings, or `unknown` if their class needs code that may not run."""

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


def _readable_link(value: Any) -> Any:
    """Return a link, or only its plain fields if code would have to run for its delay models."""
    with limited() as now:
        try:
            return Link.model_validate(value)
        except SettingError:
            if not now.refused:
                raise
    return Link(**{k: v for k, v in value.items() if k not in ("delays", "download_delays", "groups")})


class Description(Experiment):
    """Experiment from a file that names code which was not run, or an unknown name.

    Its fields describe the run. Methods and properties that need the code raise `error`.

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
    link: Annotated[Link, BeforeValidator(_readable_link)] = setting(Link(), "time that messages take")
    _why: str = PrivateAttr("")
    _code: bool = PrivateAttr(False)
    _spec: dict[str, Any] = PrivateAttr({})

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Check nothing, because the checks of `Experiment` need the code."""
        return self

    @property
    def error(self) -> SettingError:
        """Error that methods raise if they need the code. It contains the name and what to do."""
        return SettingError(self._why)

    @property
    def names_code(self) -> bool:
        """Whether the experiment names code that was not run. Otherwise one of its names is unknown."""
        return self._code

    @property
    def spec(self) -> dict[str, Any]:
        """Fields as they were read."""
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
        """Raise `error`: without its code, a description cannot be run."""
        raise self.error

    def replace(self, *given: Never, **changes: Any) -> Any:
        """Return a copy with some fields changed. It is an ordinary experiment if all its names are now known."""
        return described({**self.spec, **changes})


def described(spec: Mapping[str, Any], hint: str = "", unknown: str = "") -> Experiment:
    """Make an experiment from the fields of a file, without running code that they name (see `Description`).

    `hint`: call that runs the code, for the error message. `unknown`: text to add to the error about an unknown name.
    Raises `SettingError` if the fields are wrong.
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
    """Set a field of a spec by its dotted name, in place. Raises `SettingError`.

    Parameters of delays without a `kind` are those of the default delay model.

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
            why = f"{owner} has no fields; set {owner} itself"
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
    if hasattr(value, "tolist"):  # a scalar or array of NumPy
        value = value.tolist()
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple | range) else value


S = TypeVar("S", bound=Settings)


def _within(field: str, cls: type[S], args: dict[str, Any]) -> S:
    """Build settings from a nested dict. Errors contain the full dotted path of the field."""
    with within(field):
        return cls(**args)
