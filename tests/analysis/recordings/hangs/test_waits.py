"""Waits between ranks: groups of one name, unknown members, and the status of groups with sends."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.support.flight_dumps import DEFAULT, dump, operation, write
from workbench.analysis.recordings.hangs.dumps import read_dumps
from workbench.analysis.recordings.hangs.waits import Job

PAIR = ("1", "pair")


def job(folder: Path) -> Job:
    return Job(read_dumps(folder))


def test_groups_of_one_name_differ_by_their_ranks(tmp_path: Path) -> None:
    """Ranks 0 and 1 call their group "1", and so do ranks 2 and 3. One of the two groups hangs."""
    dumps = {rank: dump([operation(3, group=PAIR, ended=True)], {PAIR: (0, 1)}) for rank in (0, 1)}
    dumps |= {2: dump([operation(3, group=PAIR)], {PAIR: (2, 3)}), 3: dump([], {PAIR: (2, 3)})}
    found = job(write(tmp_path, dumps))
    assert [(each.group.ranks, each.missing) for each in found.unended] == [((2, 3), (3,))]
    assert found.causes() == ([3], [])


def test_members_of_a_group_come_from_the_dumps_that_have_them(tmp_path: Path) -> None:
    """Gloo's dumps lack the ranks of groups. Ranks that entered a group are its members; the default group has all."""
    dumps = {rank: dump([operation(1, group=PAIR, ended=True), operation(2)], {}) for rank in (0, 1)}
    found = job(write(tmp_path, dumps | {2: dump([], {})}))
    assert found.group(0, "1").ranks == (0, 1)
    assert found.group(0, "0").ranks == (0, 1, 2)
    assert found.causes() == ([2], [])


def test_status_of_a_group_counts_sends_with_the_rest(tmp_path: Path) -> None:
    """The status of a group counts sends as well: rank 1 had entered 9 sends, but not all-reduce 3."""
    groups = {DEFAULT: (0, 1)}
    sends = operation(2, "nccl:send 1->0", ended=True)
    waiting = dump([operation(2, "nccl:recv 0<-1", ended=True), operation(3)], groups, {"0": (3, 9)})
    found = job(write(tmp_path, {0: waiting, 1: dump([sends], groups, {"0": (9, 9)})}))
    assert [each.missing for each in found.unended] == [(1,)]


def test_status_of_a_rank_without_entries_is_used(tmp_path: Path) -> None:
    """The dumps contain only unended operations. Rank 1 had entered the operation, but its dump has no entry for it."""
    groups = {DEFAULT: (0, 1, 2)}
    dumps = {0: dump([operation(7)], groups, {"0": (7, 6)}), 1: dump([], groups, {"0": (7, 7)})}
    found = job(write(tmp_path, dumps | {2: dump([], groups, {"0": (6, 6)})}))
    assert [each.missing for each in found.unended] == [(2,)]


@st.composite
def jobs(draw: st.DrawFn) -> tuple[int, list[tuple[int, ...]], list[int], dict[int, int], int]:
    """Draw a job: ranks, groups, the order of operations by group, where ranks stop, and how far others run ahead."""
    n = draw(st.integers(2, 6))
    members = st.lists(st.integers(0, n - 1), min_size=2, max_size=n, unique=True).map(
        lambda ranks: tuple(sorted(ranks))
    )
    groups = draw(st.lists(members, min_size=1, max_size=4, unique=True))
    order = draw(st.lists(st.integers(0, len(groups) - 1), min_size=1, max_size=12))
    stopped = draw(st.dictionaries(st.integers(0, n - 1), st.integers(0, len(order)), max_size=n - 1))
    return n, groups, order, stopped, draw(st.integers(1, 4))


def run(
    n: int, groups: list[tuple[int, ...]], order: list[int], stopped: dict[int, int], ahead: int
) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Return the entered and the ended operations of each rank, by their places in the order.

    A rank enters up to `ahead` operations beyond its first one that has not ended, as programs run ahead of a GPU. An
    operation ends when all have entered it, and all operations before it have ended on each of its ranks.
    """
    mine = {r: [i for i, g in enumerate(order) if r in groups[g]] for r in range(n)}
    limit = {r: [i for i in mine[r] if i < stopped.get(r, len(order))] for r in range(n)}
    ended: set[int] = set()
    while True:
        entered = {}
        for r in range(n):
            first = next((k for k, i in enumerate(limit[r]) if i not in ended), len(limit[r]))
            entered[r] = limit[r][: first + ahead]
        more = {
            i
            for i, g in enumerate(order)
            if i not in ended
            and all(i in entered[r] for r in groups[g])
            and all(j in ended for r in groups[g] for j in mine[r] if j < i)
        }
        if not more:
            return entered, {r: [i for i in entered[r] if i in ended] for r in range(n)}
        ended |= more


@given(jobs())
def test_causes_are_the_stopped_ranks_for_which_others_wait(
    drawn: tuple[int, list[tuple[int, ...]], list[int], dict[int, int], int],
) -> None:
    n, groups, order, stopped, _ = drawn
    entered, ended = run(*drawn)
    number = {i: 1 + order[:i].count(g) for i, g in enumerate(order)}
    names = [(str(g + 1), f"group {g}") for g in range(len(groups))]
    configured = dict(zip(names, groups, strict=True))
    dumps = {
        r: dump(
            [
                operation(number[i], group=names[order[i]], ended=i in ended[r], record_id=i)
                for i in entered[r]
            ],
            {name: ranks for name, ranks in configured.items() if r in ranks},
        )
        for r in range(n)
    }
    with tempfile.TemporaryDirectory() as folder:
        found = job(write(Path(folder), dumps))
        causes, rings = found.causes()
        unended = {(each.group.name, each.number): each.missing for each in found.unended}
    assert rings == []
    blocking = {r for r in stopped if any(r in groups[g] for g in order[stopped[r] :])}
    assert set(causes) <= blocking
    assert bool(causes) == any(set(entered[r]) - set(ended[r]) for r in range(n))
    for r in range(n):
        for i in set(entered[r]) - set(ended[r]):
            missing = tuple(o for o in groups[order[i]] if i not in entered[o])
            assert unended[str(order[i] + 1), number[i]] == missing
