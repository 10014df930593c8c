"""Logs of steps: forms of text, JSON lines, one file for each rank, and errors of one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import workbench as wb
from tests.support.profiler_files import refused

STEPS = 24


def took(rank: int, step: int) -> float:
    """Return the seconds of a step: rank 2 is slow."""
    return (0.7 if rank == 2 else 0.4) + 0.01 * ((3 * step + rank) % 5)


def one(path: Path, line: Callable[[int, int, float], str]) -> Path:
    path.write_text(
        "loading the model\n" + "".join(line(r, t, took(r, t)) for t in range(STEPS) for r in range(4))
    )
    return path


def each(folder: Path, name: str, line: Callable[[int, int, float], str], first: str = "") -> Path:
    for r in range(4):
        (folder / name.format(r)).parent.mkdir(parents=True, exist_ok=True)
        (folder / name.format(r)).write_text(first + "".join(line(r, t, took(r, t)) for t in range(STEPS)))
    return folder


def named(path: Path) -> None:
    found = wb.traces.load(path)
    assert found.table().shape == (STEPS, 4)
    assert found.table().iloc[3].round(4).tolist() == [round(took(r, 3), 4) for r in range(4)]
    assert [culprit.who for culprit in wb.diagnose(path).culprits] == ["worker 2"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "line",
    [
        lambda r, t, s: (
            f"[rank{r}]:2026-11-26 12:00:01 INFO step {t}/100 loss 1.5e-3 step_time: {1e3 * s:.1f} ms\n"
        ),
        lambda r, t, s: f"rank={r} step={t} time={s:.4f}s lr=1e-4\n",
        lambda r, t, s: f"[default{r}]:step: {t} | step_time_ms={1e3 * s:.2f} | data_time_ms=3.0\n",
        lambda r, t, s: f"Rank {r}, Epoch 0, Batch {t}, Loss 0.31, took {s:.3f} seconds\n",
        lambda r, t, s: (
            f"global_rank: {r} local_rank: 0 global step {t} forward time: 12 ms, iteration time: {s:.4f} s\n"
        ),
        lambda r, t, s: f"INFO:train:rank {r}: iter {t}: dt: {1e6 * s:.0f}us\n",
    ],
)
def test_load_of_one_log_of_all_ranks(tmp_path: Path, line: Callable[[int, int, float], str]) -> None:
    named(one(tmp_path / "train.log", line))


def test_load_of_the_logs_of_megatron(tmp_path: Path) -> None:
    def line(rank: int, step: int, seconds: float) -> str:
        head = f" [2026-11-26 12:00:01] iteration {step:8d}/  500000 | consumed samples: {32 * step:12d} |"
        return f"{head} elapsed time per iteration (ms): {1e3 * seconds:.1f} | learning rate: 1.5E-06 |\n"

    named(each(tmp_path, "log_rank{}.txt", line))


def test_load_of_the_logs_of_torchrun(tmp_path: Path) -> None:
    """With --log-dir, torchrun writes RANK/stdout.log; nanoGPT's lines have no rank."""
    named(
        each(
            tmp_path,
            "{}/stdout.log",
            lambda r, t, s: f"iter {t}: loss 10.9, time {1e3 * s:.2f}ms, mfu 1.00%\n",
        )
    )


def test_load_of_json_lines(tmp_path: Path) -> None:
    def line(rank: int, step: int, seconds: float) -> str:
        times = {"rank": rank, "global_step": step, "step_time_ms": 1e3 * seconds, "loss": 1.0}
        return f"{json.dumps(times)}\n{json.dumps({'rank': rank, 'global_step': step, 'lr': 0.1})}\n"

    file = one(tmp_path / "train.jsonl", line)
    with file.open("a") as out:
        out.write('{"rank": 3, "global_st')  # a line that is being written
    named(file)


def test_load_of_json_lines_with_other_names(tmp_path: Path) -> None:
    file = one(tmp_path / "a.jsonl", lambda r, t, s: json.dumps({"who": r, "step": t, "t": s}) + "\n")
    found = wb.traces.load(file, worker="who", seconds="t", unit="s")
    assert found.table().shape == (STEPS, 4)


