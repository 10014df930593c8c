"""`wb.check`: every property of a kind, tested with settings that are drawn from the fields of the class."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import strategies as st

from workbench.core.base.settings import SettingError, Settings, check_kind, unknown_name
from workbench.core.checking import cases, delays, fault, optimiser, problem, scheme
from workbench.core.checking.property import EXAMPLES_PER_PROPERTY, Case, Property, Row, run_property, table
from workbench.core.contract.delays import DelayModel
from workbench.core.contract.faults import Fault
from workbench.core.contract.optimisers import Optimiser, Schedule
from workbench.core.contract.scheme import Scheme
from workbench.core.problems import ProblemArgs, problem_from

if TYPE_CHECKING:
    import pandas as pd

_MARKS = {"passes": "✓", "fails": "✗", "does not apply": "–"}


@dataclass(frozen=True)
class Checked:
    """Results, one row for each property, shown as a table in a notebook and as text elsewhere."""

    name: str
    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """Whether no property fails."""
        return not self.failed

    @property
    def failed(self) -> tuple[Row, ...]:
        """Rows of the properties that fail."""
        return tuple(row for row in self.rows if row.verdict == "fails")

    @property
    def frame(self) -> pd.DataFrame:
        """Table of the rows: property, statement, verdict, why, case, show, cases."""
        import pandas as pd

        return pd.DataFrame([vars(row) for row in self.rows])

    def __str__(self) -> str:
        wrong = f"fails {len(self.failed)} of {len(self.rows)} properties"
        return f"{self.name} {'passes all properties that apply' if self.ok else wrong}\n{table(self.rows)}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        body = "".join(
            f"<tr><td>{_MARKS[row.verdict]}</td><td><b>{escape(row.property)}</b></td>"
            f"<td style='text-align:left'>{_html(row.statement)}"
            + "".join(f"<br><small>{text}</small>" for text in _more(row))
            + f"</td><td>{row.verdict}</td></tr>"
            for row in self.rows
        )
        head = escape(str(self).partition("\n")[0])
        return f"<p>{head}</p><table><tbody>{body}</tbody></table>"


def _more(row: Row) -> list[str]:
    return ([_html(row.why)] if row.why else []) + ([f"<code>{escape(row.show)}</code>"] if row.show else [])


def _html(text: str) -> str:
    """Convert a sentence to HTML, with names in single backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


class _Kind(NamedTuple):
    subject: Any
    properties: Sequence[Property[Any]]
    draw: st.SearchStrategy[Case]


def check(
    what: type[Settings] | Settings | str,
    *,
    only: str | Sequence[str] | None = None,
    case: Case | None = None,
    mpi: bool = False,
    examples: int = EXAMPLES_PER_PROPERTY,
    seed: int = 0,
) -> Checked:
    """Test the properties of the contract for a scheme, delay model, fault, problem, optimiser or schedule.

    Settings are drawn from the fields of the class and their ranges. If a property fails, the result has the smallest
    failing case that was found, with the call that repeats it. One property takes about a second, and all together
    less than twenty.

    Parameters
    ----------
    what
        Class (of `Scheme`, `DelayModel`, `Fault`, `ProblemArgs`, `Optimiser` or `Schedule`), an instance of it, or its
        name.
    only
        Name or names of properties; None: all.
    case
        Test only this case, such as that of a row's `show`. A `PropertyFailed`, or the error of the tested code, is
        then raised.
    mpi
        For schemes: also run five rounds on real processes.
    examples
        Maximum number of cases for each property.
    seed
        Seed of the drawn cases.

    Raises
    ------
    SettingError
        `what` or a property is unknown, or a case is given without exactly one property.

    Examples
    --------
    >>> print(check("gd", only="pure", examples=3))
    gd passes all properties that apply
    pure  passes          the same call gives the same result and does not change its arguments
    """
    check_kind("mpi", mpi, bool)
    kind = _kind(what)
    name = _name(kind.subject)
    more = scheme.ON_PROCESSES if mpi and kind.properties is scheme.PROPERTIES else ()
    properties = _chosen([*kind.properties, *more], only)
    if case is not None:
        if len(properties) != 1:
            raise SettingError(f"case = {case!r:.60}: is for one property; name it in only")
        properties[0].test(kind.subject, case)
        return Checked(name, (properties[0].row("passes", case=case, cases=1),))
    label = repr(name) if isinstance(what, str) else name
    with warnings.catch_warnings():
        # warnings about divergence and lost digits are ignored, because the properties test their consequences
        warnings.simplefilter("ignore")
        rows = [run_property(each, kind.subject, kind.draw, label, seed, examples) for each in properties]
    return Checked(name, tuple(rows))


def _chosen(properties: Sequence[Property[Any]], only: str | Sequence[str] | None) -> list[Property[Any]]:
    known = {each.name: each for each in properties}
    wanted = list(known) if only is None else [only] if isinstance(only, str) else list(only)
    for name in wanted:
        if name not in known:
            raise unknown_name("only", name, known)
    return [known[name] for name in wanted]


def _name(subject: Any) -> str:
    cls = subject if isinstance(subject, type) else type(subject)
    return str(getattr(cls, "name", "") or cls.__name__)


def _kind(what: Any) -> _Kind:
    """Return the object to check, its properties, and the strategy that draws its cases."""
    found = _named(what) if isinstance(what, str) else what
    cls = found if isinstance(found, type) else type(found)
    if issubclass(cls, Scheme):
        numbers = cases.schemes(cls) if isinstance(found, type) else cases.of_one(found)
        return _Kind(cls, scheme.PROPERTIES, cases.experiments(cls.name, numbers))
    seeds = st.integers(0, 2**16)
    if issubclass(cls, DelayModel):
        draw = {"seed": seeds, "workers": st.integers(1, 12), "samples": st.sampled_from([1, 2, 10, 1000])}
        return _Kind(_made(found), delays.PROPERTIES, st.fixed_dictionaries(draw))
    if issubclass(cls, ProblemArgs):
        args = _made(found)
        # float64, because with float32 wrong gradients cannot be distinguished from rounding errors
        if "precision" in cls.model_fields:
            args = args.replace(precision="float64")
        draw = {"seed": seeds, "far": st.sampled_from([0.0, 0.1, 1.0])}
        return _Kind(
            problem_from(args, scheme.plan_of(args)), problem.PROPERTIES, st.fixed_dictionaries(draw)
        )
    if issubclass(cls, Optimiser | Schedule):
        properties = optimiser.PROPERTIES if issubclass(cls, Optimiser) else optimiser.OF_SCHEDULES
        made = _made(found).for_rounds(optimiser.ROUNDS)
        return _Kind(made, properties, st.fixed_dictionaries({"seed": seeds}))
    if issubclass(cls, Fault):
        subject = found(worker=1, round=0) if isinstance(found, type) else found
        draw = {"seed": seeds, "scheme": st.sampled_from(sorted(fault.SCHEMES))}
        return _Kind(subject, fault.PROPERTIES, st.fixed_dictionaries(draw))
    why = "cannot be checked; give a class of Scheme, DelayModel, Fault, ProblemArgs, Optimiser or Schedule"
    raise SettingError(f"what = {what!r:.60}: {why}")


def _made(found: Any) -> Any:
    return found() if isinstance(found, type) else found


def _named(name: str) -> type[Settings]:
    kinds: tuple[Any, ...] = (Schedule, Fault, Optimiser, ProblemArgs, DelayModel, Scheme)
    known = {name: cls.catalogue[name] for cls in kinds for name in cls.catalogue}
    if name not in known:
        raise unknown_name("what", name, known)
    return known[name]
