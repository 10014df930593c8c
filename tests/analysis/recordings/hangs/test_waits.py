"""Waits between ranks: groups of one name, unknown members, and the status of groups with sends."""

from __future__ import annotations

from pathlib import Path

from tests.support.flight_dumps import DEFAULT, dump, operation, write
from workbench.analysis.recordings.hangs.dumps import read_dumps
from workbench.analysis.recordings.hangs.waits import Job

PAIR = ("1", "pair")


def job(folder: Path) -> Job:
    return Job(read_dumps(folder))


def test_groups_of_one_name_differ_by_their_ranks(tmp_path: Path) -> None:
    """Ranks 0 and 1 call their group "1", and so do ranks 2 and 3. One of them hangs."""
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
    """The status of a group with sends has their number: rank 1 had entered 9 sends, but no all-reduce 3."""
    groups = {DEFAULT: (0, 1)}
    sends = operation(2, "nccl:send 1->0", ended=True)
    waiting = dump([operation(2, "nccl:recv 0<-1", ended=True), operation(3)], groups, {"0": (3, 9)})
    found = job(write(tmp_path, {0: waiting, 1: dump([sends], groups, {"0": (9, 9)})}))
    assert [each.missing for each in found.unended] == [(1,)]


def test_status_of_a_rank_without_entries_is_used(tmp_path: Path) -> None:
    """The dumps have unended operations only. Rank 1 had entered the operation, although it has no entry for it."""
    groups = {DEFAULT: (0, 1, 2)}
    dumps = {0: dump([operation(7)], groups, {"0": (7, 6)}), 1: dump([], groups, {"0": (7, 7)})}
    found = job(write(tmp_path, dumps | {2: dump([], groups, {"0": (6, 6)})}))
    assert [each.missing for each in found.unended] == [(2,)]
