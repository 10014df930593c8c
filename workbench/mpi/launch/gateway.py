"""One connection to another machine, through which an agent there does what it is asked to.

The connection is a process of ours (ssh) whose input and output carry words: each is a JSON object, and perhaps bytes
behind it. Nothing listens anywhere for it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import shlex
import struct
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from typing import IO, Any

from workbench.core.base.errors import ClusterError, quoted, reason
from workbench.core.base.reading import check_size, parse_json
from workbench.core.base.settings import SettingError
from workbench.mpi.launch.package import BOOT_CODE, GREETING_MARK, LOGIN_READ, Package, booted
from workbench.mpi.launch.reports import ProgressCallback, no_progress

AGENT, HOST = "workbench.mpi.clusters.agent", "workbench.mpi.launch.hosts.host"  # what runs at the other end
CLOSE_TIMEOUT_S = 3.0  # s that a connection has to end by itself
MAX_LOGIN_BYTES = 2**16  # bytes that a login may say before our own word
QUOTED_BYTES, QUOTED_S = 400, 0.2  # max bytes of a login's words that are quoted; the time in which they come
LOGIN = "~/.bashrc and the like must write and read nothing in shells without a terminal"
_LENGTHS = struct.Struct(">QQ")
MAX_MESSAGE_BYTES, MAX_DATA_BYTES = 2**26, 2**32  # bytes; who says more is no agent of ours
READ_BYTES = 2**20  # bytes that are read at once
START_FACTOR = 4  # times the patience, for Python and the package to start there


class ConnectionLost(ClusterError):
    """The connection to a host is not there (any more)."""


class NotAWord(ValueError):
    """Bytes that are not a word of the agent's; `heard`: their beginning."""

    def __init__(self, heard: bytes) -> None:
        super().__init__(f"{heard[:60]!r} is not a word")
        self.heard = heard


@dataclass(frozen=True)
class Gateway:
    """How a machine is reached."""

    host: str  # its name, for messages
    command: tuple[str, ...]  # what runs a command there, such as ("ssh", "-T", "--", "head")
    python: str  # its Python
    package: Package = field(repr=False)  # where it finds this package
    patience: float = 30.0  # s after which a silent host is given up while connecting

    def connect(self, module: str, **arguments: Any) -> Connection:
        """Start a module with a ``main(input, output, words)`` there, such as `AGENT`; raises `ConnectionLost`."""
        return Connection(self, module, arguments)

    def as_dict(self) -> dict[str, Any]:
        """As JSON, for a machine from which the package need not be sent."""
        return {**vars(self), "package": self.package.key}

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Gateway:
        """The reverse of `words`."""
        return cls(**{**fields, "command": tuple(fields["command"]), "package": Package(fields["package"])})


