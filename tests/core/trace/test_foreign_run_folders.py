"""Foreign run folders: a reader returns or raises one sentence, and never waits."""

from __future__ import annotations

import os
import random
import resource
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import workbench as wb
from workbench.analysis.tables.about import RunNotes
from workbench.core.base.files import SUMS
from workbench.core.problems.data.options import DataError
from workbench.core.trace.layout import ABOUT, FILES, STATUS

pytestmark = pytest.mark.skipif(os.name != "posix", reason="named pipes")
SENTENCES = (wb.SettingError, wb.RunError, DataError)
READERS: dict[str, Callable[[Path], object]] = {
    "runs": lambda folder: repr(wb.runs(folder.parent)),
    "load": wb.Trace.load,
    "traces": wb.traces.load,
    "diagnose": wb.diagnose,
    "spec": lambda folder: wb.Experiment.read(folder / "spec.json"),
    "about": RunNotes.read,
    "attach": lambda folder: wb.attach(folder).result(),
    "stream": wb.stream,
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = wb.run(wb.Experiment(scheme="UMW", workers=4, rounds=8)).save(
        tmp_path_factory.mktemp("saved") / "run"
    )
    (folder / ABOUT).write_text('{"name": "one", "tags": ["a"], "archived": false}\n')
    return folder


def spoil(folder: Path, rng: random.Random) -> None:
    """Damage a file of a folder, by accident or by attack."""
    path = folder / rng.choice([*FILES, ABOUT, SUMS, "task.json", "ended.json", STATUS])
    small = path.is_file() and path.stat().st_size < 10**8  # an earlier change may have made it huge
    content = path.read_bytes() if small else b"{}"
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    place = rng.randrange(len(content) + 1)
    change = rng.randrange(9)
    if change == 0:
        os.mkfifo(path)
    elif change == 1:
        path.mkdir()
    elif change == 2:
        path.symlink_to(path)
    elif change == 3:
        path.symlink_to("/dev/zero")
    elif change == 4:
        path.write_bytes(content[:place])
    elif change == 5:
        path.write_bytes(content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :])
    elif change == 6:
        path.write_bytes(content[:place] + b" " + content[place:])
    elif change == 7:
        path.write_bytes(
            rng.choice([b"[" * 10**5, b"[]", b"null", b'{"a": "\\ud800"}', b"{" + b"1" * 10**5, b"\xff\xfe"])
        )
    else:
        with path.open("wb") as out:
            out.truncate(10**12)


def readable(read: Callable[[Path], object], folder: Path) -> str:
    """Return "" if a reader accepts a folder, else its one-sentence error. Raises all other errors."""
    try:
        read(folder)
    except SENTENCES as error:
        text = str(error)
        assert text.encode(), text
        assert "\n" not in text, text
        return text
    return ""


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(s, marks=pytest.mark.slow) for s in range(12, 300))]
)
def test_load_returns_or_raises_one_sentence_for_foreign_folders(
    seed: int, saved: Path, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    folder = shutil.copytree(saved, tmp_path / "run")
    if rng.random() < 0.5:
        (folder / SUMS).unlink()
    for _ in range(rng.randrange(1, 3)):
        spoil(folder, rng)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if (folder / "task.json").is_file():
            os.utime(folder / "task.json", (0, 0))  # a new task could belong to a run that is being submitted
        for read in READERS.values():
            readable(read, folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KB


@pytest.mark.parametrize("name", [*FILES, ABOUT, SUMS])
def test_load_refuses_a_pipe_in_place_of_a_file(name: str, saved: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(saved, tmp_path / "run")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    table = wb.runs(tmp_path).table
    assert table["state"].tolist() == [
        "done" if name in (ABOUT, "model.npy", "events.parquet") else "damaged"
    ]
    if name != ABOUT:
        assert name in readable(wb.Trace.load, folder)
