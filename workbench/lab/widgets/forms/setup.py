"""Combined settings of the explorer's controls: several schemes on the same cluster, data and stragglers.

Some parameters have the same meaning in many schemes, by the vocabulary of the papers. `children` and `layers`
describe a tree. `stragglers` is the number of late workers among those that are decoded together. These are the
children of a parent in a tree, a group in a grouped scheme, else all workers. A shape has one value of each, for every
scheme with fields of these names.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Annotated, Any, cast

from workbench.core import schemes
from workbench.core.base.plugins import Catalogue
from workbench.core.base.settings import SettingError, Settings, at_most, setting
from workbench.core.contract.scheme import decoded_together
from workbench.core.experiment import MAX_WORKERS, Experiment
from workbench.core.problems import ProblemArgs
from workbench.core.schemes.coded_reduce import nearest_trees, tree_size

MAX_LAYERS = 8
Children = Annotated[int, at_most(MAX_WORKERS)]
# fields with the same meaning in every scheme that has them
SHARED_FIELDS = ("children", "layers", "stragglers")

# Integer fields of schemes whose sliders end at the number of workers.
INTEGER_FIELDS = ("children", "clusters", "groups", "load", "reduction", "replication", "start", "step")


class Shape(Settings):
    """Regular tree with its tolerated stragglers: n children, L layers, any s late children per parent.

    >>> Shape(children=12, layers=2, stragglers=3).workers
    156
    """

    children: Children = setting(4, "children of every parent (n); with one layer: all workers", ge=1)
    layers: int = setting(3, "layers of workers below the master (L)", ge=1, le=MAX_LAYERS)
    stragglers: int = setting(
        1, "late children per parent that are tolerated (s); their share is alpha = s/n", ge=0
    )

    @property
    def workers(self) -> int:
        """Number of workers, n + n^2 + ... + n^L."""
        return tree_size(self.children, self.layers)

    @property
    def alpha(self) -> Fraction:
        """Straggler fraction s / n."""
        return Fraction(self.stragglers, self.children)


@dataclass(frozen=True)
class Entry:
    """Scheme with its parameters. `own`: fields of its experiment that differ from the common ones."""

    scheme: str
    args: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Setup:
    """Schemes to compare, and the common fields of their experiments."""

    entries: tuple[Entry, ...]
    common: Mapping[str, Any]

    def spec(self, entry: Entry) -> dict[str, Any]:
        """Return the fields of an entry's experiment.

        An entry with its own optimiser does not use the values of the common one. An entry with its own problem uses
        the common values of fields that both have, so that the data are the same.
        """
        found = {**self.common, **entry.own, "scheme": entry.scheme, "scheme_args": dict(entry.args)}
        if "optimiser" in entry.own:
            found["optimiser_args"] = dict(entry.own.get("optimiser_args") or {})
        if "problem" in entry.own and "problem_args" not in entry.own and "problem_args" in self.common:
            known = _fields_of(ProblemArgs.catalogue, entry.own["problem"])
            common = self.common["problem_args"]
            found["problem_args"] = {k: v for k, v in common.items() if known is None or k in known}
        return found


def _fields_of(catalogue: Catalogue[Any], name: Any) -> Collection[str] | None:
    """Return the fields of a class, or None if no class has this name. The experiment then reports the error."""
    try:
        return cast(Collection[str], catalogue.get_class(name).model_fields)
    except SettingError:
        return None


@dataclass(frozen=True)
class Verdict:
    """Experiment, or the reason why it is invalid, with the form and the field at fault."""

    experiment: Experiment | None
    form: str = ""
    field: str = ""
    reason: str = ""


def judge(setup: Setup) -> list[Verdict]:
    """Check every entry, in order, without opening data."""
    return [_check_spec(setup.spec(entry)) for entry in setup.entries]


def _check_spec(spec: Mapping[str, Any]) -> Verdict:
    try:
        return Verdict(Experiment(**spec))
    except SettingError as error:
        return Verdict(None, *field_at_fault(str(error)), str(error))


def field_at_fault(sentence: str) -> tuple[str, str]:
    """Return the form and the field that an error sentence begins with.

    >>> field_at_fault("optimiser_args.schedule.warmup = -1: take 0 or more")
    ('optimiser_args', 'schedule.warmup')
    >>> field_at_fault("scheme_args.matrix[0] = 1: is not a list")
    ('scheme_args', 'matrix')
    >>> field_at_fault("workers = 13: the (3,2) tree has 12 workers")
    ('', 'workers')
    """
    found = re.match(r"([A-Za-z_][\w.\[\]]*)(?: = |: )", sentence)
    whole = re.sub(r"\[\d+\]", "", found[1]) if found else ""
    path = [part for part in whole.split(".") if not part.isdigit()]
    if len(path) > 1 and path[0] in Experiment.model_fields and path[0] != "faults":
        return path[0], ".".join(path[1:])
    return "", path[0] if path else ""


# ---------------------------------------------------------------- shapes


def shaped(entry: Entry, shape: Shape, workers: int) -> Entry:
    """Return the entry with the parameters of the shape for which its scheme has fields."""
    names = schemes.get(entry.scheme).model_fields
    args = dict(entry.args)
    if {"children", "layers"} <= set(names):
        args |= {"children": shape.children, "layers": shape.layers}
    if "stragglers" in names:
        among = decoded_together(names, args, workers)
        share = min(round(shape.alpha * among), among - 1)  # as for gradient coding in paper 1, but never all
        args["stragglers"] = shape.stragglers if among == shape.children else max(0, share)
    return replace(entry, args=args)


def reaches(scheme: str, args: Mapping[str, Any], workers: int) -> dict[str, int]:
    """Return the ends of the sliders of a scheme's own parameters for a number of workers, by field.

    >>> reaches("GC", {}, 156), reaches("CR", {"children": 12}, 156)
    ({'stragglers': 155}, {'children': 156, 'stragglers': 11})
    """
    names = schemes.get(scheme).model_fields
    found = {name: workers for name in names if name in INTEGER_FIELDS}
    if "stragglers" in names:
        # schemes with a window tolerate rounds in which all workers are late; in others, at least one must be on time
        spared = 0 if "window" in names else 1
        found["stragglers"] = max(0, decoded_together(names, args, workers) - spared)
    return {name: min(end, MAX_WORKERS) for name, end in found.items()}


def with_shape(setup: Setup, shape: Shape, workers: int | None = None) -> Setup:
    """Return the setup with the shape's parameters in every entry. `workers`: their number; None: that of the tree."""
    count = shape.workers if workers is None else workers
    entries = tuple(shaped(entry, shape, count) for entry in setup.entries)
    return Setup(entries, {**setup.common, "workers": count})