class Connection:
    """An agent that answers word by word; safe to use from several threads, one word at a time."""

    def __init__(self, gateway: Gateway, module: str, arguments: dict[str, Any]) -> None:
        self.gateway = gateway
        self._lock = threading.Lock()
        self._answered = False  # has the agent said anything? What comes before is the login's
        self._why = "the connection was closed"
        try:
            self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this
        except OSError as error:
            raise ConnectionLost(
                f"{gateway.host}: no file can be made for its messages ({reason(error)})"
            ) from None
        remote = " ".join(shlex.quote(argument) for argument in booted(gateway.python, module))
        streams: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        # Ctrl-C is not for it: a session of its own.
        command = [*gateway.command, f"exec {remote}"]
        try:
            self.process = subprocess.Popen(command, **streams, start_new_session=True)
        except OSError as error:
            self._errors.close()
            why = (
                "not found on this machine's PATH" if isinstance(error, FileNotFoundError) else reason(error)
            )
            raise ConnectionLost(
                f"{gateway.host}: {command[0]}: {why}; without it no host can be reached"
            ) from None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in, self._out = self.process.stdin, self.process.stdout
        try:
            self._boot({**arguments, "module": module})
        except BaseException:
            self.close()
            raise

    def _boot(self, arguments: dict[str, Any]) -> None:
        package = self.gateway.package
        order = {**arguments, "key": package.key, "bytes": len(package.archive)}
        try:
            self._put(BOOT_CODE + json.dumps(order).encode() + b"\n")
            if self._answer().endswith(b"need\n"):
                self._put(package.archive)
            self._answered = True
            # It speaks first: nothing may come before it listens.
            patience = START_FACTOR * self.gateway.patience
            if not select.select([self._out], [], [], patience)[0]:
                raise ConnectionLost(
                    f"{self.gateway.host}: no answer for {patience:g} s, while it should start"
                )
            message, _ = read_message(self._out, self.gateway.patience, until=time.monotonic() + patience)
        except (OSError, EOFError, ValueError) as error:
            raise self._lost(error) from None
        if "error" in message:
            raise ConnectionLost(f"{self.gateway.host}: {message['error']}")

    def _put(self, data: bytes) -> None:
        """Write while connecting; raises `ConnectionLost` where the other end does not read."""
        pipe, rest = self._in.fileno(), memoryview(data)
        os.set_blocking(pipe, False)
        try:
            while rest:
                if not select.select([], [pipe], [], self.gateway.patience)[1]:
                    raise ConnectionLost(
                        f"{self.gateway.host}: reads nothing for {self.gateway.patience:g} s"
                    )
                rest = rest[os.write(pipe, rest[:READ_BYTES]) :]
        finally:
            os.set_blocking(pipe, True)

    def _answer(self) -> bytes:
        """The line that says whether the package is there; what a login says before is skipped."""
        until, text = time.monotonic() + self.gateway.patience, b""
        while GREETING_MARK not in text or not text.endswith(b"\n"):
            left = max(until - time.monotonic(), 0.0)
            if not select.select([self._out], [], [], left)[0]:
                silent = f"no answer for {self.gateway.patience:g} s"
                why = login_text(text) if text else "its login may wait for input"
                raise ConnectionLost(f"{self.gateway.host}: {silent}; {why}")
            piece = os.read(self._out.fileno(), 1)
            if len(text) > MAX_LOGIN_BYTES or (text and not piece):
                raise NotAWord(text[:QUOTED_BYTES])
            if not piece:
                raise EOFError
            text += piece
        return text

    def ask(
        self, what: str, data: bytes = b"", progress: ProgressCallback = no_progress, **arguments: Any
    ) -> tuple[dict[str, Any], bytes]:
        """Return an answer; raises `ConnectionLost`, or `ClusterError` with what went wrong there.

        `progress` is told how far that is; if it raises, the connection is closed.
        """
        with self._lock:
            if self._errors.closed:
                raise ConnectionLost(f"{self.gateway.host}: {self._why}")
            try:
                write_message(self._in, {"what": what, **arguments}, data)
                while "progress" in (answer := self._heard())[0]:
                    progress(*answer[0]["progress"])
            except (OSError, EOFError, ValueError) as error:
                raise self._lost(error) from None
            except BaseException:  # what still comes would be taken for the next answer
                self.close()
                raise
        if "error" in answer[0]:
            raise ClusterError(answer[0]["error"])
        return answer

    def _heard(self) -> tuple[dict[str, Any], bytes]:
        """The next word, however long that takes to begin: what is asked for may last."""
        select.select([self._out], [], [])
        message, data = read_message(self._out, self.gateway.patience)
        progress = message.get("progress", ["", 0, 0])
        if not (isinstance(progress, list) and [type(each) for each in progress] == [str, int, int]):
            raise ValueError(f"{progress!r:.60} does not say how far it is")
        return _Answer(message), data

    def _lost(self, error: Exception) -> ConnectionLost:
        """What the connecting program, or Python there, said last; what comes later would be no whole word."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        self._errors.seek(0)
        errors = self._errors.read().decode(errors="replace").strip().splitlines()
        code = self.process.poll()
        self._why = quoted(errors[-1]) if errors else f"the connection ended (exit code {code})"
        self._why = self._why if errors or code is not None else f"no whole answer ({error})"
        heard = b""
        if isinstance(error, NotAWord) or not self._answered:
            heard = getattr(error, "heard", b"") + self._rest()
        if any(LOGIN_READ in line for line in errors):
            self._why = login_text(heard, f"{LOGIN_READ}{', and ' if heard else ''}")
        elif heard and not (errors and code):
            self._why = login_text(heard, f"the connection ended (exit code {code}): " if code else "")
        self.close()
        return ConnectionLost(f"{self.gateway.host}: {self._why}")

    def _rest(self) -> bytes:
        """Return what comes in the next moment, for a quotation."""
        heard, until = b"", time.monotonic() + QUOTED_S
        with contextlib.suppress(OSError, ValueError):
            while (
                len(heard) < QUOTED_BYTES
                and select.select([self._out], [], [], max(until - time.monotonic(), 0))[0]
            ):
                if not (piece := os.read(self._out.fileno(), QUOTED_BYTES)):
                    break
                heard += piece
        return heard

    def close(self) -> None:
        """End it; the agent ends when its input does. May be called again."""
        if self._errors.closed:
            return
        with contextlib.suppress(OSError):
            self._in.close()
        try:
            self.process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._out.close()
        self._errors.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Answer(dict[str, Any]):
    """A word from another machine, which may lack anything."""

    def __missing__(self, key: str) -> Any:
        raise ClusterError(
            f"the other machine's answer has no {key!r}; is there another version of the package?"
        )


def login_text(heard: bytes, before: str = "") -> str:
    """Return a sentence on a login that wrote into the connection, with the beginning of what it wrote.

    `before`: what else is known of it.

    >>> login_words(b"Welcome to w1!")[:37]
    "its login wrote 'Welcome to w1!' into"
    """
    text = quoted(heard[:QUOTED_BYTES].decode(errors="replace"), 120)
    wrote = f"its login wrote {text!r} into the connection" if heard else ""
    return f"{before}{wrote}; {LOGIN}"


def write_message(stream: IO[bytes], message: dict[str, Any], data: bytes = b"") -> None:
    """Send a word; raises OSError where nobody listens any more.

    >>> import io
    >>> stream = io.BytesIO()
    >>> write_word(stream, {"what": "news"}, b"123")
    >>> _ = stream.seek(0)
    >>> read_word(stream)
    ({'what': 'news'}, b'123')
    """
    text = json.dumps(message).encode()
    stream.write(_LENGTHS.pack(len(text), len(data)) + text)
    stream.write(data)
    stream.flush()


def read_message(
    stream: IO[bytes], patience: float | None = None, until: float = math.inf
) -> tuple[dict[str, Any], bytes]:
    """Wait for a word; raises EOFError where none comes any more, ValueError for what is none.

    `patience`: s of silence, before the word or in the middle of it, after which none comes any more. The stream is a
    file then, of which nothing was read ahead. `until`: moment of `time.monotonic` by which the word is complete.
    Lengths, and what the text stands for, are compared with the limits before memory is taken.
    """
    head = _exactly(stream, _LENGTHS.size, patience, until)
    text, data = _LENGTHS.unpack(head)
    if text > MAX_MESSAGE_BYTES or data > MAX_DATA_BYTES:
        raise NotAWord(head)
    check_size("an answer", data)
    text_read = _exactly(stream, text, patience, until)
    try:
        message = parse_json(text_read, "an answer")
    except SettingError:
        raise
    except ValueError:
        raise NotAWord(text_read[:QUOTED_BYTES]) from None
    if not isinstance(message, dict):
        raise NotAWord(text_read[:QUOTED_BYTES])
    return message, _exactly(stream, data, patience, until)


def _exactly(stream: IO[bytes], count: int, patience: float | None, until: float = math.inf) -> bytes:
    """Read so many bytes; raises EOFError where there are fewer."""
    pieces, left = [], count
    while left:
        if patience is None:
            piece = stream.read(left)
        else:
            wait = max(min(patience, until - time.monotonic()), 0.0)
            there = select.select([stream], [], [], wait)[0]
            piece = os.read(stream.fileno(), min(left, READ_BYTES)) if there else b""
        if not piece:
            raise EOFError(f"{left} of {count} bytes are missing")
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
