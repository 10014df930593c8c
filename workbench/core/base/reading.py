"""Safe reading of files from others: only regular files are opened, and memory is limited.

All files that the package reads are opened here. A pipe, a device or a folder in place of a file is refused, without
waiting for it. The size that a file declares is compared with the limit before memory is allocated.
"""

import json
import math
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from workbench.core.base.settings import SettingError

# NumPy is imported only when it is needed: its import takes time, and starts threads, with which some system calls
# fail.
if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

MAX_FILE_BYTES = "WORKBENCH_MAX_FILE_BYTES"  # environment variable: bytes of memory that one file may take
MEMORY_SHARE = 0.5  # default limit, as a share of the available memory
UNCHECKED_BYTES = 2**24  # bytes of memory below which a file is not compared with the available memory
PIECE_BYTES = 2**20  # bytes that are read or decompressed at once
FIELD_BYTES = 64  # bytes of memory for a number or a short text in a table or list, with references
GROUP_BYTES = 240  # bytes of memory for a small dict
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# half of a surrogate pair in JSON; it also matches whole pairs
_LONE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_LONE_SURROGATE_BYTES = re.compile(rb"\\u[dD][89a-fA-F]")
_KINDS = {
    stat.S_ISFIFO: "a named pipe",
    stat.S_ISDIR: "a folder",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISSOCK: "a socket",
}
_CGROUP = Path("/sys/fs/cgroup")

Where = str | os.PathLike[str]


def memory_limit() -> int:
    """Return the number of bytes of memory that one file may take. Raises `SettingError` for an invalid limit.

    >>> memory_limit() > 0
    True
    """
    setting = os.environ.get(MAX_FILE_BYTES)
    return int(MEMORY_SHARE * available_memory()) if setting is None else _parsed_limit(setting)


def _parsed_limit(text: str) -> int:
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not 0 < limit < math.inf:
        why = "is not a number of bytes; take one such as 8e9, or unset it"
        raise SettingError(f"{MAX_FILE_BYTES} = {text!r:.60}: {why}")
    return int(limit)


def available_memory() -> int:
    """Return the available memory, bytes: of the machine, or of the control group (a container or batch job)."""
    import psutil

    free = psutil.virtual_memory().available
    try:
        most, used = ((_CGROUP / f"memory.{name}").read_text() for name in ("max", "current"))
        return min(free, max(int(most) - int(used), 0))
    except (OSError, ValueError):  # there are no control groups, or the limit is "max"
        return int(free)


def check_size(path: Where, size: float, unpacked: str = "", most: float = math.inf) -> None:
    """Raise `SettingError` if a file would take more memory than the limit.

    `size`: bytes of its content. `unpacked`: text about the size, such as "unpacked". `most`: second
    limit, in bytes, unless the user has set a limit.
    """
    is_set = MAX_FILE_BYTES in os.environ
    if size <= UNCHECKED_BYTES and not is_set:
        return
    if size > (limit := memory_limit() if is_set else min(memory_limit(), most)):
        takes = f"takes {_amount(size)} of memory{f' {unpacked}' if unpacked else ''}"
        why = (
            f"the limit is {_amount(limit)}; set {MAX_FILE_BYTES} to a larger number of bytes if it is right"
        )
        raise SettingError(f"{printable(path)}: {takes}, and {why}")


def _amount(size: float) -> str:
    """Return an amount of memory with its unit.

    >>> _amount(6.8e9), _amount(1000), _amount(1e30)
    ('6.8 GB', '1000 bytes', '1e+30 bytes')
    """
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if unit <= size < 1e15:
            return f"{size / unit:.3g} {name}"
    return f"{size:.3g} bytes" if size >= 1e15 else f"{size:.0f} bytes"


