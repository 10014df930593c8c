"""Diagnosis of hangs: which ranks had not entered which operation, and for which ranks the others wait."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import workbench as wb
from tests.support.flight_dumps import DEFAULT, dump, four, operation, write
from tests.support.synthetic_recordings import SHARED
from workbench.analysis.recordings.hangs import hang as module
from workbench.analysis.recordings.hangs.hang import Hang
from workbench.cli.main import cli
from workbench.core.base.settings import SettingError

FIRST, SECOND = ("1", "first"), ("2", "second")


def found(folder: Path) -> Hang:
    result = wb.diagnose(folder)
    assert isinstance(result, Hang)
    return result


@pytest.mark.parametrize("as_json", [False, True])
def test_diagnose_names_the_rank_that_had_not_entered(tmp_path: Path, as_json: bool) -> None:
    hang = found(four(tmp_path / "stuck", as_json))
    assert hang.culprits == (2,)
    assert hang.waiting == (0, 1, 3)
    assert [(each.number, each.missing) for each in hang.unended] == [(3, (2,))]
    assert "stuck: a hang; 3 of 4 ranks wait in operations that have not ended" in str(hang)
    assert "all_reduce 3 of process group 0 (default_pg): ranks 0, 1 and 3 entered, rank 2 had not" in str(
        hang
    )
    assert list(hang.missing) == [2]


def test_card_names_the_ranks_the_operation_and_what_to_do(tmp_path: Path) -> None:
    hang = found(four(tmp_path / "<stuck>"))
    html = hang._repr_html_()
    assert "<stuck>" not in html
    assert "&lt;stuck&gt;" in html
    assert hang.headline == "The job waits for rank 2"
    facts = [(fact.about, fact.value, fact.note) for fact in hang.facts]
    assert facts == [
        ("Who", "Rank 2", "in no operation"),
        ("Waiting", "3 of 4 ranks", "ranks 0, 1 and 3"),
        ("Since", "all_reduce 3", "ranks 0, 1 and 3 entered"),
    ]
    assert hang.advice.startswith("look at the log and the stack of rank 2")


def test_card_of_ended_operations_is_that_there_is_no_hang(tmp_path: Path) -> None:
    whole = {rank: dump([operation(1, ended=True)], {DEFAULT: range(3)}) for rank in range(3)}
    hang = found(write(tmp_path / "fine", whole))
    assert hang.headline == "No hang: every operation of 3 ranks has ended"
    assert [fact.value for fact in hang.facts] == ["0 of 3 ranks"]
    assert hang.advice == "nothing"


def test_every_cause_has_a_label_and_an_advice() -> None:
    kinds = set(
        re.findall(r'HangCause\(\s*\(?[a-z(),]+\)?,\s*"([a-z ]+)"', Path(module.__file__).read_text())
    )
    assert kinds == set(module.CAUSE_LABELS) == set(module.ADVICE)


def test_diagnose_command_prints_a_hang(tmp_path: Path) -> None:
    folder = four(tmp_path / "stuck")
    shown = CliRunner().invoke(cli, ["diagnose", str(folder)])
    assert shown.exit_code == 0, shown.output
    assert shown.output.strip() == str(wb.diagnose(folder))
    wrong = CliRunner().invoke(cli, ["diagnose", str(folder), "--picture", str(tmp_path / "p.html")])
    assert "there are no costs to draw" in str(wrong.exception)


def test_load_refers_to_the_diagnosis(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"flight recorder, which has no times of steps; wb.diagnose"):
        wb.traces.load(four(tmp_path / "stuck"))


def test_diagnose_of_dumps_whose_operations_have_ended_is_no_hang(tmp_path: Path) -> None:
    whole = {rank: dump([operation(1, ended=True)], {DEFAULT: range(3)}) for rank in range(3)}
    hang = found(write(tmp_path / "fine", whole))
    assert (hang.culprits, hang.waiting, hang.unended) == ((), (), ())
    assert str(hang) == "fine: no hang; every operation in the dumps of 3 ranks has ended"


def test_diagnose_follows_waits_through_other_groups(tmp_path: Path) -> None:
    """Ranks 0 and 1 wait for 2 in one group, 2 waits for 3 in another: 3 is the cause, though 2 is missing as well."""
    groups = {FIRST: (0, 1, 2), SECOND: (2, 3)}
    waiting = {rank: dump([operation(5, group=FIRST)], groups) for rank in (0, 1)}
    waiting |= {2: dump([operation(4, group=FIRST, ended=True), operation(9, group=SECOND)], groups)}
    hang = found(write(tmp_path, waiting | {3: dump([operation(8, group=SECOND, ended=True)], groups)}))
    assert hang.culprits == (3,)
    assert hang.missing.keys() == {2, 3}


def test_diagnose_follows_sends_and_receives(tmp_path: Path) -> None:
    """Rank 0 receives from 2, which is at an all-reduce that 3 has not entered.

    The names of sends and receives have numbers of ranks within their group.
    """
    groups = {FIRST: (0, 2), SECOND: (2, 3)}
    first = dump([operation(7, "nccl:recv 0<-1", FIRST)], groups)
    second = dump([operation(1, group=SECOND), operation(6, "nccl:send 1->0", FIRST, record_id=2)], groups)
    hang = found(write(tmp_path, {0: first, 2: second, 3: dump([], {SECOND: (2, 3)}, {"2": (0, 0)})}))
    assert hang.culprits == (3,)
    assert hang.waiting == (0, 2)


def test_diagnose_of_a_send_that_nobody_receives(tmp_path: Path) -> None:
    groups = {FIRST: (0, 1)}
    hang = found(
        write(tmp_path, {0: dump([operation(1, "nccl:send 0->1", FIRST)], groups), 1: dump([], groups)})
    )
    assert hang.culprits == (1,)
    assert hang.causes[0].what == "stopped"


def test_diagnose_of_operations_in_different_orders(tmp_path: Path) -> None:
    groups = {FIRST: (0, 1), SECOND: (0, 1)}
    dumps = {0: dump([operation(1, group=FIRST)], groups), 1: dump([operation(1, group=SECOND)], groups)}
    hang = found(write(tmp_path, dumps))
    assert [(cause.what, cause.ranks) for cause in hang.causes] == [("ring", (0, 1))]
    assert "they call operations in different orders: rank 0 is in all_reduce 1 of process group 1" in str(
        hang
    )


def test_diagnose_of_different_operations_under_one_number(tmp_path: Path) -> None:
    groups = {DEFAULT: range(3)}
    names = {0: "nccl:all_reduce", 1: "nccl:all_reduce", 2: "nccl:broadcast"}
    hang = found(write(tmp_path, {rank: dump([operation(4, name)], groups) for rank, name in names.items()}))
    assert hang.causes[0].what == "inside"
    assert "they call different operations: nccl:all_reduce (ranks 0 and 1), nccl:broadcast (rank 2)" in str(
        hang
    )


def test_diagnose_of_a_rank_whose_operation_has_ended_for_the_others(tmp_path: Path) -> None:
    groups = {DEFAULT: range(3)}
    ended = dump([operation(4, ended=True)], groups)
    hang = found(write(tmp_path, {0: ended, 1: ended, 2: dump([operation(4)], groups)}))
    assert [(cause.what, cause.ranks) for cause in hang.causes] == [("end not seen", (2,))]
    assert "rank 2: is still in all_reduce 4" in str(hang)
    assert "which has ended for ranks 0 and 1" in str(hang)


def test_diagnose_of_a_broadcast_that_has_ended_for_its_sender_only(tmp_path: Path) -> None:
    """A sender may finish before others begin, which is not a sign of a stopped GPU."""
    groups = {DEFAULT: range(2), SECOND: (1, 2)}
    sender = dump([operation(4, "nccl:broadcast", ended=True)], groups)
    behind = dump([operation(1, group=SECOND), operation(4, "nccl:broadcast", record_id=2)], groups)
    hang = found(write(tmp_path, {0: sender, 1: behind, 2: dump([], groups, {"2": (0, 0)})}))
    assert hang.culprits == (2,)


def test_diagnose_of_a_rank_without_a_dump(tmp_path: Path) -> None:
    groups = {DEFAULT: range(3)}
    hang = found(write(tmp_path, {rank: dump([operation(1)], groups) for rank in (0, 2)}))
    assert [(cause.what, cause.ranks) for cause in hang.causes] == [("no dump", (1,))]
    assert "ranks 0 and 2 wait for it, and its dump is missing" in str(hang)
    (tmp_path / "nccl_trace_rank_2").unlink()
    assert "rank 1: rank 0 waits for it, and its dump is missing" in str(found(tmp_path))
    assert hang.silent == (1,)
    assert "left out: rank 1, without a dump" in str(hang)


def test_diagnose_shows_where_a_stopped_rank_was_last(tmp_path: Path) -> None:
    groups = {DEFAULT: range(2)}
    frames = [
        {"name": "all_reduce", "filename": "/lib/torch/distributed/distributed_c10d.py", "line": 3},
        {"name": "main", "filename": "/home/me/train.py", "line": 41},
    ]
    last = dump([operation(1, ended=True, frames=frames)], groups)
    hang = found(write(tmp_path, {0: dump([operation(1, ended=True), operation(2)], groups), 1: last}))
    assert "its last operation was all_reduce in train.py, line 41" in str(hang)


# each "_2nd" dump is in the same public repository
@pytest.mark.parametrize("name", ["gpu_error_1st", "gpu_error_2nd", "lock_gil_1st", "lock_gil_2nd"])
def test_diagnose_names_the_injected_faults_of_public_dumps(name: str) -> None:
    folder = SHARED / "flight_recorder" / name
    if not folder.is_dir():
        pytest.skip(f"{name} of NVIDIA/nvidia-resiliency-ext, tests/attribution/unit/fr_traces, is not here")
    faults = re.findall(r"^Rank (\d+)", (folder / "fault_injection.log").read_text(), re.MULTILINE)
    assert found(folder).culprits == tuple(sorted(map(int, faults)))


_HANGS = """
import datetime, os, sys, time
os.environ["TORCH_FR_BUFFER_SIZE"] = "200"
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

