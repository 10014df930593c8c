"""Connection to another machine, on which an agent answers questions.

The connection is a child process (ssh) whose input and output carry messages. Each message is a JSON object, which
bytes may follow. Nothing listens on a port for it.
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

# modules that run at the other end of a connection: agent of a site, process on a host
AGENT, HOST = "workbench.mpi.clusters.agent", "workbench.mpi.launch.hosts.host"
CLOSE_TIMEOUT_S = 3.0  # seconds in which a connection may end by itself, before it is killed
MAX_LOGIN_BYTES = 2**16  # max bytes of a login's output before the first message
# max bytes of a login's output that an error quotes, and s in which they are read
QUOTED_BYTES, QUOTED_S = 400, 0.2
LOGIN = "~/.bashrc and the like must write and read nothing in shells without a terminal"
_LENGTHS = struct.Struct(">QQ")
MAX_MESSAGE_BYTES, MAX_DATA_BYTES = 2**26, 2**32  # max bytes of a message; longer ones are not from the agent
READ_BYTES = 2**20  # bytes read at once
START_FACTOR = 4  # multiple of `patience` for the start of Python and the package


class ConnectionLost(ClusterError):
    """The connection to a host is broken, or was never made."""


class NotAMessage(ValueError):
    """Bytes that are not a message of the agent. `beginning`: the first of them."""

    def __init__(self, beginning: bytes) -> None:
        super().__init__(f"{beginning[:60]!r} is not a message")
        self.beginning = beginning


@dataclass(frozen=True)
class Gateway:
    """Access to a machine, and to this package there."""

    host: str  # name of the host, for messages
    command: tuple[str, ...]  # command that runs another one there, such as ("ssh", "-T", "--", "head")
    python: str  # Python on the host
    package: Package = field(repr=False)  # package on the host
    patience: float = 30.0  # s after which a silent host is given up while connecting

    def connect(self, module: str, **arguments: Any) -> Connection:
        """Start a module with a ``main(input, output, fields)`` there, such as `AGENT`. Raises `ConnectionLost`."""
        return Connection(self, module, arguments)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, for a machine from which the package need not be sent."""
        return {**vars(self), "package": self.package.key}

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Gateway:
        """Return the gateway of an `as_dict`."""
        return cls(**{**fields, "command": tuple(fields["command"]), "package": Package(fields["package"])})