def printable(path: Where) -> str:
    """Return a path as printable text, with escapes for invalid bytes."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _check_regular(path: Where, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in _KINDS.items() if is_kind(mode)), "not a regular file")
        raise SettingError(f"{printable(path)}: is {kind}; give a regular file")


def open_regular(path: Where) -> BufferedReader:
    """Open a regular file for reading, without blocking.

    Raises OSError if it cannot be opened, and `SettingError` for a pipe, a device, a socket or a folder.

    >>> import tempfile
    >>> open_regular(tempfile.mkdtemp())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    workbench.core.base.settings.SettingError: ...: is a folder; give a regular file
    """
    # checked before opening, because opening a device may have side effects
    _check_regular(path, Path(path).stat().st_mode)
    handle = os.open(path, _FLAGS)
    try:
        _check_regular(path, os.fstat(handle).st_mode)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_bytes(path: Where, most: float = math.inf) -> bytes:
    """Read a regular file. Raises OSError, and `SettingError` if it is not regular, or larger than a limit.

    `most`: max number of bytes, in addition to the limit of memory.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        check_size(path, size, most=most)
        return file.read(size)  # not more than `size`, because another process may append to the file


def read_text(path: Where, errors: str = "strict") -> str:
    """Read text in UTF-8, with newlines as line ends. Raises the errors of `read_bytes`, and UnicodeDecodeError."""
    return read_bytes(path).decode("utf-8", errors).replace("\r\n", "\n").replace("\r", "\n")


def read_gzip(path: Where) -> bytes:
    """Decompress a gzip file, up to the limit of memory.

    Raises the errors of `read_bytes`, EOFError if the file is cut off, and ValueError if it is not gzip.
    """
    limit, found, packed = memory_limit(), bytearray(), read_bytes(path)
    if not packed:
        raise EOFError("the file is empty")
    while packed:  # a file may consist of several archives
        unpacker = zlib.decompressobj(wbits=31)
        while packed and not unpacker.eof:
            try:
                found += unpacker.decompress(packed, PIECE_BYTES)
            except zlib.error as error:
                raise ValueError(f"is not gzip ({error})") from None
            packed = unpacker.unconsumed_tail
            if len(found) > limit:
                check_size(path, len(found), "unpacked, or more")
        if not unpacker.eof:
            found += unpacker.flush()
            raise EOFError("the file is cut off")
        packed = unpacker.unused_data.lstrip(b"\0")
    return bytes(found)


def parse_json(text: str | bytes, where: Where = "JSON") -> Any:
    r"""Parse JSON. Raises ValueError with the reason, and `SettingError` if it would take more memory than the limit.

    >>> parse_json('{"name": "\\ud800"}')
    Traceback (most recent call last):
    ...
    ValueError: holds half of a surrogate pair
    """
    check_json_size(text, where)
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("its lists and fields are nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"is not text in UTF-8 ({error.reason} at byte {error.start})") from None
    except json.JSONDecodeError:
        raise
    except ValueError:  # Python does not read whole numbers of more than 4300 digits
        raise ValueError("holds a number of thousands of digits") from None
    if _LONE_SURROGATE.search(text) if isinstance(text, str) else _LONE_SURROGATE_BYTES.search(text):
        check_characters(found)
    return found


def check_json_size(text: str | bytes, where: Where) -> None:
    """Raise `SettingError` if the content of a JSON text would take more memory than the limit."""
    if len(text) > UNCHECKED_BYTES // GROUP_BYTES or MAX_FILE_BYTES in os.environ:
        marks: Any = ("{", "[", ",") if isinstance(text, str) else (b"{", b"[", b",")
        groups, lists, fields = (text.count(mark) for mark in marks)
        check_size(where, len(text) + GROUP_BYTES * groups + FIELD_BYTES * (lists + fields))


def check_characters(found: Any) -> None:
    """Raise ValueError if a text in nested fields and lists has half of a surrogate pair, which UTF-8 cannot encode."""
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("holds half of a surrogate pair") from None


def read_npy(path: Where, mapped: bool = False) -> "NDArray[Any]":
    """Read an array from a .npy file, without pickle. Raises OSError, ValueError and `SettingError`.

    `mapped`: return a memory map.
    """
    import numpy as np

    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        shape, fortran, dtype = _header(file, size)
        if mapped and size:
            order: Any = "F" if fortran else "C"
            return np.memmap(file, dtype, "r", file.tell(), shape, order)
        check_size(path, size)
        return np.fromfile(file, dtype, math.prod(shape)).reshape(shape, order="F" if fortran else "C")


def map_bytes(path: Where) -> "NDArray[Any]":
    """Map the bytes of a regular file into memory. Raises OSError, and `SettingError` if it is not regular."""
    import numpy as np

    with open_regular(path) as file:
        empty = not os.fstat(file.fileno()).st_size  # an empty file cannot be mapped
        return np.zeros(0, np.uint8) if empty else np.memmap(file, np.uint8, "r")


def _header(file: IO[bytes], size: int) -> "tuple[tuple[int, ...], bool, np.dtype[Any]]":
    """Read the shape, order and type of an array. Raises ValueError if it does not fit into a file of `size` bytes."""
    import numpy as np

    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"has version {version} of the format")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, fortran, dtype = read(file)
    except (RecursionError, MemoryError, SyntaxError, TypeError):
        raise ValueError("its header is damaged") from None
    if dtype.hasobject:
        raise ValueError("holds objects of Python, which are not read")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > size - file.tell():
        raise ValueError(f"is cut off: an array of shape {shape} and type {dtype} does not fit into it")
    return shape, fortran, dtype


