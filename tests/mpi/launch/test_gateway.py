"""Peers that are not agents: silent ones time out, and invalid messages are refused in one sentence."""

from __future__ import annotations

import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from workbench.core.base.errors import ClusterError
from workbench.core.base.reading import MAX_FILE_BYTES
from workbench.mpi.launch.gateway import AGENT, ConnectionLost, Gateway
from workbench.mpi.launch.package import GREETING_MARK, Package

PEER = """
import struct, sys, time
out = sys.stdout.buffer
def word(text, data=0):
    out.write(struct.pack(">QQ", len(text), data) + text)
    out.flush()
def boot(answer=b"have"):
    out.write({mark!r} + answer + b"\\n")
    out.flush()
{does}
sys.stdin.buffer.read()  # until it is closed
"""
FIRST = {
    "silent in its first word": "boot()",
    "silent within its first word": "boot(); out.write(struct.pack('>QQ', 10, 0) + b'{'); out.flush()",
    "a byte now and then": "boot(); out.write(struct.pack('>QQ', 10**6, 0))\n"
    "while True: out.write(b' '); out.flush(); time.sleep(0.05)",
    "silent from the beginning": "",
    "does not take the package": "boot(b'need'); time.sleep(600)",
    "huge length": "boot(); out.write(struct.pack('>QQ', 2**60, 0)); out.flush()",
    "huge data": "boot(); word(b'{}', 2**31)",
    "nesting": "boot(); word(b'[' * 10**5)",
    "nested fields": "boot(); word(b'{\"a\":' * 10**5)",
    "a list": "boot(); word(b'[1]')",
    "many lists": "boot(); word(b'{\"a\": [' + b'[],' * 10**5 + b'[]]}')",
    "digits": "boot(); word(b'{\"a\": ' + b'1' * 10**5 + b'}')",
    "no JSON": "boot(); word(b'hello')",
    "no text": "boot(); word(b'\\xff\\xfe{')",
    "half of a pair": 'boot(); word(b\'{"error": "\\\\ud800"}\')',
}
LATER = {
    "progress is a number": b'{"progress": 5}',
    "progress is short": b'{"progress": ["x"]}',
    "progress is text": b'{"progress": ["x", "y", "z"]}',
    "no field": b"{}",
    "nesting": b"[" * 10**5,
    "no JSON": b"hello",
}


def gateway(does: str, patience: float = 60.0) -> Gateway:
    script = PEER.format(mark=GREETING_MARK, does=does)
    command = (sys.executable, "-c", script)
    return Gateway("far", command, sys.executable, Package("key", bytes(10**7)), patience)


def sentence(work: Any) -> str:
    """Return the error with which a connection ends, after a bounded time."""
    with ThreadPoolExecutor(1) as thread, pytest.raises(ClusterError) as caught:
        thread.submit(work).result(60)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 400
    text.encode()
    return text


@pytest.mark.parametrize("name", FIRST)
def test_gateway_gives_up_a_peer_that_is_not_an_agent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MAX_FILE_BYTES, "1e6")
    assert sentence(lambda: gateway(FIRST[name], 0.5).connect(AGENT)).startswith("far: ")


@pytest.mark.parametrize("name", LATER)
def test_gateway_refuses_an_invalid_answer(name: str) -> None:
    answer = f"word({LATER[name]!r})"
    link = gateway(f"boot(); word(b'{{}}'); {answer}").connect(AGENT)
    try:
        text = sentence(lambda: link.ask("news")[0]["pieces"])
        assert text
    finally:
        link.close()


def test_gateway_message_length_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    link = gateway("boot(); word(b'{}'); word(b'{\"a\": 1}', 3); out.write(b'abc'); out.flush()").connect(
        AGENT
    )
    try:
        assert link.ask("news") == ({"a": 1}, b"abc")
    finally:
        link.close()
    assert struct.calcsize(">QQ") == 16
    with pytest.raises(ConnectionLost):
        link.ask("news")
