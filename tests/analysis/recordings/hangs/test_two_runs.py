"""Dumps of two runs in one folder are refused, although their versions and process groups are equal."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.support.flight_dumps import DEFAULT, dump, operation, write
from tests.support.synthetic_recordings import SHARED
from workbench.core.base.plain_pickle import parse_pickle
from workbench.core.base.settings import SettingError

RANKS = 3
START_NS, STEP_NS = 1_700_000_000 * 10**9, 10**9
HOUR_NS = 3600 * 10**9


def rank_dump(late_ns: int = 0, first: int = 1, stopped: bool = False, seen: bool = True) -> dict[str, Any]:
    """Return the dump of a rank that has ended three operations, and waits in the next one unless it has stopped.

    `late_ns`: added to all times. `first`: number of the first operation. `seen`: whether the dump has the times at
    which operations ended.
    """

    def entry(place: int) -> dict[str, Any]:
        begun = START_NS + late_ns + place * STEP_NS
        end = begun + STEP_NS // 2 if seen and place < 3 else None
        return operation(
            first + place, ended=place < 3, time_created_ns=begun, time_discovered_completed_ns=end
        )

    return dump([entry(place) for place in range(3 if stopped else 4)], {DEFAULT: range(RANKS)})


def folder(path: Path, *dumps: dict[str, Any]) -> Path:
    return write(path / "dumps", dict(enumerate(dumps)))


@pytest.mark.parametrize("late_s", [-50, 0, 3, 50])
def test_clocks_of_hosts_may_differ(tmp_path: Path, late_s: int) -> None:
    some = rank_dump(), rank_dump(late_s * 10**9), rank_dump(stopped=True)
    assert wb.diagnose(folder(tmp_path, *some)).culprits == (2,)


@pytest.mark.parametrize("late_ns", [-HOUR_NS, 120 * 10**9, HOUR_NS])
@pytest.mark.parametrize(("stopped", "seen"), [(False, False), (False, True), (True, True)])
def test_dump_of_another_run_is_refused(tmp_path: Path, late_ns: int, stopped: bool, seen: bool) -> None:
    some = rank_dump(), rank_dump(), rank_dump(late_ns, stopped=stopped, seen=seen)
    with pytest.raises(
        SettingError, match=r"nccl_trace_rank_\d.* began \d+ s after .*nccl_trace_rank_\d.* of one run"
    ):
        wb.diagnose(folder(tmp_path, *some))


@pytest.mark.parametrize("first", [1, 5000])
def test_dump_whose_operations_have_far_smaller_numbers_is_refused(tmp_path: Path, first: int) -> None:
    """Without times, only the numbers of operations differ."""
    some = [rank_dump(first=2000, seen=False) for _ in range(2)] + [rank_dump(first=first, seen=False)]
    rank = 2 if first == 1 else r"[01]"
    with pytest.raises(
        SettingError, match=rf"has ended, but rank {rank} has entered only \d+ of its operations"
    ):
        wb.diagnose(folder(tmp_path, *some))


@pytest.mark.parametrize("late_s", [0, -900, 900])
def test_public_dumps_are_of_one_run_unless_a_time_is_changed(tmp_path: Path, late_s: int) -> None:
    """None of their operations has ended. The longest timeout is ten minutes."""
    public = SHARED / "flight_recorder" / "gpu_error_1st"
    if not public.is_dir():
        pytest.skip("the public dumps are not here")
    shutil.copytree(public, tmp_path / "dumps")
    file = tmp_path / "dumps" / "_dump_3"
    fields = parse_pickle(file.read_bytes())
    for entry in fields["entries"]:
        entry["time_created_ns"] += late_s * 10**9
    file.write_bytes(pickle.dumps(fields, 2))
    if not late_s:
        assert wb.diagnose(tmp_path / "dumps").culprits == (12, 14)
        return
    with pytest.raises(
        SettingError, match=r"_dump_\d+ began \d+ s after .*_dump_\d+ had reached its timeout"
    ):
        wb.diagnose(tmp_path / "dumps")
