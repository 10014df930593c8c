"""Strategies that draw settings of any class, from the types and ranges of its fields."""

from typing import Any, Literal, Union, get_args, get_origin

from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from workbench.core.base.settings import SettingError, Settings
from workbench.core.contract.scheme import Scheme
from workbench.core.experiment import Experiment
from workbench.core.running.precision import lost_digits

MAX_WORKERS = 16
INTEGER_RANGE = 12  # difference between the largest and the smallest drawn whole number


def fields(cls: type[Settings], fixed: frozenset[str] = frozenset()) -> SearchStrategy[dict[str, Any]]:
    """Return a strategy for the fields of a class, within their ranges. Fields without a simple type are left out."""
    needed: dict[str, SearchStrategy[Any]] = {}
    optional: dict[str, SearchStrategy[Any]] = {}
    for name, field in cls.model_fields.items():
        values = None if name in fixed else _values(field.annotation, field.metadata)
        if values is not None:
            (needed if field.is_required() else optional)[name] = values
    return st.fixed_dictionaries(needed, optional=optional)


def _values(kind: Any, limits: list[Any]) -> SearchStrategy[Any] | None:
    if kind is bool:
        return st.booleans()
    if get_origin(kind) is Literal:
        values = get_args(kind)
        return st.sampled_from(values) if len(values) > 1 else None
    if type(None) in get_args(kind):
        rest = tuple(each for each in get_args(kind) if each is not type(None))
        inner = _values(rest[0] if len(rest) == 1 else Union[rest], limits)  # noqa: UP007
        return None if inner is None else st.none() | inner
    low, high, open_low, open_high = _range(limits)
    if kind is int:
        least = 0 if low is None else int(low) + open_low
        most = least + INTEGER_RANGE if high is None else min(int(high) - open_high, least + INTEGER_RANGE)
        return st.integers(least, most)
    if kind is float:
        bottom = 0.0 if low is None else low
        top = bottom + 10.0 if high is None else high
        return st.floats(bottom, top, exclude_min=open_low, exclude_max=open_high)
    return None


def _range(limits: list[Any]) -> tuple[float | None, float | None, bool, bool]:
    """Return the minimum and the maximum, and whether each of them is excluded."""
    names = ("ge", "gt", "le", "lt")
    found: dict[str, Any] = {n: getattr(limit, n) for limit in limits for n in names if hasattr(limit, n)}
    low, high = found.get("ge", found.get("gt")), found.get("le", found.get("lt"))
    return low, high, "gt" in found, "lt" in found


def schemes(cls: type[Scheme]) -> SearchStrategy[tuple[dict[str, Any], int]]:
    """Return a strategy for parameters of a scheme and a number of workers that fits them.

    The parameters are those of `candidates`, or any that the fields allow.
    """

    @st.composite
    def fitting(draw: st.DrawFn) -> tuple[dict[str, Any], int]:
        workers = draw(st.integers(1, MAX_WORKERS))
        candidates = list(cls.candidates(workers))
        optional = fields(cls, frozenset({"least_digits"}))
        args = draw(st.sampled_from(candidates) | optional if candidates else optional)
        try:
            scheme = cls(**args)
            scheme.check(workers)
            lost_digits(scheme, workers)
        except SettingError:  # these parameters do not fit this number of workers
            reject()
        return dict(args), workers

    return fitting()


def of_one(scheme: Scheme) -> SearchStrategy[tuple[dict[str, Any], int]]:
    """Return a strategy for parameters of one scheme and a number of workers, which need not fit together."""
    args = scheme.model_dump(exclude_unset=True)
    return st.integers(1, MAX_WORKERS).map(lambda workers: (args, workers))


def delays() -> SearchStrategy[dict[str, Any]]:
    """Return a strategy for delay models: short and long tails, correlated rounds, and simultaneous answers."""
    one, share = st.sampled_from, st.floats(0, 1)
    return st.one_of(
        _delay_fields("constant", shift=one([0.0, 5e-5, 0.01])),
        _delay_fields("shifted_exponential", shift=1e-3, rate=st.floats(0.1, 1e5)),
        _delay_fields("shifted_exponential", per="part"),
        _delay_fields("pareto", shift=1e-3, shape=st.floats(1.05, 3)),
        _delay_fields("exponential", mean=0.1),
        _delay_fields("two_part", t1=0.1, lambda1=3.0, t2=2.0, lambda2=0.3),
        _delay_fields(
            "heterogeneous", shift=one([5e-5, 0.01]), factor=one([2.0, 3.0, 10.0]), active_straggles=share
        ),
        _delay_fields("markov", factor=one([2.0, 10.0]), p_slow=st.floats(0.05, 1)),
    )


def _delay_fields(kind: str, **fields: Any) -> SearchStrategy[dict[str, Any]]:
    """Return a strategy for a delay model of a kind; `fields`: values or strategies."""
    values = {"kind": kind, **fields}
    drawn = {name: v if isinstance(v, SearchStrategy) else st.just(v) for name, v in values.items()}
    return st.fixed_dictionaries(drawn)


def links() -> SearchStrategy[dict[str, Any]]:
    """Return a strategy for links, from free to slow, with and without the time of downloads."""
    latency, bandwidth = st.sampled_from([0.0, 1e-4, 0.3]), st.sampled_from([None, 1.0, 1e3, 1e7])
    return st.fixed_dictionaries({"latency": latency, "bandwidth": bandwidth, "downloads": st.booleans()})


def experiments(
    name: str, numbers: SearchStrategy[tuple[dict[str, Any], int]], rounds: int = 4
) -> SearchStrategy[dict[str, Any]]:
    """Return a strategy for the fields of valid experiments with a scheme, on the problem "unit".

    `numbers`: strategy for the scheme's parameters and the number of workers.
    """

    @st.composite
    def drawn(draw: st.DrawFn) -> dict[str, Any]:
        args, workers = draw(numbers)
        spec = {"scheme": name, "scheme_args": args, "workers": workers, "rounds": rounds}
        spec |= {"seed": draw(st.integers(0, 2**32)), "delays": draw(delays()), "link": draw(links())}
        spec |= {"problem": "unit", "problem_args": {"samples": draw(st.integers(1, 300))}}
        try:
            Experiment(**spec)
        except SettingError:
            reject()
        return spec

    return drawn()
