"""Messages between ranks and the master: header and values arrive whole, and other bytes are refused."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.base.errors import RunError
from workbench.ddp.wire import SIZES, Channel


def pair() -> tuple[Channel, Channel]:
    one, other = socket.socketpair()
    return Channel(one), Channel(other)


@given(
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=4),
    st.binary(max_size=99),
)
def test_message_arrives_as_it_was_sent(header: dict[str, object], values: bytes) -> None:
    one, other = pair()
    one.send(header, values)
    assert other.receive() == (header, values)
    one.close()
    other.close()


def test_large_values_go_into_the_given_room() -> None:
    one, other = pair()
    values, room = np.arange(2**20, dtype="f4"), np.zeros(2**20, dtype="f4")
    sender = threading.Thread(target=one.send, args=({"event": 1}, values))
    sender.start()
    header, found = other.receive(memoryview(room).cast("B"))
    sender.join()
    assert header == {"event": 1}
    assert found.nbytes == room.nbytes
    np.testing.assert_array_equal(room, values)


def test_message_sent_later_arrives_whole_and_before_the_next_one() -> None:
    one, other = pair()
    values = np.arange(2**22, dtype="f4")  # more than the system's buffers
    one.send_later({"number": 0}, values)
    sender = threading.Thread(target=one.send, args=({"number": 1},))
    sender.start()
    found = [other.receive() for _ in range(2)]
    sender.join()
    assert [header["number"] for header, _ in found] == [0, 1]
    np.testing.assert_array_equal(np.frombuffer(found[0][1], dtype="f4"), values)
    one.close()


def test_message_sent_later_to_a_closed_end_is_an_error_of_the_next_one() -> None:
    one, other = pair()
    other.close()
    one.send_later({"number": 0})
    with pytest.raises(OSError, match="Broken pipe"):
        one.send({"number": 1})


def test_closed_and_foreign_connections_are_errors() -> None:
    one, other = pair()
    one.connection.sendall(SIZES.pack(2**31, 0))
    with pytest.raises(RunError, match="start all ranks with one version"):
        other.receive()
    one.close()
    with pytest.raises(OSError, match="closed"):
        other.receive()


@pytest.mark.parametrize("sizes", [(2**13, 0), (2, 8)])
def test_first_message_of_an_unknown_peer_is_short(sizes: tuple[int, int]) -> None:
    one, other = pair()
    one.connection.sendall(SIZES.pack(*sizes) + b"{}")
    with pytest.raises(RunError, match="message: has"):
        other.receive_hello()


def test_first_message_is_a_mapping() -> None:
    one, other = pair()
    one.connection.sendall(SIZES.pack(2, 0) + b"[]")
    with pytest.raises(RunError, match="is not a mapping"):
        other.receive_hello()
