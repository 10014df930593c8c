"""Folders of `wb.record`: read while a job runs, diagnosed, and refused with file and reason."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.support.recorder_folders import ABOUT, EXCHANGE_S, OWN, job, wait, write
from workbench.analysis.recorder.steps import PROBE_BYTES, ROW, Place, next_attempt, write_steps
from workbench.analysis.recordings.sources import recorder as source
from workbench.cli.diagnose import diagnose as command
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array


def linked(
    messages: float, more_ms: float, rest_ms: float, noisy: int | None = None
) -> tuple[list[Array], dict[str, Any], float]:
    """Return steps of four ranks, notes about probes, and the ratio of steps with and without the slow link 2 -> 3.

    A message takes 1 ms, 2 ms both ways, and 1 ms + `more_ms` on the slow link. The exchange also takes `rest_ms`. At
    probe `noisy`, all other messages take as long as that on the slow link.
    """
    found, usual, slow = job(), 2e-3, (1 + more_ms) / 1e3
    for rows in found:
        rows["exchange"] += messages * slow + rest_ms / 1e3 - EXCHANGE_S
    lasted = sum(found[0][phase] for phase in (*OWN, "exchange"))[1:].sum()
    repaired = lasted - (len(found[0]) - 1) * messages * (slow - usual)
    probes = [
        [
            (at, slow if rank == 2 or at == noisy else 1e-3, slow if rank in (1, 2) else usual)
            for at in range(5, 45, 10)
        ]
        for rank in range(4)
    ]
    about = {"probes": probes, "gradient_bytes": messages / 1.5 * PROBE_BYTES}
    return found, about, lasted / repaired


@settings(max_examples=12, deadline=None)
@given(st.floats(1, 20), st.floats(5, 40), st.floats(0, 30))
def test_recorder_folder_gives_the_ratio_of_a_slow_link(
    messages: float, more_ms: float, rest_ms: float
) -> None:
    ranks, about, ratio = linked(messages, more_ms, rest_ms)
    with tempfile.TemporaryDirectory() as folder:
        found = wb.diagnose(write(Path(folder) / "steps", ranks, **about))
    assert [one.who for one in found.culprits] == ["the link from worker 2 to worker 3"]
    assert found.slowdown == pytest.approx(ratio, rel=1e-6)


def seen(seconds: float, buckets: int, overlap: float) -> float:
    """Return the end of a queue of equal all-reduces, after the last one is ready. The first is `overlap` s earlier."""
    end = -overlap
    for ready in np.linspace(-overlap, 0, buckets):
        end = max(end, float(ready)) + seconds / buckets
    return end


@settings(max_examples=40, deadline=None)
@given(
    st.floats(2, 20), st.floats(10, 40), st.floats(0, 1), st.floats(0, 8), st.integers(1, 6), st.booleans()
)
def test_recorder_folder_gives_the_ratio_of_a_slow_link_whose_messages_overlap_with_the_backward_pass(
    messages: float, more_ms: float, rest: float, overlap: float, buckets: int, known: bool
) -> None:
    """All-reduces are sent one after the other, as soon as they are ready and the one before has ended.

    `rest`: other time of the exchange, and `overlap`: both are shares of the time of the usual messages. `known`:
    whether the bytes of the gradients are known. If not, the ratio is too low rather than too high.
    """
    found, slow, usual = job(), (1 + more_ms) / 1e3, messages * 2e-3
    hidden = usual * (overlap if known else min(overlap, 1.0)) * (buckets > 1)
    with_fault, without = (seen(each, buckets, hidden) + usual * rest for each in (messages * slow, usual))
    for rows in found:
        rows["exchange"] += with_fault - EXCHANGE_S
    own = np.max([sum(rows[phase] for phase in OWN) for rows in found], axis=0)[1:].mean()
    best = (own + with_fault) / (own + without)
    slow_ranks = {2: slow, 1: slow if known else 2e-3}
    probes = [
        [(at, slow if rank == 2 else 1e-3, slow_ranks.get(rank, 2e-3)) for at in range(5, 45, 10)]
        for rank in range(4)
    ]
    about = {"probes": probes, "gradient_bytes": known * messages / 1.5 * PROBE_BYTES, "last": 1 / buckets}
    with tempfile.TemporaryDirectory() as folder:
        ratio = wb.diagnose(write(Path(folder) / "steps", found, **about, overlap=hidden)).slowdown
    assert ratio <= best * (1 + 1e-6)
    assert not known or ratio == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize(("cores", "used", "waits"), [(1, 0.02, 0.0), (2, 0.035, 0.2), (4, 0.045, 0.0)])
def test_recorder_folder_takes_a_repaired_link_to_leave_the_time_of_shared_processors(
    tmp_path: Path, cores: int, used: float, waits: float
) -> None:
    """Four ranks need `used` seconds of a processor each, so a step takes at least 4 `used` / `cores` with any link.

    Of two processors, each is idle in a fifth of the time that the step would take if ranks did not share them.
    """
    ranks, about, _ = linked(10.0, 30.0, 0.0)
    for rows in ranks:
        rows["processor"] = used
    own = np.max([sum(rows[phase] for phase in OWN) for rows in ranks], axis=0)[1:].mean()
    alone = own + 10 * 2e-3
    assert (alone < 4 * used / cores) == (cores < 4)
    found = wb.diagnose(write(tmp_path / "steps", ranks, **about, cores=cores))
    repaired = max(alone, 4 * used / cores + waits * alone)
    assert found.slowdown == pytest.approx((own + 10 * 31e-3) / repaired, rel=1e-6)


@pytest.mark.parametrize(
    ("hosts", "cpus", "cores"),
    [
        ("aaaa", [[0], [1], [2], [3]], 4),  # each rank is bound to a core of its own
        ("aaaa", [[0, 1]] * 4, 2),
        ("aabb", [[0], [1], [0], [1]], 2),
        ("aabb", [[0, 1, 2, 3]] * 2 + [[0]] * 2, 1),
        ("aaaa", [[]] * 4, 1),  # older files, and systems without this call
    ],
)
def test_recorder_folder_counts_the_cores_that_the_ranks_of_a_host_use_together(
    tmp_path: Path, hosts: str, cpus: list[list[int]], cores: int
) -> None:
    own = [max(len(each), 1) for each in cpus]
    found = wb.traces.load(write(tmp_path / "steps", job(), host=list(hosts), cpus=cpus, cores=own))
    assert found.job().source["cores"] == str(cores)


def test_recorder_folder_names_a_slow_link_despite_a_disturbed_probe(tmp_path: Path) -> None:
    ranks, about, _ = linked(5.0, 20.0, 5.0, noisy=25)
    found = wb.diagnose(write(tmp_path / "steps", ranks, **about))
    assert [one.who for one in found.culprits] == ["the link from worker 2 to worker 3"]


def test_recorder_folder_is_diagnosed_if_a_rank_takes_over_300_times_as_long(tmp_path: Path) -> None:
    found = wb.diagnose(write(tmp_path / "steps", job(backward={2: 30.0})))
    assert [one.who for one in found.culprits] == ["worker 2"]
    assert "worker 2: times are over 300 times" in str(found)


def test_recorder_folder_of_an_older_version_takes_the_exchange_for_messages(tmp_path: Path) -> None:
    """The exchange is then also taken to have as much other time as usual messages: a tenth of the slow ones."""
    ranks = job()
    for rows in ranks:
        rows["exchange"] += 0.05 - EXCHANGE_S
    links = [[(at, 0.02 if rank == 1 else 0.002) for at in (5, 15, 25)] for rank in range(4)]
    found = wb.diagnose(write(tmp_path / "steps", ranks, links=links))
    assert [one.who for one in found.culprits] == ["the link from worker 1 to worker 2"]
    assert found.culprits[0].cost == pytest.approx(0.05 * 0.8 / (0.05 + 0.0374), rel=0.02)


def test_recorder_folder_is_read_by_phase(tmp_path: Path) -> None:
    ranks = job(steps=5)
    found = wb.traces.load(write(tmp_path / "steps", ranks))
    assert found.table().index.tolist() == [1, 2, 3, 4]  # the first step includes the time before the loop
    for rank, rows in enumerate(ranks):
        np.testing.assert_allclose(found.table("compute: backward")[rank], rows["backward"][1:])
        np.testing.assert_allclose(found.table("exchange")[rank], rows["exchange"][1:])
        np.testing.assert_allclose(found.table()[rank], sum(rows[phase] for phase in OWN)[1:])


@pytest.mark.parametrize(
    ("phase", "text"),
    [
        ("data", "in loading its data"),
        ("forward", "in the forward pass"),
        ("backward", "in the backward pass"),
        ("optimiser", "in the optimiser"),
    ],
)
def test_recorder_folder_names_the_slow_rank_and_its_phase(phase: str, text: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "steps", job(**{phase: {2: 0.2}}))
    found = wb.diagnose(folder)
    assert [one.who for one in found.culprits] == ["worker 2"]
    assert text in str(found)
    healthy = sum(OWN.values()) + EXCHANGE_S
    assert found.slowdown == pytest.approx((healthy + 0.2) / healthy, rel=0.03)
    assert all(one.saving <= 1 - 1 / found.slowdown + 0.005 for one in found.mitigations or ())
    printed = CliRunner().invoke(command, [str(folder)])
    assert printed.exit_code == 0, printed.output
    assert "worker 2 costs" in printed.output


def test_recorder_folder_adds_the_slowest_ranks_before_and_after_the_exchange_in_the_forward_pass(
    tmp_path: Path,
) -> None:
    """With BatchNorm, ranks wait twice in a step, and different ranks may be the last."""

    def waiting_twice(slow: float) -> tuple[list[Array], float]:
        ranks, rng = job(steps=400), np.random.default_rng(3)
        for rank, rows in enumerate(ranks):
            for phase in OWN:
                rows[phase] *= rng.uniform(0.5, 1.5, len(rows))
            rows["backward"] += slow * (rank == 2)
        after = np.stack([rows["forward"] + rows["backward"] for rows in ranks])
        before = np.stack([rows["data"] + rows["other"] + rows["optimiser"] for rows in ranks])
        for rank, rows in enumerate(ranks):
            rows["exchange: forward"] = before.max(axis=0) - before[rank] + EXCHANGE_S
            rows["exchange"] = after.max(axis=0) - after[rank] + EXCHANGE_S
        return ranks, float((before.max(axis=0) + after.max(axis=0) + 2 * EXCHANGE_S).mean())

    (slow, with_fault), (_, healthy) = waiting_twice(0.2), waiting_twice(0.0)
    found = wb.diagnose(write(tmp_path / "steps", slow))
    assert [one.who for one in found.culprits] == ["worker 2"]
    assert found.slowdown == pytest.approx(with_fault / healthy, rel=0.01)


def test_recorder_folder_of_a_healthy_job_names_nobody(tmp_path: Path) -> None:
    named = [wb.diagnose(write(tmp_path / str(seed), job(seed=seed))).culprits for seed in range(20)]
    assert not any(named)


@pytest.mark.parametrize("name", ["tokens", "samples"])
def test_recorder_folder_tells_uneven_work_from_a_slow_rank(name: str, tmp_path: Path) -> None:
    def uneven(slow: float) -> Any:
        ranks, rng = job(), np.random.default_rng(1)
        for rank, rows in enumerate(ranks):
            rows[name] = rng.integers(100, 900, len(rows))
            rows["forward"] += 1e-4 * rows[name] + slow * (rank == 1)
        wait(ranks)
        return wb.diagnose(write(tmp_path / f"steps-{slow}", ranks))

    found = uneven(0.0)
    assert [one.who for one in found.culprits] == ["uneven work"]
    assert "as its amount differs" in str(found)
    assert "the same work for every worker would save" in str(found)
    assert uneven(0.1).culprits[0].who == "worker 1"


def test_recorder_folder_tells_a_slow_rank_from_uneven_work(tmp_path: Path) -> None:
    """Tokens differ, but take no time, so that they are not named as the cause."""
    ranks, rng = job(forward={3: 0.05}), np.random.default_rng(1)
    for rows in ranks:
        rows["tokens"] = rng.integers(100, 900, len(rows))
    found = wb.diagnose(write(tmp_path / "steps", ranks))
    assert [one.who for one in found.culprits] == ["worker 3"]


def test_recorder_folder_names_a_slow_link(tmp_path: Path) -> None:
    links = [[[step, 0.02 if rank == 2 else 0.001] for step in range(5, 60, 5)] for rank in range(4)]
    found = wb.diagnose(write(tmp_path / "steps", job(), links=links))
    assert [one.who for one in found.culprits] == ["the link from worker 2 to worker 3"]
    two = [[[step, (0.001, 0.02, 0.03, 0.001)[rank]] for step in range(5, 60, 5)] for rank in range(4)]
    both = wb.diagnose(write(tmp_path / "two", job(), links=two))
    named = {"the link from worker 1 to worker 2", "the link from worker 2 to worker 3"}
    assert {one.who for one in both.culprits} == named
    slower = max(one.cost for one in both.culprits)
    # of the two links, only the slower one makes the exchange longer
    assert both.slowdown == pytest.approx(1 / (1 - slower), rel=0.1)
    few = [each[:2] for each in links]
    assert not wb.diagnose(write(tmp_path / "few", job(), links=few)).culprits


def test_recorder_folder_bounds_promises_by_the_processors(tmp_path: Path) -> None:
    """Four ranks share one core, whose 0.12 s of work limit how much shorter a step can become.

    Without this limit, more would be promised for the case that the slow rank becomes as fast as the others.
    """
    ranks = job(backward={2: 0.2})
    for rows in ranks:
        rows["processor"] = 0.03
    alone, crowded = (
        wb.diagnose(write(tmp_path / f"steps{cores}", ranks, cores=cores)).slowdown for cores in (8, 1)
    )
    assert crowded < alone
    assert crowded == pytest.approx((sum(OWN.values()) + EXCHANGE_S + 0.2) / (4 * 0.03), rel=0.05)


def test_recorder_folder_of_the_newest_attempt_counts(tmp_path: Path) -> None:
    write(tmp_path / "steps", job(backward={1: 0.2}))
    found = wb.diagnose(write(tmp_path / "steps", job(backward={3: 0.2}), attempt=1))
    assert found.culprits[0].who == "worker 3"
    assert "left out: earlier attempts and steps before 1" in str(found)


def test_recorder_folder_leaves_out_ranks_of_an_earlier_attempt(tmp_path: Path) -> None:
    """Rank 3 wrote nothing in the first attempt of the job, so its files of the second one have attempt 0."""
    ranks = job(backward={1: 0.2})
    for rows in ranks:
        rows["ended"] = 1e9 + np.arange(len(rows))
    write(tmp_path / "steps", ranks[:3])
    for rows in ranks:
        rows["ended"] += 1000
    for rank, attempt in ((0, 1), (1, 1), (3, 0)):  # rank 2 does not start again
        write_steps(tmp_path / "steps", Place(rank, attempt, 0), ranks[rank], ABOUT)
    found = wb.traces.load(tmp_path / "steps")
    assert found.table().columns.tolist() == [0, 1, 3]
    assert "rank 2, which ended before the newest attempt" in found.source["left_out"]


@settings(max_examples=15, deadline=None)
@given(
    before=st.integers(2, 4), after=st.integers(2, 4), steps=st.integers(40, 200), gap=st.floats(5, 55),
    skew=st.lists(st.floats(-3, 3), min_size=4, max_size=4), newest_rows=st.booleans(),
)  # fmt: skip
def test_recorder_folder_leaves_out_ranks_that_were_removed_at_a_restart(
    before: int, after: int, steps: int, gap: float, skew: list[float], newest_rows: bool
) -> None:
    """An elastic job starts again with other ranks, soon after its first attempt. Clocks differ by seconds."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        if newest_rows:
            patch.setattr(source, "MAX_ROWS", 4 * 6 * 30)
        for start, ranks in ((1e9, before), (1e9 + 0.2 * steps + gap, after)):
            for rank, rows in enumerate(job(steps, ranks)):
                rows["ended"] = start + 0.2 * np.arange(1, steps + 1) + skew[rank]
                attempt = next_attempt(Path(name), rank)
                for k, part in enumerate(np.array_split(rows, 3)):
                    write_steps(Path(name), Place(rank, attempt, k), part, ABOUT)
        found = wb.traces.load(Path(name))
        assert found.table().columns.tolist() == list(range(after))