def test_load_of_a_table_for_each_rank(tmp_path: Path) -> None:
    first = "step,step_time_s,loss\n"
    named(each(tmp_path, "rank{}.csv", lambda r, t, s: f"{t},{s},1.0\n", first))


def test_load_of_a_table_with_the_names_of_logs(tmp_path: Path) -> None:
    file = tmp_path / "times.csv"
    lines = [f"{r},h{r // 2},{t},{1e3 * took(r, t)}\n" for t in range(STEPS) for r in range(4)]
    file.write_text("rank,hostname,global_step,step_time_ms\n" + "".join(lines))
    named(file)
    assert set(wb.traces.load(file).frame["host"]) == {"h0", "h1"}


def test_load_of_a_table_prefers_worker_to_rank(tmp_path: Path) -> None:
    file = tmp_path / "times.csv"
    file.write_text("worker,rank,step,seconds\na,0,0,1\nb,0,0,2\n")
    assert list(wb.traces.load(file).table()) == ["a", "b"]


def test_load_numbers_the_steps_of_epochs_through(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    file.write_text(
        "".join(
            f"rank {r} epoch {e} step {t} took 0.{e + 1}{t} s\n"
            for e in range(2)
            for t in (1, 2)
            for r in range(2)
        )
    )
    assert wb.traces.load(file).table()[0].tolist() == [0.11, 0.12, 0.21, 0.22]


def test_load_of_a_log_takes_the_unit_that_is_given(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    file.write_text("rank 0 step 1 time: 250\nrank 1 step 1 time: 300\n")
    refused(file, "train.log', line 1: time = 250: has no unit; give unit = 's' or 'ms'")
    assert wb.traces.load(file, unit="ms").table().to_numpy().tolist() == [[0.25, 0.3]]
    file.write_text("rank 0 step 1 time: 250 ms\n")
    with pytest.raises(
        wb.SettingError, match="line 1: unit = 's': the time has the unit 'ms'; leave one of them out"
    ):
        wb.traces.load(file, unit="s")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "step 1 took 0.2 s\n",
            "line 1: has no rank; log rank=N with every step, or give a file for each rank",
        ),
        (
            "rank 0 step 1 time 0.2 s, elapsed 3 s\n",
            "line 1: has the times 'time', 'elapsed'; which one is the step's?",
        ),
        (
            "rank 0 step 1 took 0.2 s\nrank 0 step 1 took 0.2 s\n",
            "line 2: step 1 of rank 0 is there twice; give the log of one run",
        ),
        ('{"step": 1, "step_time_s": 0.2}\n', "line 1: has no rank"),
        (
            '{"rank": 0, "step": 1, "step_time_s": 0.2}\n{"rank": 0,\n{"rank": 1}\n',
            "line 2: '{\"rank\": 0,': is not JSON",
        ),
        ('{"rank": 0, "step": 1.5, "step_time_s": 0.2}\n', "line 1: step = 1.5: steps are whole numbers"),
        ('{"rank": 0, "step": 1, "step_time_s": "long"}\n', "line 1: step_time_s = long: times are finite"),
        ('{"rank": 0, "step": 1, "duration": 3}\n', "'duration' does not say its unit"),
    ],
)
def test_load_of_a_log_names_file_and_line(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "train.log"
    file.write_text(text)
    refused(file, "train.log", why)


def test_load_passes_over_lines_without_a_time_of_the_step(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    lines = "rank {0} step {1} saved, eval time: 3 s\nrank {0} step {1} took 0.2 s\n"
    lines += "12:00:01 rank {0} done at time 12:00:02\n"
    file.write_text("".join(lines.format(r, t) for t in range(3) for r in range(2)))
    assert wb.traces.load(file).table().to_numpy().tolist() == [[0.2, 0.2]] * 3


def test_other_text_is_no_log_of_steps(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("a step back in time, 2026-11-26\nstep 1.5 time: 12:00\n")
    refused(tmp_path / "notes.txt", "is not of a known kind")
