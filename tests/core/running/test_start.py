"""Options of the engines: in the signature and the help of each function that takes them."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import workbench as wb
from tests.support.sampled_cases import rotated
from workbench.core.running.simulated import start_simulated
from workbench.core.running.start import ENGINES, _entries, options_of
from workbench.mpi.running.real import start_real

E = wb.Experiment(scheme="UMW", workers=2, rounds=2, problem="unit")
PASSING = [wb.run, wb.compare, wb.start, wb.start_all]


@pytest.mark.parametrize("function", PASSING)
def test_start_options_have_kind_and_default(function: Callable[..., Any]) -> None:
    known = inspect.signature(function).parameters
    assert known["patience"].default == 600.0
    assert known["patience"].annotation is float
    assert known["numeric"].default is False
    assert not [p for p in known.values() if p.kind is p.VAR_KEYWORD]


@pytest.mark.parametrize("function", PASSING)
def test_start_help_describes_each_option(function: Callable[..., Any]) -> None:
    text = pydoc.render_doc(function, renderer=pydoc.plaintext)
    sim, _, mpi = text.partition('Options of engine = "mpi"')
    assert "numeric : default False" in sim
    assert "patience : default 600.0" in mpi
    assert "Seconds without a finished round after which the run fails." in mpi
    for starter in (start_simulated, start_real):
        assert all(f"{name} : default" in text for name in options_of(starter))


@pytest.mark.parametrize("function", [wb.run, wb.start])
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"patience": 5.0},
            "patience = 5.0: is not an option of engine = 'sim'; leave it out, or take one of numeric, events",
        ),
        (
            {"engine": "mpi", "emulat": "all"},
            "emulat = 'all': is not an option of engine = 'mpi'; leave it out, or take one of cluster, folder, emulate,"
            " events, gradients, checkpoint_every, patience",
        ),
        ({"engine": "mpi", "make": None}, "make = None: is not an option of engine = 'mpi'"),
    ],
)  # fmt: skip
def test_start_refuses_options_of_other_engines(
    function: Callable[..., Any], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(wb.SettingError) as caught:
        function(E, **options)
    assert str(caught.value).startswith(says)


def test_run_raises_errors_in_the_calling_thread() -> None:
    """The error is raised without waiting for the other runs."""
    dies = wb.Experiment(scheme="UMW", workers=3, rounds=9, faults=[{"worker": 3, "round": 2}])
    long = wb.Experiment(scheme="UMW", workers=3, rounds=10**8)
    with pytest.raises(wb.QuorumLost, match="lost worker 3"):
        wb.compare([dies, long])


def test_options_of_equal_the_documentation() -> None:
    for engine in ENGINES.values():
        known = inspect.signature(engine.options).parameters
        listed = [
            name for name, _ in _entries(engine.options) if known[name].default is not inspect.Parameter.empty
        ]
        assert list(options_of(engine.options)) == listed


@rotated
def test_start_options_are_available_without_docstrings() -> None:
    """`python -OO` and PYTHONOPTIMIZE=2 remove docstrings."""
    code = (
        "import workbench as wb\n"
        "e = wb.Experiment(scheme='UMW', workers=3, rounds=3)\n"
        "print(len(wb.run(e, events=False).events), wb.start(e, events=False).result().engine)\n"
        "try: wb.run(e, engine='mpi', emulate='some')\n"
        "except wb.SettingError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["0 sim", "emulate = 'some': take 'all', 'delays' or 'nothing'"], (
        done.stderr
    )
    texts = [sys.executable, "-OO", "-m", "workbench", "delays"]
    listed = subprocess.run(texts, capture_output=True, text=True).stdout
    assert "Parameters" not in listed
