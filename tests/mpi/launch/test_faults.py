"""Faults of real runs: a random sample of the cases of `make faults`, by a fixed seed."""

from __future__ import annotations

import random

import psutil
import pytest

import workbench as wb
from tests.support import fault_cases
from tests.support.sampled_cases import sampled_test
from workbench.mpi.clusters.warm import POOLS
from workbench.mpi.running.real import start_real

pytestmark = [pytest.mark.mpi, pytest.mark.xdist_group("mpi")]


def held(tally: fault_cases.Tally) -> None:
    assert (tally.wrong, tally.hanging) == (0, 0), str(tally)


# Cases that leave the ranks alive come first, so that all use the same ranks. Cases that kill ranks or close pools
# follow.


@sampled_test("faults", 0, 3, 2)
def test_fault_stopped_workers_continue() -> None:
    held(fault_cases.stops(4, random.Random(3)))


def test_fault_damaged_messages_are_refused_and_attributed() -> None:
    held(fault_cases.damage(20, random.Random(4)))


@pytest.mark.parametrize("runs", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_fault_deaths_up_to_s_change_nothing(runs: int) -> None:
    held(fault_cases.deaths(runs, random.Random(1)))


@sampled_test("faults", 1, 3, 2)
def test_fault_more_deaths_are_named() -> None:
    held(fault_cases.too_many(1, random.Random(2)))


@sampled_test("faults", 2, 3, 2)
def test_fault_master_killed_while_writing_leaves_a_valid_checkpoint() -> None:
    held(fault_cases.torn_checkpoints(1, random.Random(5)))


@pytest.mark.slow
def test_fault_full_disk_is_reported() -> None:
    held(fault_cases.full_disks(1, random.Random(6)))


def test_fault_closed_pools_leave_nothing() -> None:
    run = start_real(wb.Experiment(scheme="UMW", workers=4, rounds=3))  # on existing ranks
    run.result()
    assert run.pool is not None
    pids = [pid for pid, _ in run.pool.places]
    POOLS.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_fault_failed_starts_give_the_reason() -> None:
    held(fault_cases.starts(1, random.Random(7)))


@pytest.mark.slow
def test_fault_cases_leave_nothing() -> None:
    held(fault_cases.stops(2, random.Random(8)))
    assert (fault_cases.leftovers(), fault_cases.memory_left()) == (0, 0)
