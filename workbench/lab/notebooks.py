"""Location of the notebooks, working copies of them, and execution without a network port.

Packages that notebooks need import a grammar of internet addresses, which takes a second to build. In this package,
the grammar is built only at its first use.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from traitlets.config import Config

from workbench.core.base.files import sha256, write_file, write_json
from workbench.core.base.settings import SettingError
from workbench.core.base.text import read_json

if TYPE_CHECKING:
    import nbformat

MAX_SOCKET_PATH_BYTES = 103  # max bytes in the path of a socket: 107 on Linux, fewer on macOS
SOCKET_NAME_BYTES = 24  # bytes reserved for the names of the sockets

OUTPUT_TIMEOUT_S = 600  # s to read the rest of a cell's output after the cell has ended

PACKAGE = Path(__file__).resolve().parents[1]
RECORD_FILE = ".workbench.json"  # file in a folder of copies, with the hash of each copied file


def shipped(name: str) -> Path:
    """Return the path of a file of the package: `notebooks`, `notebooks/run.ipynb`, `clusters`, `examples`.

    In an installed wheel, these are inside the package. In a clone, they are beside it.

    >>> shipped("notebooks/run.ipynb").is_file()
    True
    """
    carried = PACKAGE / "shipped"
    return (carried if carried.is_dir() else PACKAGE.parent) / name


def copy_notebooks(folder: Path) -> tuple[list[str], list[str]]:
    """Copy notebooks, cluster files and examples to a folder. Files that the user changed there are kept.

    Returns the names of the files that were written, and of those that were kept. Raises `SettingError` if there is
    nothing to copy, and `OSError` if nothing can be written.
    """
    sources = _sources()
    record = folder / RECORD_FILE
    noted: dict[str, str] = read_json(record) if record.is_file() else {}
    written, unchanged = [], []
    for name, source in sources.items():
        target, new = folder / name, sha256(source)
        old = sha256(target) if target.exists() else None
        if old == new:
            noted[name] = new
        elif old is None or old == noted.get(name):
            target.parent.mkdir(parents=True, exist_ok=True)
            write_file(target, source.read_bytes())
            noted[name] = new
            written.append(name)
        else:
            unchanged.append(name)
    write_json(record, noted, indent=1)
    return written, unchanged


def _sources() -> dict[str, Path]:
    """Return the files to copy: name in the folder of copies -> source."""
    notebooks = shipped("notebooks")
    if not notebooks.is_dir():
        wanted = "install the whole wheel, or run this from a clone of the repository"
        raise SettingError(f"{notebooks}: no such folder; {wanted}")
    found = {path.relative_to(notebooks): path for path in notebooks.rglob("*.ipynb")}
    for folder in (shipped("clusters"), shipped("examples")):
        found |= {path.relative_to(folder.parent): path for path in folder.rglob("*") if path.is_file()}
    shown = [name for name in sorted(found) if not any(step.startswith(".") for step in name.parts)]
    return {name.as_posix(): found[name] for name in shown}


def socket_folder(prefix: str) -> Path:
    """Make a folder for sockets that only its owner may enter, with a short path.

    It is in the temporary folder, if that path is short enough. Raises `SettingError` if no folder with a short
    path can be written.
    """
    usual = tempfile.gettempdir()
    for place in (usual, os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp", "/var/tmp"):
        short = (
            len(os.fsencode(Path(place, f"{prefix}12345678"))) + SOCKET_NAME_BYTES <= MAX_SOCKET_PATH_BYTES
        )
        if place and short and os.access(place, os.W_OK | os.X_OK):
            return Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    most = MAX_SOCKET_PATH_BYTES - SOCKET_NAME_BYTES - len(f"/{prefix}12345678")
    raise SettingError(
        f"TMPDIR = {usual!r}: has {len(os.fsencode(usual))} bytes, and sockets need a folder that can be written with"
        f" a path of {most} at most; set TMPDIR to such a one"
    )


def execute(
    notebook: Path, output: Path, parameters: Mapping[str, Any], cwd: Path, progress: bool = False
) -> nbformat.NotebookNode:
    """Execute a whole notebook, and write the executed notebook to `output`.

    Raises papermill's `PapermillExecutionError` if a cell fails.
    """
    with grammar_put_off():
        import papermill

    folder, variables = socket_folder("kernel-"), {}
    # socket files in a separate folder, because kernels that run together would share files in Jupyter's folder
    if os.name == "posix":
        variables["KernelManager"] = {"transport": "ipc", "ip": f"{folder}/socket"}
    options = {"parameters": dict(parameters), "cwd": str(cwd), "log_output": False, "progress_bar": progress}
    kernel_options = {"extra_arguments": [run_first(keep_output)], "iopub_timeout": OUTPUT_TIMEOUT_S}
    try:
        return papermill.execute_notebook(
            str(notebook), str(output), **options, **kernel_options, config=Config(variables)
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_first(function: Callable[..., Any], *arguments: Any) -> str:
    """Return a kernel's argument that calls a function before any cell, without a name in the user's namespace."""
    call = f"__import__({function.__module__!r}, fromlist=['']).{function.__name__}"
    return f"--IPKernelApp.exec_lines={call}({', '.join(map(repr, arguments))})"


def keep_output() -> None:
    """Make the calling kernel wait if its output is read more slowly than it is printed.

    By default, the kernel's socket drops messages when 1000 of them are queued.
    """
    import zmq
    from ipykernel.kernelapp import IPKernelApp

    thread = IPKernelApp.instance().iopub_thread
    # in the thread of the socket, because two threads must not use one socket
    thread.schedule(lambda: thread.socket.setsockopt(zmq.XPUB_NODROP, 1))


_GRAMMAR = "rfc3987_syntax"


class _Later(ModuleType):
    """Replacement of the grammar of internationalised addresses until its first use."""

    @staticmethod
    def is_valid_syntax(rule: str, text: str) -> bool:
        _let_in()
        from rfc3987_syntax import is_valid_syntax

        return bool(is_valid_syntax(rule, text))


@contextmanager
def grammar_put_off() -> Iterator[None]:
    """Defer the building of a grammar while nbformat, papermill or jsonschema are imported in this context.

    The grammar takes a second to build, once per process, and notebooks do not need it. The first check of an
    address by jsonschema builds it.
    """
    if _GRAMMAR in sys.modules or find_spec(_GRAMMAR) is None:
        yield
        return
    sys.modules[_GRAMMAR] = _Later(_GRAMMAR)
    try:
        yield
    finally:
        _let_in()


def _let_in() -> None:
    if isinstance(sys.modules.get(_GRAMMAR), _Later):
        sys.modules.pop(_GRAMMAR, None)
