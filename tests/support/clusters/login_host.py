"""A login host on this machine: a separate sshd on loopback, and the files of a client."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.clusters.slurm_machine import end, free_ports

SSHD = "/usr/sbin/sshd"
SETTINGS = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile {folder}/pid
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
LogLevel ERROR
SetEnv {environment}
"""
PATIENCE = 120.0  # s, on a loaded machine


def missing() -> str | None:
    """Return why a login host is impossible here, or None."""
    absent = [name for name in ("ssh", "ssh-keygen") if shutil.which(name) is None]
    absent += [] if Path(SSHD).exists() else ["sshd"]
    return f"no {', '.join(absent)}: apt-get install openssh-client openssh-server" if absent else None


class LoginHost:
    """sshd whose sessions have further variables."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder, self.environment = folder, environment
        self.port = free_ports(1)[0]

    def up(self) -> None:
        """Make keys, start the daemon, wait until it listens."""
        Path("/run/sshd").mkdir(exist_ok=True)
        self.folder.mkdir()
        for name in ("host_key", "key"):
            texts = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
            subprocess.run(texts, check=True)
        assignments = " ".join(f"{name}={value}" for name, value in self.environment.items())
        text = SETTINGS.format(port=self.port, folder=self.folder, environment=assignments)
        (self.folder / "sshd_config").write_text(text)
        public = (self.folder / "host_key.pub").read_text()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {public}")
        (self.folder / "config").write_text(f"Host login\n HostName 127.0.0.1\n Port {self.port}\n")
        subprocess.run([SSHD, "-f", str(self.folder / "sshd_config")], check=True)
        until = time.monotonic() + PATIENCE
        while socket.socket().connect_ex(("127.0.0.1", self.port)):
            assert time.monotonic() < until, "sshd does not listen"
            time.sleep(0.05)

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields of a cluster file for this host."""
        files = {"identity": "key", "config": "config", "known_hosts": "known_hosts"}
        return {
            "login": "login",
            "python": sys.executable,
            **{k: str(self.folder / v) for k, v in files.items()},
        }

    def down(self) -> None:
        """End the daemon."""
        if (self.folder / "pid").is_file():
            end(int((self.folder / "pid").read_text()))
