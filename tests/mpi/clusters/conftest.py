"""Fixtures of clusters: stand-in hosts that are reached by ssh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clusters.ssh_hosts import Hosts, missing, standing
from workbench.mpi.clusters.warm import POOLS


def _standing(folder: Path, count: int) -> Iterator[Hosts]:
    if why := missing():
        pytest.skip(why)
    with standing(folder, count) as hosts:
        yield from _left_alone(hosts)


def _left_alone(hosts: Hosts) -> Iterator[Hosts]:
    """After the test, close all pools, and check that no process is left on the hosts."""
    try:
        yield hosts
    finally:
        POOLS.close()
    left = {host.name: found for host in hosts.hosts if (found := host.commands())}
    assert not left, left


@pytest.fixture(scope="session")
def standing_two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Start two hosts, for all tests."""
    yield from _standing(tmp_path_factory.mktemp("two"), 2)


@pytest.fixture(scope="module")
def two(standing_two: Hosts) -> Iterator[Hosts]:
    """Return two hosts without processes of other modules' tests."""
    yield from _left_alone(standing_two)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Hosts]:
    """Start two hosts that a test may damage."""
    yield from _standing(tmp_path / "pair", 2)


@pytest.fixture
def four(tmp_path: Path) -> Iterator[Hosts]:
    """Start four hosts that a test may damage."""
    yield from _standing(tmp_path / "four", 4)
