"""Arguments of formulas out of their domain: one sentence with name, value and valid values."""

import re
from fractions import Fraction
from inspect import signature
from typing import Any

import numpy as np
import pytest

from workbench.core import theory
from workbench.core.base.settings import SettingError

CEGC = {"lambda1": 0.8, "lambda2": 0.1, "t1": 1.6, "t2": 6}
AGC = {"p_slow": 0.3, "p_ss": 0.8, "p_as": 0.01}
MMC = {"workers": 40, "load": 10, "shift": 0.01, "rate": 10}

WRONG = [
    (
        "cr_load(children=12, layers=2, stragglers=12)",
        "stragglers = 12: must be 0 to 11 (fewer than children = 12)",
    ),
    ("cr_load(children=0, layers=2, stragglers=0)", "children = 0: must be at least 1"),
    ("cr_load(children=12, layers=2.5, stragglers=1)", "layers = 2.5: must be a whole number"),
    ("cr_load(children=12, layers=2, stragglers=-1)", "stragglers = -1: must be 0 to 11"),
    ("cr_workers(children=2, layers=-1)", "layers = -1: must be 1 to 1000"),
    ("cr_load(children=3, layers=10**9, stragglers=1)", "layers = 1000000000: must be 1 to 1000"),
    ("gc_load(workers=4, stragglers=4)", "stragglers = 4: must be 0 to 3 (fewer than workers = 4)"),
    ("cr_stragglers(children=4, layers=1, load=0.2)", "load = 0.2: this tree needs at least 0.25"),
    ("cr_resiliency(load=1.5, layers=1)", "load = 1.5: must be finite and at least 0, at most 1"),
    ("cr_parallelisation(children=3, layers=0)", "layers = 0: must be 1 to 1000"),
    ("async_rate([1.0], buffer=0)", "buffer = 0: must be at least 1"),
    ("async_staleness(0)", "workers = 0: must be at least 1"),
    ("sr_sgc_stragglers(4, 2, 4, 1)", "burst = 2: must divide window - 1 = 3; use one of 1, 3"),
    ("m_sgc_load(4, 3, 3, 1)", "burst = 3: must be 1 to 2 (window - 1)"),
    ("delayed_step(-1)", "lag = -1: must be at least 0"),
    ("is_gc_error(workers=8, replication=3, wait_for=2)", "replication = 3: must divide workers = 8"),
    ("is_gc_error(workers=8, replication=2, wait_for=9)", "wait_for = 9: must be 1 to 8"),
    ("cagc_straggler_probability(rate=0, deadline=2)", "rate = 0: must be finite and above 0"),
    ("pgc_error(workers=4, stragglers=4)", "stragglers = 4: must be 0 to 3"),
    ("rar_parallelisation(workers=0)", "workers = 0: must be at least 1"),
    ("parallelisation_order(workers=3, layers=0)", "layers = 0: must be at least 1"),
    (
        "cr_time_bounds(children=4, layers=2, stragglers=0, samples=1, shift=0, rate=1, transfer=0)",
        "stragglers = 0: theorem 2 needs at least 1 (log(n / s) is infinite); cr_time works for 0 too",
    ),
    (
        "cr_time(children=4, layers=2, stragglers=4, samples=1, shift=0, rate=1)",
        "stragglers = 4: must be 0 to 3",
    ),
    (
        "cr_time(children=4, layers=2, stragglers=1, samples=0, shift=0, rate=1)",
        "samples = 0: must be finite and above 0",
    ),
    (
        "cr_time(children=65, layers=2, stragglers=1, samples=1, shift=0, rate=1, transfer=1)",
        "transfer = 1: with 65",
    ),
    (
        "gc_time(workers=401, stragglers=1, samples=1, shift=0, rate=1, transfer=1)",
        "at most 400 workers in one layer",
    ),
    (
        "gc_time(workers=4, stragglers=1, samples=1, shift=-1, rate=1)",
        "shift = -1: must be finite and at least 0",
    ),
    (
        "umw_time(workers=np.arange(3), samples=1, shift=0, rate=1)",
        "workers = array([0, 1, 2]): must be a whole",
    ),
    (
        "umw_time(workers=10**16, samples=1, shift=0, rate=1)",
        "workers = 10000000000000000: must be at most 1e+15",
    ),
    ("umw_time(workers=4, samples=10**400, shift=0, rate=1)", "samples = inf: must be finite and above 0"),
    ("umw_time(workers=4, samples=1, shift=0, rate=0)", "rate = 0: must be finite and above 0"),
    ("sgd_time(workers=4, stragglers=4, samples=1, shift=0, rate=1)", "stragglers = 4: must be 0 to 3"),
    (
        "frc_time(workers=10, stragglers=2, samples=1, shift=0, rate=1)",
        "stragglers + 1 = 3: must divide workers = 10; use one of 1, 2, 5, 10",
    ),
    ("rar_time(workers=4, samples=1, shift=0, rate=1, step=-1)", "step = -1: must be finite and at least 0"),
    ("harmonic(n=-1)", "n = -1: must be finite and at least 0"),
    ("exponential_order_mean(k=5, n=4)", "k = 5: must be 1 to 4 (n = 4 times are compared)"),
    ("exponential_order_mean(k=1, n=4, mean=np.nan)", "mean = nan: must be finite and above 0"),
    ("exponential_order_std(k=0, n=4)", "k = 0: must be 1 to 4"),
    ("max_of_minima_mean(groups=0, size=4)", "groups = 0: must be at least 1"),
    ("order_statistic_mean(survival=np.exp, k=3, n=2)", "k = 3: must be 1 to 2"),
    ("grouped_order_mean(survival=lambda t: 0 * t + 1, groups=1, k=1, size=1)", "no finite mean"),
    ("cegc_achievable(n=4, d=5, s=0, m=1)", "d = 5: must be 1 to 4 (there are 4 parts)"),
    ("cegc_survival(t=np.ones(1), d=0, m=1, **CEGC)", "d = 0: must be at least 1"),
    ("cegc_time(n=8, d=9, m=1, **CEGC)", "d = 9: must be 1 to 8 (there are n = 8 parts)"),
    ("cegc_time(n=8, d=3, m=4, **CEGC)", "m = 4: must be 1 to 3 (d = 3, and d < s + m is not achievable)"),
    (
        "cegc_time(n=8, d=3, m=2, stragglers=2, **CEGC)",
        "stragglers = 2: must be 0 to 1 (d < s + m is not achievable)",
    ),
    ("cegc_table(n=2, **{**CEGC, 'lambda1': 0})", "lambda1 = 0: must be finite and above 0"),
    ("cegc_best(n=0, **CEGC)", "n = 0: must be at least 1"),
    (
        "survivor_distribution(n=4, slow=5, p_ss=0.8, p_as=0)",
        "slow = 5: must be 0 to 4 (there are n = 4 workers)",
    ),
    ("missed_unshuffled(s=2, slow_holders=3, p_ss=0.8, p_as=0)", "slow_holders = 3: must be 0 to 2"),
    (
        "missed_shuffled(s=2, p_slow=-0.1, p_ss=0.8, p_as=0)",
        "p_slow = -0.1: must be finite and at least 0, at most 1",
    ),
    ("missed_given_slow(n=4, s=5, slow=0, p_ss=0.8, p_as=0)", "s = 5: must be 1 to 4"),
    ("expected_accesses(iterations=-1, missed=0.5)", "iterations = -1: must be finite and at least 0"),
    ("straggler_probability(p_slow=0, p_ss=2, p_as=0)", "p_ss = 2: must be finite and at least 0, at most 1"),
    ("frc_error(n=8, s=3, **AGC)", "s = 3: must divide n = 8; use one of 1, 2, 4, 8"),
    ("frc_error(n=8, s=2, **{**AGC, 'p_as': 1.2})", "p_as = 1.2: must be finite and at least 0, at most 1"),
    ("frc_error_given_slow(n=8, s=9, slow=0, p_ss=0.8, p_as=0)", "s = 9: must be 1 to 8"),
    ("crc_error(n=8, s=9, **AGC)", "s = 9: must be 1 to 8 (there are n = 8 parts)"),
    ("crc_error(n=27, s=2, **AGC)", "n = 27: must be 1 to 26"),
    (
        "crc_error(n=8, s=2, **AGC, coefficients='random')",
        "coefficients = 'random': give \"ones\" or a matrix",
    ),
    ("crc_errors(n=4, s=2, coefficients=np.eye(3))", "coefficients: shape (3, 3) must be (4, 4)"),
    (
        "crc_errors(n=4, s=2, coefficients=np.ones((4, 4)))",
        "coefficients[0, 2] = 1: must be 0, worker 0 has parts 0 to 1",
    ),
    (
        "crc_errors(n=2, s=2, coefficients=np.full((2, 2), np.inf))",
        "coefficients = array([[inf, inf], [inf, inf]]): must be finite numbers",
    ),
    ("crc_errors(n=17, s=1, coefficients=np.diag(np.arange(17.0)))", "n = 17: must be 1 to 16"),
    ("crc_errors(n=21, s=1, coefficients=np.eye(21))", "n = 21: must be 1 to 20"),
    ("crc_error_given_slow(n=8, s=2, slow=9, p_ss=0.8, p_as=0)", "slow = 9: must be 0 to 8"),
    ("necklaces(n=29)", "n = 29: must be 1 to 28"),
    ("necklace_count(n=8, weight=9, order=1)", "weight = 9: must be 0 to 8 (words have n = 8 letters)"),
    ("moebius(n=0)", "n = 0: must be at least 1"),
    (
        "cada_selected(smoothness=[], c=1, max_age=1)",
        "smoothness: must be a non-empty list of finite numbers",
    ),
    ("cada_selected(smoothness=[1.0], c=0, max_age=1)", "c = 0: must be finite and above 0"),
    ("cada_selected(smoothness=[1.0], c=1, max_age=0)", "max_age = 0: must be at least 1"),
    (
        "cada_selected(smoothness=[1.0], c=1, max_age=1, form='x')",
        "form = 'x': choose one of rule, published",
    ),
    ("cada_time(selected=-1)", "selected = -1: must be finite and at least 0"),
    ("gcada_time(selected=2, group_size=0)", "group_size = 0: must be at least 1"),
    ("dadam_time(workers=2, mean='x')", "mean = 'x': must be a number"),
    ("gcada_communication(selected=np.inf)", "selected = inf: must be finite and at least 0"),
    ("gcada_computation(selected=1, batch=0)", "batch = 0: must be finite and above 0"),
    ("communication_ratio(group_size=0)", "group_size = 0: must be at least 1"),
    ("gc_completion(workers=4, load=5, shift=0, rate=1)", "load = 5: must be 1 to 4 (a cluster has 4 parts)"),
    (
        "clustered_gc_completion(clusters=3, **MMC)",
        "clusters = 3: must divide workers = 40; use one of 1, 2, 4, 5, 8, 10, 20, 40",
    ),
    (
        "lcc_threshold(workers=40, load=1)",
        "load = 1: must be 2 to 40 (2 ceil(workers / load) - 1 of them must answer)",
    ),
    ("lcc_completion(workers=4, load=2, shift=0, rate=0)", "rate = 0: must be finite and above 0"),
    ("mmc_completion(order=11, clusters=4, **MMC)", "order = 11: must be 1 to 10 (load = 10)"),
    ("mmc_completion(order=[6, 0], clusters=4, **MMC)", "order = 0: must be 1 to 10 (load = 10)"),
    ("mmc_completion(order=[], clusters=4, **MMC)", "order = []: give at least one number of parts"),
    ("mmc_completion(order=[6, 10, 6], clusters=4, **MMC)", "order = [6, 6, 10]: a worker would send two"),
    (
        "mmc_completion(order=[8, 6], clusters=4, **MMC)",
        "order = [6, 8]: no message waits for more than 8 of a worker's 10 parts; take load = 8 or [6, 8, 10]",
    ),
    ("mmc_completion(order=6, clusters=8, **MMC)", "load = 10: must be 1 to 5 (a cluster has 5 parts)"),
    (
        "mmc_completion(order=6, clusters=2, hybrid=True, **MMC)",
        "hybrid = True: load = 10 must be the cluster's size, 20",
    ),
]


