"""Ledgers of ranks, and merged ledgers."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from workbench.mpi.engine.ledger import Ledger, MergedLedgers

ROUNDS = 40
counted = st.lists(
    st.tuples(st.sampled_from(["messages", "bytes", "stale"]), st.integers(0, ROUNDS), st.integers(1, 9))
)


@given(st.lists(counted, min_size=1, max_size=4), st.lists(st.integers(0, ROUNDS - 1), unique=True))
def test_merged_ledgers_sum_counts_of_all_ranks(
    ranks: list[list[tuple[str, int, int]]], committed: list[int]
) -> None:
    ledgers = [Ledger(rank, ROUNDS) for rank in range(len(ranks))]
    for ledger, entries in zip(ledgers, ranks, strict=True):
        for entry in entries:
            ledger.add(*entry)
    for round in committed:
        ledgers[0].commit(round, 10.0 + round, 0.5)
    books = MergedLedgers(ledger.pack() for ledger in ledgers)
    for name in ("messages", "bytes", "stale", "samples"):
        expected = [
            sum(n for r in ranks for what, k, n in r if (what, k) == (name, i)) for i in range(ROUNDS)
        ]
        assert books.count(name, ROUNDS) == expected
    line = books.timeline(10.0, {0})
    assert line.times == [float(r) for r in sorted(committed)]
    assert line.stale == [books.count("stale", ROUNDS)[r] for r in sorted(committed)]


def test_ledger_computing_is_within_processor_time() -> None:
    ledger = Ledger(1, ROUNDS)
    ledger.used = time.process_time()
    sum(range(100_000))
    begun = time.process_time()
    sum(range(100_000))
    now = time.process_time()
    ledger.spent(3, now, now - begun)
    assert 0 < ledger.counts["worked"][3] < ledger.counts["busy"][3]
    ledger.spent(4, time.process_time())
    assert ledger.counts["worked"][4] == 0


def test_ledger_of_a_short_run() -> None:
    short, long = Ledger(1, 100), Ledger(1, 1_000_000)
    for ledger in (short, long):
        ledger.add("messages", 3)
        ledger.commit(3, 1.0, 0.0)
    assert short.pack() == long.pack()