def read_npz(path: Where, names: Iterable[str] | None = None) -> "dict[str, NDArray[Any]]":
    """Read arrays of an archive by name: those of `names` that exist, or all.

    Raises OSError, ValueError, `zipfile.BadZipFile` and `SettingError`.
    """
    with open_regular(path) as file:
        return arrays_in(file, path, names)


def names_in(path: Where) -> list[str]:
    """Return the names of the arrays in an archive. Raises OSError, `zipfile.BadZipFile` and `SettingError`."""
    with open_regular(path) as file, zipfile.ZipFile(file) as whole:
        return [name.removesuffix(".npy") for name in whole.namelist()]


def arrays_in(file: IO[bytes], where: Where, names: Iterable[str] | None = None) -> "dict[str, NDArray[Any]]":
    """Read arrays of an open archive, as `read_npz` does, and verify their checksums. `where`: name for messages."""
    import numpy as np

    with zipfile.ZipFile(file) as whole:
        members = {info.filename.removesuffix(".npy"): info for info in whole.infolist()}
        wanted = list(members) if names is None else [name for name in names if name in members]
        check_size(where, sum(members[name].file_size for name in wanted), "unpacked")
        found = {}
        for name in wanted:
            member = BytesIO(content := _member(whole, members[name]))
            shape, fortran, dtype = _header(member, len(content))
            array = np.frombuffer(bytearray(content), dtype, math.prod(shape), member.tell())
            found[name] = array.reshape(shape, order="F" if fortran else "C")
    return found


def _member(whole: zipfile.ZipFile, found: zipfile.ZipInfo) -> bytes:
    """Decompress a file of an archive, up to its declared size. `ZipFile.read` would also decompress data beyond it.

    Raises ValueError for compression methods that NumPy does not write: their decompression has no limit.
    """
    if found.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{found.filename} has an unusual compression; write it with numpy.savez_compressed")
    with whole.open(found) as file:
        return file.read(found.file_size)


def head_of(path: Where, size: int = PIECE_BYTES) -> bytes:
    """Return the first bytes of a regular file, at most `size`; none if it cannot be read.

    >>> head_of("/dev/zero")
    b''
    """
    try:
        with open_regular(path) as file:
            return file.read(size)
    except (OSError, SettingError):
        return b""


