"""The replies of a host: step by step, with progress during long steps."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.mpi.launch.gateway import read_message, write_message
from workbench.mpi.launch.hosts.host import Host, answer


class Worker(Host):
    """Server that reports each step, and records when its client was lost."""

    left: int | None = None  # first step that could not be reported

    def do_work(self, data: bytes, steps: int) -> tuple[dict[str, Any], bytes]:
        for step in range(steps):
            try:
                self.progress("working", step, steps)
            except OSError:
                self.left = step
                raise
        return {"done": steps}, data


def asked(worker: Worker, output: Any, *text: tuple[dict[str, Any], bytes]) -> None:
    """Let a host reply to these messages. The replies are written to `output`."""
    read, write = os.pipe()
    with open(read, "rb", buffering=0) as given, open(write, "wb") as asking:  # noqa: PTH123 - descriptors
        for word, data in text:
            write_message(asking, word, data)
        asking.close()
        answer(worker, given, output, None)


@given(st.integers(0, 20), st.binary(max_size=50))
def test_host_reports_every_step_before_its_result(steps: int, data: bytes) -> None:
    read, write = os.pipe()
    with open(read, "rb") as heard, open(write, "wb") as output:  # noqa: PTH123 - descriptors
        asked(Worker(), output, ({"what": "work", "steps": steps}, data), ({"what": "name"}, b""))
        output.close()
        replies = [read_message(heard) for _ in range(steps + 2)]
        assert [word["progress"] for word, _ in replies[:steps]] == [
            ["working", i, steps] for i in range(steps)
        ]
        assert replies[steps] == ({"done": steps}, data)
        assert "name" in replies[-1][0]
        with pytest.raises(EOFError):
            read_message(heard)


def test_host_gives_up_without_a_listener() -> None:
    read, write = os.pipe()
    os.close(read)
    worker = Worker()
    output = open(write, "wb", buffering=0)  # noqa: SIM115, PTH123 - nobody reads, so closing may fail
    asked(worker, output, ({"what": "work", "steps": 5}, b""))
    assert worker.left == 0