def added(setup: Setup, scheme: str, shape: Shape) -> Entry:
    """Return the entry of another scheme with the shape's parameters. If these are invalid, use its defaults."""
    count = setup.common.get("workers", shape.workers)
    names = schemes.get(scheme).model_fields
    bare = Entry(scheme, {name: names[name].default for name in SHARED_FIELDS if name in names})
    choices = [shaped(bare, shape, count), bare]
    fitting = (entry for entry in choices if _check_spec(setup.spec(entry)).experiment)
    return next(fitting, choices[0])


def shape_of(experiments: Sequence[Experiment]) -> Shape:
    """Return the shape of the first tree, or else of a star with the stragglers of the first scheme that has them."""
    built = [(e.workers, e.built_scheme.model_dump()) for e in experiments]
    for _, args in built:
        if set(SHARED_FIELDS) <= set(args):
            return Shape(**{name: args[name] for name in SHARED_FIELDS})
    late = (args["stragglers"] for _, args in built if "stragglers" in args)
    return Shape(children=built[0][0], layers=1, stragglers=next(late, 0))


def nearest(workers: int, count: int = 5) -> list[Shape]:
    """Return regular trees with about this number of workers, and the star with exactly this number.

    >>> [shape.workers for shape in nearest(150)]
    [155, 156, 132, 126, 150]
    """
    shapes = [*(s for s in nearest_trees(workers, count - 1) if s[1] <= MAX_LAYERS), (workers, 1)]
    return [Shape(children=n, layers=layers, stragglers=0) for n, layers in shapes]


# ---------------------------------------------------------------- to and from experiments


def setup_of(experiments: Sequence[Experiment]) -> Setup:
    """Return the common fields of several experiments, and the fields in which each one differs from the first."""
    args = ("scheme_args", "problem_args", "optimiser_args")
    dumps = [
        {**e.model_dump(mode="json", exclude=set(args)), **{name: getattr(e, name) for name in args}}
        for e in experiments
    ]
    common = {name: value for name, value in dumps[0].items() if name not in ("scheme", "scheme_args")}
    entries = (Entry(d["scheme"], d["scheme_args"], _own(d, common)) for d in dumps)
    return Setup(tuple(entries), common)


def _own(fields: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields in which an experiment differs from the common ones."""
    own = {name: fields[name] for name in common if fields[name] != common[name]}
    if "optimiser" in own:
        own.pop("optimiser_args", None)
        own |= {"optimiser_args": fields["optimiser_args"]} if fields["optimiser_args"] else {}
    return own