class Connection:
    """Connection to an agent. It is thread safe, with one question at a time."""

    def __init__(self, gateway: Gateway, module: str, arguments: dict[str, Any]) -> None:
        self.gateway = gateway
        self._lock = threading.Lock()
        self._answered = False  # whether the agent has answered; earlier output is the login's
        self._why = "the connection was closed"
        try:
            self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this
        except OSError as error:
            raise ConnectionLost(
                f"{gateway.host}: no file can be made for its messages ({reason(error)})"
            ) from None
        remote = " ".join(shlex.quote(argument) for argument in booted(gateway.python, module))
        streams: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        # in a new session, so that Ctrl-C does not reach the process
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
            # The agent sends first: nothing may be sent before it reads.
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
        """Write while connecting. Raises `ConnectionLost` if the other end does not read."""
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
        """Return the first answer (whether the host has the package), with any output of the login before it."""
        until, text = time.monotonic() + self.gateway.patience, b""
        while GREETING_MARK not in text or not text.endswith(b"\n"):
            left = max(until - time.monotonic(), 0.0)
            if not select.select([self._out], [], [], left)[0]:
                silent = f"no answer for {self.gateway.patience:g} s"
                why = login_text(text) if text else "its login may wait for input"
                raise ConnectionLost(f"{self.gateway.host}: {silent}; {why}")
            piece = os.read(self._out.fileno(), 1)
            if len(text) > MAX_LOGIN_BYTES or (text and not piece):
                raise NotAMessage(text[:QUOTED_BYTES])
            if not piece:
                raise EOFError
            text += piece
        return text

    def ask(
        self, what: str, data: bytes = b"", progress: ProgressCallback = no_progress, **arguments: Any
    ) -> tuple[dict[str, Any], bytes]:
        """Return the answer to a question. Raises `ConnectionLost`, or `ClusterError` with the error of the agent.

        `progress` is called during the work. If it raises, the connection is closed.
        """
        with self._lock:
            if self._errors.closed:
                raise ConnectionLost(f"{self.gateway.host}: {self._why}")
            try:
                write_message(self._in, {"what": what, **arguments}, data)
                while "progress" in (answer := self._next_message())[0]:
                    progress(*answer[0]["progress"])
            except (OSError, EOFError, ValueError) as error:
                raise self._lost(error) from None
            except BaseException:  # closed, because the late answer would count as that of the next question
                self.close()
                raise
        if "error" in answer[0]:
            raise ClusterError(answer[0]["error"])
        return answer

    def _next_message(self) -> tuple[dict[str, Any], bytes]:
        """Return the next message. Its beginning is awaited without a limit, because the work may take long."""
        select.select([self._out], [], [])
        message, data = read_message(self._out, self.gateway.patience)
        progress = message.get("progress", ["", 0, 0])
        if not (isinstance(progress, list) and [type(each) for each in progress] == [str, int, int]):
            raise ValueError(f"{progress!r:.60} is not a progress report")
        return _Answer(message), data

    def _lost(self, error: Exception) -> ConnectionLost:
        """Return the error of a broken connection, with the last output of ssh or of Python there, and close it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        self._errors.seek(0)
        errors = self._errors.read().decode(errors="replace").strip().splitlines()
        code = self.process.poll()
        self._why = quoted(errors[-1]) if errors else f"the connection ended (exit code {code})"
        self._why = self._why if errors or code is not None else f"no whole answer ({error})"
        output = b""
        if isinstance(error, NotAMessage) or not self._answered:
            output = getattr(error, "beginning", b"") + self._rest()
        if any(LOGIN_READ in line for line in errors):
            self._why = login_text(output, f"{LOGIN_READ}{', and ' if output else ''}")
        elif output and not (errors and code):
            self._why = login_text(output, f"the connection ended (exit code {code}): " if code else "")
        self.close()
        return ConnectionLost(f"{self.gateway.host}: {self._why}")

    def _rest(self) -> bytes:
        """Return the output that comes within a moment, to quote it in an error."""
        output, until = b"", time.monotonic() + QUOTED_S
        with contextlib.suppress(OSError, ValueError):
            while (
                len(output) < QUOTED_BYTES
                and select.select([self._out], [], [], max(until - time.monotonic(), 0))[0]
            ):
                if not (piece := os.read(self._out.fileno(), QUOTED_BYTES)):
                    break
                output += piece
        return output

    def close(self) -> None:
        """Close the connection. The agent ends when its input does. May be called repeatedly."""
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
    """Fields of an answer of another machine. A missing field raises an error of one sentence."""

    def __missing__(self, key: str) -> Any:
        raise ClusterError(
            f"the other machine's answer has no {key!r}; is there another version of the package?"
        )


def login_text(output: bytes, before: str = "") -> str:
    """Return a sentence on a login that wrote into the connection, with the beginning of its output.

    `before`: text that precedes it.

    >>> login_text(b"Welcome to w1!")[:37]
    "its login wrote 'Welcome to w1!' into"
    """
    text = quoted(output[:QUOTED_BYTES].decode(errors="replace"), 120)
    wrote = f"its login wrote {text!r} into the connection" if output else ""
    return f"{before}{wrote}; {LOGIN}"


def write_message(stream: IO[bytes], message: dict[str, Any], data: bytes = b"") -> None:
    """Send a message. Raises OSError if no process reads it.

    >>> import io
    >>> stream = io.BytesIO()
    >>> write_message(stream, {"what": "news"}, b"123")
    >>> _ = stream.seek(0)
    >>> read_message(stream)
    ({'what': 'news'}, b'123')
    """
    text = json.dumps(message).encode()
    stream.write(_LENGTHS.pack(len(text), len(data)) + text)
    stream.write(data)
    stream.flush()


def read_message(
    stream: IO[bytes], patience: float | None = None, until: float = math.inf
) -> tuple[dict[str, Any], bytes]:
    """Wait for a message. Raises EOFError if none arrives, and ValueError if it is not a message.

    `patience`: seconds of silence, before or inside the message, after which waiting ends. The stream must then be an
    unbuffered file. `until`: time of `time.monotonic` by which the message has to be complete. Lengths are compared
    with the limits before memory is allocated.
    """
    head = _exactly(stream, _LENGTHS.size, patience, until)
    text, data = _LENGTHS.unpack(head)
    if text > MAX_MESSAGE_BYTES or data > MAX_DATA_BYTES:
        raise NotAMessage(head)
    check_size("an answer", data)
    text_read = _exactly(stream, text, patience, until)
    try:
        message = parse_json(text_read, "an answer")
    except SettingError:
        raise
    except ValueError:
        raise NotAMessage(text_read[:QUOTED_BYTES]) from None
    if not isinstance(message, dict):
        raise NotAMessage(text_read[:QUOTED_BYTES])
    return message, _exactly(stream, data, patience, until)


def _exactly(stream: IO[bytes], count: int, patience: float | None, until: float = math.inf) -> bytes:
    """Read `count` bytes. Raises EOFError if there are fewer."""
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
