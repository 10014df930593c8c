"""Rules of schemes in scripts: parts, ends of exchanges, and weights."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.ddp.ranks import exchange, started
from workbench.core import schemes
from workbench.core.base.settings import SettingError
from workbench.core.contract.protocol import Node, Program
from workbench.ddp.rules import rule

ALL = (0, 0)
EXACT: dict[str, tuple[str, dict[str, Any]]] = {
    "uncoded": ("UMW", {}),
    "cyclic": ("GC", {"stragglers": 1}),
    "cyclic 2": ("GC", {"stragglers": 2}),
    "fractional": ("GC", {"stragglers": 2, "code": "fractional"}),
    "mds": ("GC", {"stragglers": 3, "code": "mds"}),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_schemes_commit_every_part_once(name: str) -> None:
    scheme, args = EXACT[name]
    found, seen = rule(scheme, args, 6), 0
    for count in range(1, 7):
        for answered in combinations(range(6), count):
            if found.ready(ALL, answered, range(6)):
                weights, residual = found.weights(answered, 1)
                np.testing.assert_allclose(weights @ found.matrix[list(answered)], 1, atol=1e-9)
                assert residual < 1e-12
                seen += 1
            else:
                assert count < 6
    assert seen >= 1


@pytest.mark.parametrize(
    ("name", "lost"), [("cyclic", 1), ("cyclic 2", 2), ("fractional", 2), ("uncoded", 0)]
)
def test_exact_schemes_tolerate_their_stragglers(name: str, lost: int) -> None:
    found = rule(*EXACT[name], 6)
    for gone in combinations(range(6), lost):
        left = set(range(6)) - set(gone)
        assert found.ready(ALL, left, left)


@pytest.mark.parametrize("name", ["IS-GC", "FRC", "CRC", "SGD", "Backup"])
def test_inexact_schemes_continue_with_the_ranks_that_are_left(name: str) -> None:
    found = rule(name, {}, 6)
    assert not found.ready(ALL, {0}, range(6))
    assert found.ready(ALL, {2}, {2})
    assert not found.ready(ALL, (), ())


def test_inexact_weights_are_those_of_the_scheme() -> None:
    args = {"replication": 2, "wait_for": 4}
    scheme: Any = schemes.get("IS-GC")(**args)
    for event in range(1, 5):
        weights, _ = rule("IS-GC", args, 6).weights((0, 2, 3, 5), event)
        expected = scheme.weigh(scheme.build_code(6), (0, 2, 3, 5), event).weights
        assert weights.tolist() == expected.tolist()


def test_hierarchical_groups() -> None:
    found = rule("H-SGD", {"local_steps": 4, "levels": ((2, 2),)}, 4)
    assert [found.group(event, 3) for event in range(1, 9)] == [None, (0, 1), None, (1, 0)] * 2
    assert list(found.members((0, 1))) == [2, 3]
    assert found.ready((0, 1), {2}, {2})
    assert not found.ready((0, 1), {2}, {2, 3})
    assert (found.local, found.replicated, found.period) == (True, False, 4)


def test_local_sgd_leaves_late_models_out() -> None:
    found = rule("LocalSGD", {"local_steps": 3, "stragglers": 1}, 4)
    assert [found.group(event, 0) for event in (1, 2, 3)] == [None, None, ALL]
    assert found.ready(ALL, {0, 1, 2}, range(4))
    assert not found.ready(ALL, {0, 1}, range(4))
    assert found.weights((0, 1, 2), 3)[0].tolist() == [1 / 3] * 3


@pytest.mark.parametrize(
    ("name", "args", "why"),
    [
        ("GCC", {}, "scheme = 'GCC': no such name; did you mean 'GC'"),
        ("CR", {}, "scheme = 'CR': has no exchange_rule for training scripts; take one of BGC, Backup, CRC,"),
        ("PGC", {}, "scheme = 'PGC': has no exchange_rule"),
        ("SR-SGC", {"stragglers": 0}, "scheme = 'SR-SGC': has no exchange_rule"),
        ("GC", {"stragglers": 6}, "scheme_args.stragglers = 6: 6 workers cannot tolerate it"),
        ("GC", {"stragglers": "1"}, "scheme_args.stragglers = '1'"),
        ("GC", {"tolerance": 1.0}, "scheme_args.tolerance = 1.0: a training script counts answers"),
        ("FRC", {"deadline": 1.0}, "scheme_args.deadline = 1.0: a training script counts answers"),
        ("LocalSGD", {"rate": 0.1}, "scheme_args.rate = 0.1: a training script sets it"),
        ("H-SGD", {"levels": ((2, 4),)}, "groups of 4 do not divide 6 workers"),
    ],
)
def test_what_scripts_cannot_use_is_refused(name: str, args: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingError) as error:
        rule(name, args, 6)
    assert why in str(error.value)


USABLE = ["UMW", "GC", "FRC", "CRC", "IS-GC", "GGC", "SGD", "Backup", "LocalSGD", "H-SGD"]


@pytest.mark.parametrize("name", USABLE)
def test_scheme_has_a_rule_with_its_defaults(name: str) -> None:
    found = rule(name, {}, 8)
    assert found.matrix.any(axis=1).all()
    assert found.replicated == (name in ("GC", "FRC", "CRC", "IS-GC", "GGC"))


PLUGIN = f"{Path(__file__).parents[1] / 'support' / 'ddp' / 'plugin_scheme.py'}:Half"


def test_scheme_of_a_user_file_has_its_own_rule() -> None:
    found = rule(PLUGIN, {}, 6)
    assert not found.ready(ALL, {0, 1}, range(6))
    assert found.ready(ALL, {0, 1, 2}, range(6))
    assert found.weights((0, 1, 2), 1)[0].tolist() == [2.0] * 3
    _, ranks = started(PLUGIN, 4)
    exchange(ranks, 1)
    for rank in ranks[:2]:
        rank.answer(2, 1.0)
    assert ranks[0].commit() == (2, [4.0, 8.0])


def test_rule_of_a_base_is_not_used_for_another_program() -> None:
    class Other(schemes.get(PLUGIN)):  # type: ignore[misc]
        name = "OtherProgram"

        def program(self, node: Node) -> Program:
            return super().program(node)

    assert not Other.has_rule()
    with pytest.raises(SettingError, match="scheme = 'OtherProgram': has no exchange_rule"):
        rule("OtherProgram", {}, 6)