def test_recorder_folder_is_limited_to_the_newest_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "MAX_ROWS", 4 * 6 * 20)
    found = wb.traces.load(write(tmp_path / "steps", job()))
    assert found.table().index.tolist() == list(range(40, 60))


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(2, 30), min_size=4, max_size=4))
def test_recorder_folder_counts_steps_that_all_ranks_have(counts: list[int]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        found = wb.traces.load(
            write(Path(name) / "steps", [rows[:n] for rows, n in zip(job(30), counts, strict=True)])
        )
    assert len(found.table().dropna()) == min(counts) - 1


def _text(file: Path) -> None:
    file.write_bytes(b"not an archive")


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-200])


def _array(**arrays: Any) -> Callable[[Path], None]:
    return lambda file: np.savez(file, **arrays)


def _about(**fields: Any) -> Array:
    return np.array(json.dumps({**ABOUT, **fields}))


def _wrong(field: str, value: float) -> Array:
    rows = job(steps=3)[0]
    rows[field][1] = value
    return rows


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (_text, "cannot be read as recorded steps"),
        (_cut, "cannot be read as recorded steps"),
        (_array(steps=np.zeros(3, ROW)), "cannot be read as recorded steps"),
        (_array(steps=np.zeros(3, ROW), about=np.array("{")), "cannot be read as recorded steps"),
        (
            _array(steps=np.zeros(3, ROW), about=_about(host=None, cores="x")),
            "cannot be read as recorded steps",
        ),
        (_array(steps=np.zeros(3, ROW), about=_about(format=2)), "format = 2: this version reads 1"),
        (_array(steps=np.zeros(3), about=_about()), "steps has fields None"),
        (_array(steps=np.zeros(0, ROW), about=_about()), "steps has fields"),
        (_array(steps=_wrong("forward", -1.0), about=_about()), "step 1: forward = -1.0: is not a time"),
        (_array(steps=_wrong("exchange", np.nan), about=_about()), "step 1: exchange = nan: is not a time"),
        (_array(steps=_wrong("ended", np.nan), about=_about()), "step 1: ended = nan: is not a time"),
    ],
)
def test_recorder_files_that_are_damaged_are_refused(
    damage: Callable[[Path], None], why: str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "steps", job(steps=3))
    file = folder / Place(2, 0, 0).name
    damage(file)
    with pytest.raises(SettingError) as found:
        wb.traces.load(folder)
    assert file.name in str(found.value)
    assert why in str(found.value)
    assert "\n" not in str(found.value)


def test_recorder_folder_without_an_exchange_compares_own_times(tmp_path: Path) -> None:
    ranks = job(forward={1: 0.1})
    for rows in ranks:
        rows["exchange"] = 0.0
    found = wb.diagnose(write(tmp_path / "steps", ranks))
    assert found.culprits[0].who == "worker 1"
    own = sum(OWN.values())
    assert found.slowdown == pytest.approx((own + 0.1) / own, rel=0.03)


def test_recorder_folder_with_one_step_asks_to_wait(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no rank has a second step yet"):
        wb.traces.load(write(tmp_path / "steps", job(steps=1)))


def test_recorder_folder_that_is_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="holds no recorded steps"):
        wb.traces.load(tmp_path, source="recorder")
