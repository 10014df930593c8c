"""Readers of foreign files: they accept regular files only, and use bounded memory."""

from __future__ import annotations

import ast
import gzip
import os
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.core.base import reading
from workbench.core.base.settings import SettingError
from workbench.core.base.text import YAMLError, parse, read_json, read_yaml
from workbench.core.problems.data.options import DataError

READERS: dict[str, Callable[[Path], object]] = {
    "bytes": reading.read_bytes,
    "text": reading.read_text,
    "gzip": reading.read_gzip,
    "npy": reading.read_npy,
    "mapped": lambda path: reading.read_npy(path, mapped=True),
    "npz": reading.read_npz,
    "names": reading.names_in,
    "table": reading.open_table,
    "parquet": reading.read_parquet,
    "columns": reading.parquet_columns,
    "json": read_json,
    "yaml": lambda path: read_yaml(path, "a: 1"),
}


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv(reading.MAX_FILE_BYTES, "1e6")
    return 10**6


@pytest.mark.skipif(os.name != "posix", reason="named pipes")
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "link to a pipe", "loop"])
def test_reading_refuses_what_is_not_a_regular_file(reader: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "about.json"
    os.mkfifo(tmp_path / "pipe")
    if kind == "folder":
        path.mkdir()
    else:
        targets = {"device": Path("/dev/zero"), "loop": path}
        path.symlink_to(targets.get(kind, tmp_path / "pipe"))
    with pytest.raises(
        (SettingError, OSError), match=r"give a regular file|no such file|symbolic links|Errno 40"
    ):
        READERS[reader](path)


def bombs(folder: Path) -> dict[str, Path]:
    """Write files that are read into more memory than the limit of 1 MB. Return them by name."""
    rows = 10**7
    pq.write_table(pa.table({"seconds": pa.array(np.zeros(rows))}), folder / "numbers.parquet")
    word = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1000, np.int32)), pa.array(["x" * 10**5]))
    pq.write_table(pa.table({"worker": word}), folder / "text.parquet", store_schema=False)
    lists = pa.array([[0.0] * 10**6], pa.list_(pa.float64()))
    pq.write_table(pa.table({"seconds": lists}), folder / "lists.parquet")
    none = pa.ListArray.from_arrays(pa.array(np.zeros(10**6, np.int32)), pa.array([], pa.float64()))
    fields = pa.StructArray.from_arrays([pa.array(np.zeros(10**6))], ["of"])
    cents = pa.array(np.zeros(10**6, np.int32)).cast(pa.decimal128(12, 2))
    for name, column in {"empty_lists": none, "fields": fields, "decimals": cents}.items():
        pq.write_table(pa.table({"seconds": column}), folder / f"{name}.parquet")
    np.savez_compressed(folder / "zeros.npz", X=np.zeros((rows, 1)), y=np.zeros(rows))
    (folder / "zeros.json.gz").write_bytes(gzip.compress(b'{"traceEvents": [' + b"0," * 4 * rows + b"0]}"))
    (folder / "lists.json").write_text("[" + "[]," * 50_000 + "[]]")
    (folder / "fields.csv").write_text("a,b\n" + "1,2\n" * 50_000)
    with (folder / "sparse.npy").open("wb") as out:
        np.lib.format.write_array_header_1_0(out, {"descr": "<f8", "fortran_order": False, "shape": (rows,)})
        out.truncate(out.tell() + 8 * rows)
    with (folder / "sparse.json").open("wb") as out:
        out.truncate(10**12)
    return {path.name: path for path in folder.iterdir()}


BOMBS: dict[str, Callable[[Path], object]] = {
    "numbers.parquet": reading.read_parquet,
    "text.parquet": reading.read_parquet,
    "lists.parquet": reading.read_parquet,
    "empty_lists.parquet": reading.read_parquet,  # pandas makes a Python object of each value
    "fields.parquet": reading.read_parquet,
    "decimals.parquet": reading.read_parquet,
    "zeros.npz": reading.read_npz,
    "zeros.json.gz": reading.read_gzip,
    "lists.json": read_json,
    "fields.csv": reading.open_table,
    "sparse.npy": reading.read_npy,
    "sparse.json": read_json,
}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return bombs(tmp_path_factory.mktemp("bombs"))


