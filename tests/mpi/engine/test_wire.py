"""The wire format: round trips, and detection of damage."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.mpi.engine.wire import (
    HEADER,
    Buffer,
    Envelope,
    MessageRejected,
    NonFinitePayload,
    decode_message,
    encode_message,
)

FLOATS = 12
VALUES = st.one_of(
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=FLOATS).map(np.array),
)


def envelope(**fields: Any) -> Envelope:
    usual = Envelope(7, 3, 2, 1, 5, 0, 1.5, 2.5, "coded by cluster 12")
    return usual._replace(**fields)


def sealed(value: Any, **fields: Any) -> tuple[Any, int]:
    buffer = Buffer(FLOATS)
    return buffer, encode_message(buffer, envelope(**fields), value)


@given(VALUES, st.integers(-1, 10**9), st.integers(0, 2**62))
def test_decode_message_round_trip(value: Any, round: int, run: int) -> None:
    buffer, length = sealed(value, round=round, run=run)
    assert decode_message(buffer, None, run, 2)[0] == decode_message(buffer, length, run, 2)[0]
    found, back = decode_message(buffer, length, run, 2)
    assert found == envelope(round=round, run=run, floats=(length - HEADER) // 8)
    np.testing.assert_array_equal(back, value) if value is not None else None
    assert (back is None) == (value is None)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=FLOATS))
def test_encode_message_of_float32_has_half_the_length(numbers: list[float]) -> None:
    buffer, value = Buffer(FLOATS, 4), np.array(numbers, dtype=np.float32)
    length = encode_message(buffer, envelope(), value.astype(float))
    assert HEADER + 4 * len(numbers) <= length <= HEADER + 4 * len(numbers) + 4
    for known in (length, None):
        found, back = decode_message(buffer, known, 7, 2)
        assert found.floats == len(numbers)
        assert back.dtype == np.float32
        np.testing.assert_array_equal(back, value)
    long = Buffer(FLOATS)
    long.words[: len(buffer.words)] = buffer.words[: len(long.words)]
    with pytest.raises(MessageRejected):  # numbers of another length are never read as float64
        decode_message(long, None, 7, 2)


@given(st.data())
def test_decode_message_detects_any_flipped_bit(data: st.DataObject) -> None:
    buffer, length = sealed(np.arange(1.0, 6.0))
    buffer.bytes[data.draw(st.integers(0, length - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(MessageRejected):
        decode_message(buffer, length, 7, 2)


@given(st.integers(0, HEADER + 39))
def test_decode_message_detects_any_truncation(length: int) -> None:
    buffer, _ = sealed(np.arange(5.0))
    buffer.bytes[length:] = 0
    for known in (length, None):
        with pytest.raises(MessageRejected):
            decode_message(buffer, known, 7, 2)


@pytest.mark.parametrize(("run", "sender", "reason"), [(8, 2, "of another run"), (7, 3, "of another sender")])
def test_decode_message_names_foreign_messages(run: int, sender: int, reason: str) -> None:
    buffer, length = sealed(np.arange(5.0))
    with pytest.raises(MessageRejected, match=reason):
        decode_message(buffer, length, run, sender)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_decode_message_refuses_numbers_that_are_not_finite(bad: float) -> None:
    buffer, length = sealed(np.array([1.0, bad, 2.0]))
    with pytest.raises(NonFinitePayload) as error:
        decode_message(buffer, length, 7, 2)
    assert error.value.envelope.round == 3


def test_decode_message_checks_sums_that_overflow() -> None:
    large = np.array([1.7e308, 1.7e308])
    buffer, length = sealed(large)
    np.testing.assert_array_equal(decode_message(buffer, length, 7, 2)[1], large)
    buffer, length = sealed(np.array([np.inf, -np.inf]))
    with pytest.raises(NonFinitePayload):
        decode_message(buffer, length, 7, 2)


@pytest.mark.parametrize("value", [np.zeros(FLOATS + 1), np.zeros((2, 2))])
def test_encode_message_refuses_what_does_not_fit(value: Any) -> None:
    with pytest.raises(ValueError, match="value"):
        sealed(value)


LONG = 300  # values: enough for sums by rows and columns, and few enough to try all pairs
KINDS = ("two bits", "three bits", "one bit of several", "swap", "reversal", "shift")
LENGTHS = (2, 40, LONG, 1000, 5000)


def is_seen(buffer: Buffer, length: int) -> bool:
    try:
        decode_message(buffer, length, 7, 2)
    except MessageRejected:
        return True
    return False


def spoil(words: Any, rng: np.random.Generator) -> None:
    """Damage words as random errors, or as errors in copying, do."""
    kind = rng.choice(KINDS)
    first, last = np.sort(rng.choice(len(words) + 1, 2, replace=False))
    if kind in ("two bits", "three bits"):
        for place in rng.choice(64 * len(words), 2 + (kind == "three bits"), replace=False).tolist():
            words[place // 64] ^= np.uint64(1 << place % 64)
    elif kind == "one bit of several":
        bit = np.uint64(1 << int(rng.integers(64)))
        words[rng.choice(len(words), int(rng.integers(2, 4)), replace=len(words) < 4)] ^= bit
    elif kind == "swap":
        i, j = rng.integers(len(words), size=2)
        words[[i, j]] = words[[j, i]]
    elif kind == "reversal":
        words[first:last] = words[first:last][::-1].copy()
    else:
        words[first:last] = np.roll(words[first:last], int(rng.integers(1, 9)))


def unseen(cases: int, seed: int) -> int:
    """Count damaged messages that are accepted."""
    rng, passed = np.random.default_rng(seed), 0
    for number in range(cases):
        if number % 1000 == 0:
            value = rng.standard_normal(LENGTHS[number // 1000 % len(LENGTHS)])
            buffer = Buffer(len(value))
            length = encode_message(buffer, envelope(), value)
            sound = buffer.words.copy()
        spoil(buffer.words[: length // 8], rng)
        passed += not (is_seen(buffer, length) or np.array_equal(buffer.words, sound))
        buffer.words[:] = sound
    return passed


def test_checksum_detects_flips_swaps_reversals_and_shifts() -> None:
    assert unseen(20_000, seed=1) == 0


@pytest.mark.slow
def test_checksum_detects_a_million_errors() -> None:
    assert unseen(1_000_000, seed=2) == 0


@pytest.mark.parametrize("bit", [0, 31, 32, 52, 62, 63])
def test_checksum_detects_equal_bits_of_two_words(bit: int) -> None:
    """A plain sum misses two changes of the highest bit, and two opposite changes of another bit."""
    buffer = Buffer(LONG)
    length = encode_message(buffer, envelope(), np.random.default_rng(bit).standard_normal(LONG))
    for pair in combinations(range(len(buffer.words)), 2):
        buffer.words[list(pair)] ^= np.uint64(1 << bit)
        assert buffer.words[0] != buffer.checksum(length // 8), pair
        buffer.words[list(pair)] ^= np.uint64(1 << bit)


def test_checksum_detects_swapped_words() -> None:
    buffer = Buffer(LONG)
    length = encode_message(buffer, envelope(), np.random.default_rng(0).standard_normal(LONG))
    for i, j in combinations(range(len(buffer.words)), 2):
        buffer.words[[i, j]] = buffer.words[[j, i]]
        assert is_seen(buffer, length), (i, j)
        buffer.words[[i, j]] = buffer.words[[j, i]]


@given(st.integers(0, 1200))
def test_decode_message_from_a_larger_buffer(floats: int) -> None:
    buffer, value = Buffer(1200), np.arange(float(floats))
    buffer.numbers[:] = -1.0  # values of the previous message
    length = encode_message(buffer, envelope(), value)
    np.testing.assert_array_equal(decode_message(buffer, length, 7, 2)[1], value)
    buffer.words[length // 8 - 1] ^= np.uint64(1)
    assert is_seen(buffer, length)


def test_decode_message_refuses_a_kind_that_is_not_text() -> None:
    buffer, length = sealed(np.arange(5.0))
    buffer.bytes[HEADER - 27] = 0xFF
    buffer.words[0] = buffer.checksum(length // 8)
    with pytest.raises(MessageRejected, match="damaged"):
        decode_message(buffer, length, 7, 2)