def open_table(path: Where) -> BufferedReader:
    """Open a regular file with a table in text. Raises OSError, and `SettingError` if it does not fit into memory."""
    file = open_regular(path)
    try:
        size = os.fstat(file.fileno()).st_size
        if size * FIELD_BYTES > UNCHECKED_BYTES or MAX_FILE_BYTES in os.environ:
            check_size(path, size)
            pieces = iter(lambda: file.read(PIECE_BYTES), b"")
            fields = sum(piece.count(mark) for piece in pieces for mark in (b",", b";", b"\t", b"\n"))
            check_size(path, size + FIELD_BYTES * fields)
            file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


@contextmanager
def open_parquet(path: Where, for_pandas: bool = False) -> Iterator["pq.ParquetFile"]:
    """Open a Parquet table, as a context manager. Raises the errors of Arrow (OSError, ValueError).

    Raises `SettingError` if its decompressed rows do not fit into memory. `for_pandas`: whether they are converted to
    a data frame, in which decimal numbers, lists and fields become Python objects.
    """
    import pyarrow.parquet as pq

    with open_regular(path) as file, pq.ParquetFile(file) as table:
        check_size(path, size := _numbers(table.metadata, for_pandas), "unpacked")
        check_size(path, size + sum(map(partial(_text, file, table.metadata), _texts(table))), "unpacked")
        yield table


def parquet_columns(path: Where) -> list[str]:
    """Return the column names of a Parquet table. Raises errors of Arrow (OSError, ValueError) and `SettingError`."""
    import pyarrow.parquet as pq

    with open_regular(path) as file:
        return list(pq.read_schema(file).names)


def read_parquet(path: Where) -> "pd.DataFrame":
    """Read a Parquet table. Raises the errors of `open_parquet`."""
    import pandas as pd

    with open_parquet(path, for_pandas=True), open_regular(path) as file:
        frame: pd.DataFrame = pd.read_parquet(file, engine="pyarrow")
    return frame


_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8, "BYTE_ARRAY": 8}


def _chunks(found: "pq.FileMetaData") -> Iterator[tuple[int, int, Any]]:
    """Yield the column, the number of values and the metadata of each column chunk."""
    for number in range(found.num_row_groups):
        group = found.row_group(number)
        for column in range(group.num_columns):
            chunk = group.column(column)
            yield column, max(chunk.num_values, group.num_rows), chunk


def _numbers(found: "pq.FileMetaData", for_pandas: bool) -> int:
    """Return the bytes of memory of all columns, without expanded texts. Repeated values take much less in the file."""
    widths = [_width(found.schema.column(number), for_pandas) for number in range(found.num_columns)]
    return sum(
        max(values * widths[column], chunk.total_uncompressed_size)
        for column, values, chunk in _chunks(found)
    )


def _width(column: Any, for_pandas: bool) -> int:
    """Return the bytes of memory of one value of a column. `for_pandas`: as in `open_parquet`."""
    if for_pandas and (column.path != column.name or column.logical_type.type == "DECIMAL"):
        return GROUP_BYTES
    return _WIDTHS.get(column.physical_type) or max(column.length, 1)


def _texts(table: "pq.ParquetFile") -> list[int]:
    """Return the text columns that would need much memory if each value were as long as its whole chunk."""
    most: dict[int, int] = {}
    for column, values, chunk in _chunks(table.metadata):
        if chunk.physical_type == "BYTE_ARRAY":
            most[column] = most.get(column, 0) + values * chunk.total_uncompressed_size
    return [column for column, size in most.items() if size > UNCHECKED_BYTES]


def _text(file: BufferedReader, found: "pq.FileMetaData", column: int) -> int:
    """Return the bytes of memory of a text column, computed without expanding repeated values."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = found.schema.column(column).path
    with pq.ParquetFile(file, metadata=found, read_dictionary=[path]) as table:
        # for columns nested in lists or fields, return an upper bound
        if path not in table.schema_arrow.names:
            return sum(n * chunk.total_uncompressed_size for at, n, chunk in _chunks(found) if at == column)
        size = 0
        for batch in table.iter_batches(columns=[path]):
            values = batch.column(0)
            lengths = pc.binary_length(values.dictionary)
            size += pc.sum(lengths.take(values.indices)).as_py() or 0
    return size
