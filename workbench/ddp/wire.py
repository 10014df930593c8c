"""Messages between ranks and the master: a header in JSON and raw bytes, over a stream of bytes, without pickle."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import struct
import threading
from collections.abc import Mapping
from typing import Any

from workbench.core.base.errors import RunError

SIZES = struct.Struct("!IQ")  # bytes of the header, bytes of the values
MAX_HEADER_BYTES = 2**26
MAX_PAYLOAD_BYTES = 2**37
MAX_HELLO_BYTES = 2**12  # max bytes of the first message, whose sender is not known yet
BUFFER_BYTES = 2**22  # requested size of the system's buffers of a connection, bytes


class Channel:
    """One end of a connection between a rank and the master."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._later: threading.Thread | None = None  # thread that sends a message
        for size in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            connection.setsockopt(socket.SOL_SOCKET, size, BUFFER_BYTES)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def send(self, header: Mapping[str, Any], payload: Any = b"") -> None:
        """Send a message, after all messages of `send_later`. Raises `OSError` if the other end is closed."""
        self._flush()
        self._send(header, payload)

    def send_later(self, header: Mapping[str, Any], payload: Any = b"") -> None:
        """Send a message in another thread, so that a large one does not delay the caller.

        `payload` must not change before the next call of `send` or `send_later` returns. If the other end is closed, no
        error is raised here, but by the next call of `send` or `receive`.
        """
        self._flush()
        self._later = threading.Thread(target=self._try_to_send, args=(header, payload), daemon=True)
        self._later.start()

    def _try_to_send(self, header: Mapping[str, Any], payload: Any) -> None:
        with contextlib.suppress(OSError):
            self._send(header, payload)

    def _flush(self) -> None:
        if self._later is not None:
            self._later.join()

    def _send(self, header: Mapping[str, Any], payload: Any) -> None:
        text, values = json.dumps(header).encode(), memoryview(payload).cast("B")
        self.connection.sendall(SIZES.pack(len(text), len(values)) + text)
        if len(values):
            self.connection.sendall(values)

    def receive_hello(self) -> dict[str, Any]:
        """Return the first message of a peer. It is short and has no values. Raises as `receive` does."""
        header, _ = self.receive(max_header=MAX_HELLO_BYTES, max_values=0)
        if not isinstance(header, dict):
            raise RunError("message: is not a mapping; start all ranks with one version")
        return header

    def receive(
        self,
        room: memoryview | None = None,
        max_header: int = MAX_HEADER_BYTES,
        max_values: int = MAX_PAYLOAD_BYTES,
    ) -> tuple[dict[str, Any], memoryview]:
        """Return the header and the values of the next message.

        If the values have as many bytes as `room`, they are written into it. Raises `OSError` if the other end is
        closed, and `RunError` for bytes that are not a message, or for more bytes than the limits.
        """
        text_bytes, value_bytes = SIZES.unpack(self._read(memoryview(bytearray(SIZES.size))))
        if text_bytes > max_header or value_bytes > max_values:
            raise RunError(f"message: has {text_bytes + value_bytes} bytes; start all ranks with one version")
        header = json.loads(bytes(self._read(memoryview(bytearray(text_bytes)))))
        fits = room is not None and len(room) == value_bytes
        return header, self._read(room if fits and room is not None else memoryview(bytearray(value_bytes)))

    def _read(self, room: memoryview) -> memoryview:
        done = 0
        while done < len(room):
            count = self.connection.recv_into(room[done:])
            if not count:
                raise ConnectionResetError("the other end is closed")
            done += count
        return room

    def close(self) -> None:
        """Close the connection, after all messages are sent."""
        self._flush()
        self.connection.close()


def connect(address: str) -> Channel:
    """Return a connection to a master at a path of a socket, or at HOST:PORT. Raises `OSError`."""
    if "/" in address:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        return Channel(connection)
    host, _, port = address.rpartition(":")
    return Channel(socket.create_connection((host, int(port))))


def digest(values: Any, length: int = 8) -> str:
    """Return a hash of bytes, in hexadecimal digits.

    >>> digest(b"gradient")
    'e2ec72c3fd55ed74'
    """
    return hashlib.blake2b(values, digest_size=length).hexdigest()
