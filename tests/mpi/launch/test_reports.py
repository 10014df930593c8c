"""Reports on hosts: they are transferred unchanged, and name a solution."""

from __future__ import annotations

import json
from typing import Any

import pytest

from workbench.mpi.launch.reports import REPORTS, Finding, HostState, Status, unreached


@pytest.mark.parametrize(
    ("what", "report"),
    [
        ("check", [Finding("w1", "clock", "+3.0 s", "within 2 s of the head's")]),
        ("check", []),
        (
            "status",
            Status((HostState("w1", "up", 3, 8, 1.5), HostState("w2", "unreached")), 2.0, None, "note"),
        ),
        ("down", None),
        ("run", {"w1": (0, "fine\n"), "w2": (127, "")}),
    ],
)
def test_reports_round_trip(what: str, report: Any) -> None:
    sent = json.dumps(REPORTS[what].dump_python(report, mode="json"))
    assert REPORTS[what].validate_python(json.loads(sent)) == report


@pytest.mark.parametrize(
    ("message", "what", "wanted"),
    [
        ("w1: Host key verification failed.", "host key", "its key in known"),
        ("w1: Permission denied (publickey).", "login", "without a question"),
        ("w1: bash: python9: command not found", "Python", "path of its Python"),
        ("w1: ModuleNotFoundError: numpy", "packages", "environment"),
        ("w1: no answer for 3 s", "connection", "reached by ssh"),
    ],
)
def test_unreached_names_the_cause(message: str, what: str, wanted: str) -> None:
    found = unreached("w1", message, "known")
    assert (found.host, found.what) == ("w1", what)
    assert wanted in found.wanted
