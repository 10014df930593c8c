"""Refused settings of schemes that mix models, omit answers, or step locally: the suggested values are accepted."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb

NAMES = [
    "SR-SGC", "M-SGC", "IS-GC", "PGC", "DSAG", "GGC", "AdaptiveK", "DBW", "DropCompute", "Backup",
    "ASGD", "FedBuff", "LocalSGD", "DiLoCo",
]  # fmt: skip
WHOLE = st.integers(-3, 14) | st.just(100)
REAL = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, 1e9, float("inf")])
NUMBER = r"-?\d[\d.e+-]*"
ADVICE = re.compile(
    rf"take (?P<other>[a-z_]+) = (?P<value>{NUMBER})|take (?P<low>{NUMBER}) to (?:below )?(?P<high>{NUMBER})"
    rf"|take (?P<least>{NUMBER}) or more|take a number (?P<above>above 0)|take (?P<some>{NUMBER}(?:, {NUMBER})*)"
    r"|(?P<drop>give one of the two)"
)


def numbers(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for values of any of the numeric fields of a scheme."""
    kinds = {
        field: WHOLE if "int" in str(info.annotation) else REAL
        for field, info in wb.schemes.get(name).model_fields.items()
        if re.search(r"\b(int|float)\b", str(info.annotation))
    }
    return st.fixed_dictionaries({}, optional=kinds)


def advised(sentence: str, args: dict[str, Any]) -> dict[str, Any]:
    """Return the fields, changed as the refusal suggests."""
    found = re.fullmatch(r"scheme_args\.(\w+) = (\S+): [^\n]+", sentence)
    assert found, sentence
    field, value = found.groups()
    advice = ADVICE.search(sentence)
    assert advice, sentence
    number = args.get(field, float(value))
    if advice["other"]:
        return {**args, advice["other"]: int(advice["value"])}
    if advice["drop"]:
        return {k: v for k, v in args.items() if k != field}
    low, high = float(advice["low"] or advice["least"] or 0.5), float(advice["high"] or 0.5)
    near = (
        min(map(float, advice["some"].split(", ")), key=lambda x: abs(x - number)) if advice["some"] else None
    )
    wanted = near if near is not None else low if number < low or advice["least"] or advice["above"] else high
    wanted = low if advice["high"] and "below" in sentence else wanted
    return {**args, field: int(wanted) if isinstance(number, int) or wanted == int(wanted) else wanted}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(data=st.data(), workers=st.integers(1, 12))
def test_scheme_refusal_is_one_sentence_with_working_advice(
    name: str, data: st.DataObject, workers: int
) -> None:
    args = data.draw(numbers(name))
    for _ in range(2 * len(wb.schemes.get(name).model_fields) + 2):
        try:
            e = wb.Experiment(
                scheme=name, scheme_args=args, workers=workers, problem="unit", problem_args={"samples": 360}
            )
            assert e.plan.workers == workers
            return
        except wb.SettingError as error:
            args = advised(str(error), args)
    pytest.fail(f"the advice does not work: {args}")