@pytest.mark.parametrize(("call", "sentence"), WRONG)
def test_theory_errors_are_one_sentence(call: str, sentence: str) -> None:
    with pytest.raises(SettingError, match=re.escape(sentence)) as error:
        eval(call, {**vars(theory), "np": np, "CEGC": CEGC, "AGC": AGC, "MMC": MMC})
    assert "\n" not in str(error.value)


TREE = {"children": 4, "layers": 2, "stragglers": 1}
TIME = {"samples": 8, "shift": 0.1, "rate": 2.0}
GOOD: dict[str, dict[str, Any]] = {
    "async_rate": {"seconds": [0.5, 1.0]},
    "async_staleness": {"workers": 4},
    "delayed_step": {"lag": 2},
    "m_sgc_load": {"workers": 4, "burst": 1, "window": 2, "stragglers": 1},
    "sr_sgc_stragglers": {"workers": 4, "burst": 1, "window": 2, "stragglers": 1},
    "cada_selected": {"smoothness": [1.0, 2.0], "c": 1.0, "max_age": 3, "form": "rule"},
    "cagc_straggler_probability": {"rate": 2.0, "deadline": 1.5},
    "cada_time": {"selected": 2.0, "mean": 1.0},
    "cegc_achievable": {"n": 5, "d": 3, "s": 1, "m": 2, "parts": 5},
    "cegc_best": {"n": 2, **CEGC},
    "cegc_survival": {"t": [1.0], "d": 1, "m": 1, **CEGC},
    "cegc_table": {"n": 2, **CEGC},
    "cegc_time": {"n": 5, "d": 3, "m": 2, **CEGC, "stragglers": 1},
    "clustered_gc_completion": {"workers": 8, "load": 2, "clusters": 2, "shift": 0.1, "rate": 2.0},
    "communication_ratio": {"group_size": 3},
    "cr_load": TREE,
    "cr_parallelisation": {"children": 4, "layers": 2},
    "cr_resiliency": {"load": 0.5, "layers": 2},
    "cr_stragglers": {"children": 4, "layers": 2, "load": 0.5},
    "cr_time": {**TREE, **TIME, "transfer": 0.1},
    "cr_time_bounds": {**TREE, **TIME, "transfer": 0.1},
    "cr_workers": {"children": 4, "layers": 2},
    "crc_error": {"n": 4, "s": 2, **AGC, "coefficients": "ones"},
    "crc_error_given_slow": {"n": 4, "s": 2, "slow": 1, "p_ss": 0.8, "p_as": 0.1, "coefficients": "ones"},
    "crc_errors": {"n": 4, "s": 2, "coefficients": "ones"},
    "dadam_time": {"workers": 3, "mean": 1.0},
    "expected_accesses": {"iterations": 3, "missed": 0.5},
    "exponential_order_mean": {"k": 1, "n": 2, "mean": 1.0, "shift": 0.0},
    "exponential_order_std": {"k": 1, "n": 2, "mean": 1.0},
    "frc_error": {"n": 4, "s": 2, **AGC},
    "frc_error_given_slow": {"n": 4, "s": 2, "slow": 1, "p_ss": 0.8, "p_as": 0.1},
    "frc_time": {"workers": 4, "stragglers": 1, **TIME},
    "gc_completion": {"workers": 8, "load": 2, "shift": 0.1, "rate": 2.0},
    "gc_load": {"workers": 4, "stragglers": 1},
    "gc_time": {"workers": 4, "stragglers": 1, **TIME, "transfer": 0.1},
    "gcada_communication": {"selected": 2.0, "group_size": 3},
    "gcada_computation": {"selected": 2.0, "group_size": 3, "batch": 2.0},
    "gcada_time": {"selected": 2.0, "group_size": 3, "mean": 1.0},
    "grouped_order_mean": {"survival": lambda t: np.exp(-t), "groups": 2, "k": 1, "size": 2},
    "harmonic": {"n": 2.5},
    "is_gc_error": {"workers": 8, "replication": 2, "wait_for": 3},
    "lcc_completion": {"workers": 8, "load": 3, "shift": 0.1, "rate": 2.0},
    "lcc_threshold": {"workers": 8, "load": 3},
    "max_of_minima_mean": {"groups": 2, "size": 3, "mean": 1.0, "shift": 0.0},
    "missed_given_slow": {"n": 4, "s": 2, "slow": 1, "p_ss": 0.8, "p_as": 0.1},
    "missed_shuffled": {"s": 2, **AGC},
    "missed_unshuffled": {"s": 2, "slow_holders": 1, "p_ss": 0.8, "p_as": 0.1},
    "mmc_completion": {**MMC, "order": [6, 10], "clusters": 4, "hybrid": False},
    "moebius": {"n": 6},
    "necklace_count": {"n": 6, "weight": 2, "order": 3},
    "necklaces": {"n": 4},
    "order_statistic_mean": {"survival": lambda t: np.exp(-t), "k": 1, "n": 2},
    "parallelisation_order": {"workers": 4, "layers": 2},
    "pgc_error": {"workers": 4, "stragglers": 1},
    "rar_parallelisation": {"workers": 4},
    "rar_time": {"workers": 4, **TIME, "step": 0.1},
    "sgd_time": {"workers": 4, "stragglers": 1, **TIME, "transfer": 0.1},
    "straggler_probability": AGC,
    "survivor_distribution": {"n": 4, "slow": 1, "p_ss": 0.8, "p_as": 0.1},
    "umw_time": {"workers": 4, **TIME, "transfer": 0.1},
}
NO_NUMBERS = ["2", "0.5", "two", b"2", True, None, {}, [[1.0], [1.0, 2.0]], ["1"], float("nan"), 1j]
OPTIONAL = {
    ("cegc_achievable", "parts"),
    ("cegc_time", "stragglers"),
}  # None means the value of another argument