@pytest.mark.parametrize("name", BOMBS)
def test_reading_refuses_decompression_bombs_early(name: str, packed: dict[str, Path], limit: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(
        SettingError, match=rf"{name}: takes .* of memory.* the limit is 1 MB; set WORKBENCH_MAX"
    ):
        BOMBS[name](packed[name])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KB


@pytest.mark.parametrize("method", ["ZIP_DEFLATED", "ZIP_BZIP2", "ZIP_LZMA"])
def test_reading_an_archive_stops_at_the_declared_size(method: str, tmp_path: Path, limit: int) -> None:
    path = tmp_path / "data.npz"
    with zipfile.ZipFile(path, "w", getattr(zipfile, method)) as archive:
        for name in ("X.npy", "y.npy"):
            with archive.open(name, "w") as member:
                np.save(member, np.zeros(2))
                member.write(bytes(2 * 10**8))
        for found in archive.filelist:
            found.file_size = 144  # false: the member also has the bytes after the array
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((ValueError, zipfile.BadZipFile), match=r"unusual compression|Bad CRC-32"):
        reading.read_npz(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KB
    with pytest.raises(DataError, match=r"data.npz"):
        loaded(path)


def loaded(path: Path) -> object:
    """Read a decompression bomb with the functions that read such files."""
    if path.suffix == ".npz":
        return wb.run(wb.Experiment(scheme="UMW", workers=4, rounds=2, problem_args={"data": str(path)}))
    return wb.diagnose(path)


@pytest.mark.parametrize(
    "name", ["numbers.parquet", "text.parquet", "zeros.npz", "zeros.json.gz", "fields.csv"]
)
def test_reading_refuses_bombs_in_every_format(name: str, packed: dict[str, Path], limit: int) -> None:
    with pytest.raises((wb.SettingError, DataError), match=rf"{name}: takes .* the limit is 1 MB") as caught:
        loaded(packed[name])
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of a process's memory")
def test_reading_a_small_pickle_uses_little_memory(tmp_path: Path) -> None:
    """Python's C reader would allocate as many objects, or bytes, as the file claims to have."""
    script = (
        "import resource, sys\nimport workbench as wb\nresource.setrlimit(resource.RLIMIT_AS, (6 * 2**30,) * 2)\n"
        "for path in sys.argv[1:]:\n    try:\n        wb.traces.load(path)\n"
        "    except wb.SettingError as error:\n        print(error)\n"
    )
    bombs = {
        "memo": b"\x80\x02]r\xff\xff\xff\x7f.",
        "bytes": b"\x80\x04\x8e" + (2**40).to_bytes(8, "little") + b".",
    }
    for name, content in bombs.items():
        (tmp_path / f"{name}.pkl").write_bytes(content)
    command = [sys.executable, "-c", script, *(str(tmp_path / f"{name}.pkl") for name in bombs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("path = ") == 2


@pytest.mark.parametrize("text", ["much", "-1", "0", "nan", "inf", ""])
def test_reading_limit_must_be_a_size(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(reading.MAX_FILE_BYTES, text)
    (tmp_path / "a").write_text("x")
    with pytest.raises(SettingError, match=r"WORKBENCH_MAX_FILE_BYTES = .*: is not a number of bytes"):
        reading.read_bytes(tmp_path / "a")


def test_reading_refuses_headers_that_exceed_the_file(tmp_path: Path) -> None:
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    with (tmp_path / "long.npy").open("wb") as out:
        np.lib.format.write_array_header_1_0(out, header)
        out.write(bytes(80))
    with zipfile.ZipFile(tmp_path / "long.npz", "w") as archive:
        archive.write(tmp_path / "long.npy", "X.npy")
    for read, name in ((reading.read_npy, "long.npy"), (reading.read_npz, "long.npz")):
        with pytest.raises(ValueError, match="does not fit into it"):
            read(tmp_path / name)


@given(
    st.lists(
        st.sampled_from(
            [np.zeros((0, 3)), np.arange(6.0).reshape(2, 3), np.float32(2), np.array("text"), np.eye(3).T[:2]]
        ),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_reading_arrays_round_trip(arrays: list[Any], mapped: bool) -> None:
    folder = Path("/dev/shm" if Path("/dev/shm").is_dir() else ".")
    path = folder / f"reading-{os.getpid()}.npz"
    try:
        np.savez(path, **{f"a{i}": array for i, array in enumerate(arrays)})
        for found, array in zip(reading.read_npz(path).values(), arrays, strict=True):
            assert np.array_equal(found, array)
            assert found.dtype == array.dtype
            assert found.flags.writeable
        np.save(path.with_suffix(".npy"), arrays[0])
        assert np.array_equal(
            reading.read_npy(path.with_suffix(".npy"), mapped and arrays[0].size > 0), arrays[0]
        )
    finally:
        path.unlink(missing_ok=True)
        path.with_suffix(".npy").unlink(missing_ok=True)


def test_reading_long_lists_costs_little_unless_they_become_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards of a sweep have a list for each curve."""
    curves = pa.array([np.arange(1000.0)] * 100, pa.list_(pa.float64()))
    pq.write_table(pa.table({"curve.loss": curves}), tmp_path / "shard.parquet")
    monkeypatch.setenv(reading.MAX_FILE_BYTES, "1e6")
    with reading.open_parquet(tmp_path / "shard.parquet") as table:
        assert table.read().column(0).equals(pa.chunked_array([curves]))
    with pytest.raises(SettingError, match="unpacked"):
        reading.read_parquet(tmp_path / "shard.parquet")


def test_reading_tables_equals_pandas(tmp_path: Path) -> None:
    frame = pd.DataFrame({"kind": ["compute", None, "send"], "time": [0.1, 2.0, np.nan], "n": [1, 2, 3]})
    frame.index = pd.Index(["a", "b", "c"], name="row")
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv")
    pd.testing.assert_frame_equal(
        reading.read_parquet(tmp_path / "t.parquet"), pd.read_parquet(tmp_path / "t.parquet")
    )
    with reading.open_table(tmp_path / "t.csv") as file:
        pd.testing.assert_frame_equal(pd.read_csv(file), pd.read_csv(tmp_path / "t.csv"))


def test_reading_gzip_members_and_refusing_truncated_ones(tmp_path: Path) -> None:
    whole = gzip.compress(b"one") + gzip.compress(b"two" * 10**6)
    path = tmp_path / "x.gz"
    path.write_bytes(whole)
    assert reading.read_gzip(path) == b"one" + b"two" * 10**6
    for broken in (whole[:-4], b"", b"plain", whole + b"rest"):
        path.write_bytes(broken)
        with pytest.raises((ValueError, EOFError)):
            reading.read_gzip(path)


ODD: dict[str, str | bytes] = {
    "deep": "[" * 10**5,
    "deep fields": '{"a":' * 10**5,
    "digits": '{"a": ' + "1" * 10**5 + "}",
    "surrogate": '{"a": "\\ud800"}',
    "surrogate in a key": '{"\\udfff": 1}',
    "not UTF-8": b'{"a": "\xff"}',
    "cut": '{"a": ',
    "list": "[1]",
    "number": "1",
    "nothing": "",
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_read_json_and_read_yaml_name_a_bad_file(name: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"odd.{suffix}"
    content = ODD[name]
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SettingError, match=f"odd.{suffix}: ") as caught:
        read_json(path) if suffix == "json" else read_yaml(path, "a: 1")
    assert "\n" not in str(caught.value)
    str(caught.value).encode()


@pytest.mark.parametrize("text", ['{"a": "\\ud800"}', 'a: "\\ud800"', 'a: "\\udfff"'])
def test_parse_refuses_half_a_surrogate_pair(text: str) -> None:
    with pytest.raises(YAMLError, match=r"surrogate|escape|unacceptable"):
        parse(text)
    assert parse('{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}


def test_read_yaml_refuses_exponential_aliases(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    (tmp_path / "laughs.yaml").write_text("\n".join(lines))
    with pytest.raises(SettingError, match="expand to more than"):
        read_yaml(tmp_path / "laughs.yaml", "a: 1")


# ------------------------------------------------------------------ no other module opens user files

OWN_FILES = {  # module -> files that it opens itself, which no other user writes
    "core/base/reading.py": "the place where all files are opened",
    "cli/main.py": "the package's own source",
    "lab/widgets/assets.py": "the package's own scripts",
    "lab/widgets/explorer/grid.py": "the package's own script",
    "mpi/launch/mpiexec.py": "the kernel's limit in /proc",
    "mpi/launch/rank/forkserver.py": "an environment in /proc",
    "mpi/launch/processes.py": "processes in /proc",
    "mpi/launch/poolfolder.py": "memory maps in /proc",
    "mpi/launch/package.py": "the package's own files, and on the other host what was sent and its hash checked",
    "mpi/engine/transport.py": "a limit in /proc",
    "lab/notebooks.py": "the package's own notebooks",
    "core/base/locks.py": "locks in /proc",
    "core/base/files.py": "a folder that was just written, for fsync",
    "core/problems/data/prepare.py": "an array that was just written",
    "core/trace/records.py": "a file that `reading` has opened",
    "lab/batch/background.py": "the pipe from the process that began it",
}
ALWAYS = {
    "read_text",
    "read_bytes",
    "fromfile",
    "memmap",
    "read_csv",
    "read_parquet",
    "read_schema",
    "decompress",
}
CALLS = {
    ("np", "load"),
    ("gzip", "open"),
    ("zipfile", "ZipFile"),
    ("json", "load"),
    ("tarfile", "open"),
    ("pq", "ParquetFile"),
}


def direct_reads(source: str) -> list[str]:
    """Return the calls in a module's source that open a file without `reading`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        of = node.func.value if isinstance(node.func, ast.Attribute) else None
        module = of.id if isinstance(of, ast.Name) else ""
        texts = [
            arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
        ]
        is_path = (
            isinstance(of, ast.BinOp)
            or module in ("path", "file")
            or "encoding" in {k.arg for k in node.keywords}
        )
        writes = any(set(text) & set("wax") for text in texts)
        reads = name == "open" and not writes and (is_path or any(set(text) <= set("rbt+") for text in texts))
        if (name in ALWAYS and of is not None and module != "reading") or (module, name) in CALLS or reads:
            found.append(f"{node.lineno}: {ast.unparse(node)[:60]}")
    return found


def test_reading_is_the_only_module_that_opens_user_files() -> None:
    root = Path(wb.__file__).parent
    found = {path.relative_to(root).as_posix(): direct_reads(path.read_text()) for path in root.rglob("*.py")}
    assert not {name: lines for name, lines in found.items() if lines and name not in OWN_FILES}