def rank(rank, folder):
    store = dist.FileStore(folder + "/store", 3)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=3, timeout=datetime.timedelta(seconds=60))
    for _ in range(4):
        dist.all_reduce(torch.ones(3))
    if rank != 1:
        late = dist.all_reduce(torch.ones(9), async_op=True)
    open(f"{folder}/pickles/trace_rank_{rank}", "wb").write(_dump_fr_trace(True, True, False))
    open(f"{folder}/json/trace_rank_{rank}.json", "wb").write(_dump_fr_trace_json(True, False))
    open(f"{folder}/done{rank}", "w")
    while not all(os.path.exists(f"{folder}/done{other}") for other in range(3)):
        time.sleep(0.05)
    os._exit(0)

if __name__ == "__main__":
    mp.spawn(rank, (sys.argv[1],), 3)
"""


@pytest.mark.slow
@pytest.mark.mpi
def test_diagnose_of_dumps_that_pytorch_wrote(tmp_path: Path) -> None:
    import subprocess
    import sys

    pytest.importorskip("torch", reason="PyTorch is not installed; it writes the dumps")
    for name in ("pickles", "json"):
        (tmp_path / name).mkdir()
    script = tmp_path / "hangs.py"
    script.write_text(_HANGS)
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True, timeout=300)
    for name in ("pickles", "json"):
        hang = found(tmp_path / name)
        assert hang.culprits == (1,)
        assert [(each.name, each.number, each.missing) for each in hang.unended] == [
            ("gloo:all_reduce", 5, (1,))
        ]