ODD: list[Any] = [  # values that resemble a number, or that cannot be quoted unchanged in a sentence
    np.arange(3), np.arange(4.0).reshape(2, 2), np.array(2.5), np.array([1]), (1,), np.True_, 10**400, -(10**400),
    10**5000, Fraction(10**400, 3), np.datetime64("2020"), "", set(), object(), lambda: 1,
]  # fmt: skip


@pytest.mark.parametrize("name", sorted(GOOD))
def test_theory_of_odd_arguments_is_a_sentence_or_a_result(name: str) -> None:
    """Arrays, whole numbers beyond all floats, functions: never a traceback, and never several lines."""
    function, good, text = getattr(theory, name), GOOD[name], []
    for argument in good:
        for odd in ODD:
            try:
                function(**{**good, argument: odd})
            except SettingError as error:
                text.append((argument, str(error)))
    assert text
    for argument, sentence in text:
        assert sentence.startswith(argument)
        assert "\n" not in sentence


@pytest.mark.parametrize("name", sorted(GOOD))
def test_theory_refuses_what_is_not_a_number(name: str) -> None:
    """Text that resembles a number, truth values and lists are not converted."""
    function, good = getattr(theory, name), GOOD[name]
    function(**good)
    for argument in good:
        for odd in NO_NUMBERS:
            if (odd is None and (name, argument) in OPTIONAL) or (odd is True and argument == "hybrid"):
                continue
            with pytest.raises(SettingError, match=rf"^{argument}\b") as error:
                function(**{**good, argument: odd})
            assert "\n" not in str(error.value)


def test_theory_functions_have_a_case_and_documentation() -> None:
    """Each public function refuses some argument, and its docstring describes arguments and result."""
    assert {call.split("(")[0] for call, _ in WRONG} == set(theory.__all__) == set(GOOD)
    assert "An argument out of its range\nraises `SettingError`" in str(theory.__doc__)
    for name in theory.__all__:
        text = getattr(theory, name).__doc__
        for argument in signature(getattr(theory, name)).parameters:
            pattern = rf"`{argument}`(,\s+`\w+`)*:\s|\n    (\w+, )*{argument}(, \w+)* : "
            assert re.search(pattern, text), (name, argument)
        assert "    Returns" in text, name
        assert "    >>> " in text, name


def test_theory_accepts_numpy_numbers() -> None:
    assert theory.cr_load(np.int64(3), np.int32(2), np.uint8(1)) == 4 / 15
    assert theory.gcada_time(np.float32(2), np.int64(3)) == pytest.approx(0.5)
