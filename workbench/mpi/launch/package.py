"""Archive of the package, and how Python on another host receives and finds it.

A host stores the archives that it was sent in a folder of the user's cache, named by their content. Each is therefore
sent once. The host needs only the standard library for that, and runs only programs that are installed.
"""

import gzip
import io
import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

# First line of `BOOT_CODE`. If it does not arrive as the first line, a login script has read a part of the code.
FIRST_LINE = b"# workbench\n"
LOGIN_READ = "the login read what is meant for the workbench"
# beginning of the line with which a host answers; other output of a login shell is skipped
GREETING_MARK = b"workbench-boot "
# Folder of the packages on a host, in Python that runs there.
_ROOT = (
    "os.path.join(os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'),"
    "'straggler-workbench','packages')"
)
# Moves the current folder to the end of the path, so that no file of the user there hides another module.
LOWEST_PATH_CODE = "import sys;sys.path.sort(key=lambda place:not place)"
# Python code that runs a module of the package; arguments: key of the archive (or path of a folder), module, its
# arguments
START_CODE = (
    f"{LOWEST_PATH_CODE};import os,runpy;sys.path.insert(0,os.path.join({_ROOT},sys.argv[1]));del sys.argv[:2];"
    "runpy.run_module(sys.argv[0],run_name='__main__',alter_sys=True)"
)
# Python code that receives the package if it is missing, and calls main(input, output, fields) of a module; `i` is the
# input
BOOT_CODE = (
    FIRST_LINE
    + f"""\
{LOWEST_PATH_CODE}
import hashlib, importlib, json, os, shutil, stat, struct, sys, tarfile, tempfile, io
o = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # printed text must not mix with the messages
words = json.loads(i.readline().decode())
if words.get("cache"):
    os.environ["XDG_CACHE_HOME"] = words["cache"]
root = {_ROOT}
place = os.path.join(root, words["key"])
there = [os.lstat(folder) for folder in (os.path.dirname(root), root) if os.path.lexists(folder)]
own = all(one.st_uid == os.geteuid() and (not one.st_mode & 0o022 or stat.S_ISLNK(one.st_mode)) for one in there)
need = not os.path.isabs(words["key"]) and not os.path.isdir(place)
o.write({GREETING_MARK!r} + (b"need\\n" if need else b"have\\n"))
o.flush()
try:
    if not own and not os.path.isabs(words["key"]):
        raise SystemExit(root + ": another user may write there; take it away, or set XDG_CACHE_HOME")
    if need:
        archive = i.read(words["bytes"])
        if hashlib.sha256(archive).hexdigest()[:len(words["key"])] != words["key"]:
            raise SystemExit("the package was damaged on its way")
        umask = os.umask(0o077)
        os.makedirs(root, 0o700, exist_ok=True)
        os.umask(umask)
        aside = tempfile.mkdtemp(dir=root)
        tarfile.open(fileobj=io.BytesIO(archive)).extractall(aside)
        try:
            os.rename(aside, place)
        except OSError:  # another process was faster
            shutil.rmtree(aside)
    os.environ["PYTHONPATH"] = os.pathsep.join([place] + os.environ.get("PYTHONPATH", "").split(os.pathsep)).strip(":")
    sys.path.insert(0, place)
    module = importlib.import_module(words["module"])
    reply = {{}}
except BaseException as error:
    reply = {{"error": "%s: %s" % (type(error).__name__, error)}}
text = json.dumps(reply).encode()
o.write(struct.pack(">QQ", len(text), 0) + text)
o.flush()
if reply:
    raise SystemExit(1)
module.main(i, o, words)
""".encode()
)


@dataclass(frozen=True)
class Package:
    """Place of the package on a host: `key` of an archive, or the absolute path of an existing folder."""

    key: str
    archive: bytes = b""


@cache
def packed() -> Package:
    """Return the package of this machine as an archive."""
    root = Path(__file__).parents[2]
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.suffix != ".pyc"]
    named = {str(path.relative_to(root.parent)): path for path in files if not path.name.startswith(".")}
    archive = gzip.compress(tarred({name: path.read_bytes() for name, path in named.items()}), mtime=0)
    return Package(sha256(archive).hexdigest()[:32], archive)


def tarred(files: Mapping[str, bytes], mode: int = 0o644) -> bytes:
    """Return files by name as a tar archive. Equal content gives equal bytes, for any owner of the files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def package_root() -> str:
    """Return the folder that has the package, or "" if it is installed among Python's own packages."""
    root = Path(__file__).resolve().parents[3]
    return "" if root.name in ("site-packages", "dist-packages") else str(root)


def python_path() -> dict[str, str]:
    """Return the variable with which Python finds the package, if it is not installed among Python's own packages.

    Processes are started with ``python -P``, so that no file in the current folder hides another module.
    """
    if not (root := package_root()):
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))}


def booted(python: str, module: str) -> list[str]:
    """Return the command line of Python that waits for `BOOT_CODE` on its input. Process lists show the module."""
    rest = len(BOOT_CODE) - len(FIRST_LINE)
    otherwise = f"raise SystemExit({LOGIN_READ!r})"
    wait = (
        f"import sys;i=open(0,'rb',closefd=False);b=i.readline();"
        f"exec(i.read({rest}) if b=={FIRST_LINE!r} else {otherwise!r})"
    )
    return [python, "-c", wait, module]
