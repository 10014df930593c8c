"""Access to the machines on EC2: keys, user data for their first start, and configuration files of ssh.

Four key pairs are made here for each cluster, and deleted with it:

* This machine opens all machines with one. EC2 gets only its public half.
* The head opens the workers with another one. `deliver` copies it to the head alone. Workers hold no private key.
* The head, and all workers together, identify themselves with host keys made here.

The host keys travel as user data, so that even the first connection can be checked strictly. Reading keys from EC2's
console output takes minutes per machine, sometimes fails, and depends on the image. The drawback: a user who may read
the account's user data can read these host keys, which are valid until the cluster ends. A matching host key also
proves that a machine has executed its user data, which sets the time of its end.
"""

import shlex
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from workbench.core.base.errors import ClusterError, reason
from workbench.core.base.files import write_file
from workbench.core.base.reading import read_text
from workbench.core.base.text import dump
from workbench.mpi.launch.package import tarred
from workbench.mpi.launch.reports import ProgressCallback, no_progress

# Files of the private keys.
OWN, INNER, HEAD_HOST, WORKERS_HOST = "key", "inner", "host_head", "host_workers"
CONFIG, KNOWN = "ssh_config", "known_hosts"
POLL_INTERVAL_S = 5.0  # s between two polls
REACH_TIMEOUT_S = 900.0  # s within which all machines must be reachable
ANSWER_TIMEOUT_S = 900.0  # max time to wait for an answer of the head, s
_END = "/var/lib/cloud/scripts/per-boot/workbench-end"
_SCHEDULED = "/run/systemd/shutdown/scheduled"


def make_keys(folder: Path) -> None:
    """Make those of the four key pairs that do not exist yet."""
    for name in (OWN, INNER, HEAD_HOST, WORKERS_HOST):
        if (folder / name).exists():
            continue
        argv = ["-q", "-t", "ed25519", "-N", "", "-C", f"workbench {name}", "-f", str(folder / name)]
        try:
            subprocess.run(["ssh-keygen", *argv], check=True, capture_output=True, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError) as error:
            why = f"ssh-keygen: no key could be made ({error}); install OpenSSH's client"
            raise ClusterError(why) from None


def public(folder: Path, name: str) -> str:
    """Return the public half of a key pair: kind and key."""
    kind, key, *_ = read_text(folder / f"{name}.pub").split()
    return f"{kind} {key}"


def user_data(folder: Path, host: str, deadline: float, opens: Sequence[str] = ()) -> str:
    """Return user data for the first start: set the host key, authorise the public keys `opens`, end at `deadline`."""
    end = (
        "#!/bin/sh\n"
        "# Ends this machine at the time that was set when it was ordered, after a restart too.\n"
        f"left=$(( ({int(deadline)} - $(date +%s) + 59) / 60 ))\n"
        '[ "$left" -gt 0 ] || left=0\n'
        'exec shutdown -P "+$left" "the hours of this cluster are over"\n'
    )
    private = read_text(folder / host)
    fields: dict[str, object] = {"ssh_deletekeys": True, "ssh_pwauth": False}
    fields |= {"ssh_keys": {"ed25519_private": private, "ed25519_public": public(folder, host)}}
    fields |= {"ssh_authorized_keys": list(opens)}
    fields |= {"write_files": [{"path": _END, "permissions": "0755", "content": end}]}
    return "#cloud-config\n" + dump(fields)


def write_access(folder: Path, user: str, address: str, head: str, workers: Sequence[str]) -> None:
    """Write ssh's files: from here to the head at its public address, and through it to the workers."""
    known = [f"head,{address},{head} {public(folder, HEAD_HOST)}\n"]
    known += [f"{worker} {public(folder, WORKERS_HOST)}\n" for worker in workers]
    common = _common(user, _quoted(folder / OWN), _quoted(folder / KNOWN))
    # not ProxyJump, which does not support paths with spaces
    jump = f"ssh -F {shlex.quote(str(folder / CONFIG)).replace('%', '%%')} -W [%h]:%p head"
    through = f"Host {' '.join(workers)}\n  ProxyCommand {jump}\n" if workers else ""
    write_file(folder / KNOWN, "".join(known), private=True)
    config = f"Host head {head}\n  HostName {address}\n{through}Host *\n{common}"
    write_file(folder / CONFIG, config, private=True)


def _common(user: str, key: str, known: str) -> str:
    """Return the settings of every connection: one key, known hosts only, no questions."""
    return f"""\
  User {user}
  IdentityFile {key}
  IdentitiesOnly yes
  UserKnownHostsFile {known}
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  UpdateHostKeys no
  BatchMode yes
  ForwardAgent no
  ConnectTimeout 10
  ServerAliveInterval 15
"""


def deliver(
    folder: Path, user: str, workers: Sequence[str], progress: ProgressCallback = no_progress
) -> None:
    """Copy the workers' key to the head, and wait until all machines are reached and have their end scheduled.

    Raises `ClusterError` if this takes more than 15 minutes.
    """
    end = time.monotonic() + REACH_TIMEOUT_S
    luggage = _ssh_archive(folder, user, workers)
    unpack = "umask 077 && mkdir -p .ssh && tar -x -C .ssh"
    total = len(workers) + 1
    while (answer := _ssh(folder, unpack, luggage)).returncode:
        lines = answer.stderr.decode(errors="replace").strip().splitlines()
        last = lines[-1] if lines else f"ssh ended with {answer.returncode}"
        _wait(end, f"the head cannot be reached ({last})")
        progress("reaching machines", 0, total)
    while waiting := _unready(folder, workers):
        who = f"{len(waiting)} of {total} cannot be reached, or would not end themselves"
        _wait(end, f"{who}: {', '.join(waiting[:5])}")
        progress("reaching machines", total - len(waiting), total)
    progress("reaching machines", total, total)


def _ssh_archive(folder: Path, user: str, workers: Sequence[str]) -> bytes:
    """Return the head's .ssh folder as a tar file."""
    known = "".join(f"{worker} {public(folder, WORKERS_HOST)}\n" for worker in workers)
    common = _common(user, "~/.ssh/workbench", "~/.ssh/workbench_known_hosts")
    files = {"workbench": read_text(folder / INNER), "workbench_known_hosts": known}
    files |= {"workbench_hosts": "".join(f"{worker}\n" for worker in workers), "config": f"Host *\n{common}"}
    return tarred({name: text.encode() for name, text in files.items()}, mode=0o600)


def _unready(folder: Path, workers: Sequence[str]) -> list[str]:
    """Return the machines that the head cannot reach or whose end is not scheduled. The head asks 32 at a time."""
    look = f"test -e {_SCHEDULED}"
    each = f'ssh -n "$0" {look} >/dev/null 2>&1 || echo "$0"'
    every = f"xargs -r -P 32 -n 1 sh -c '{each}' <.ssh/workbench_hosts"
    answer = _ssh(folder, f"{look} || echo head; {every}", b"")
    if answer.returncode:
        return ["head"]
    # other words are ignored, because the head's login script may print text
    return [word for word in answer.stdout.decode(errors="replace").split() if word in ("head", *workers)]


def _ssh(folder: Path, command: str, stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    call = ["ssh", "-F", str(folder / CONFIG), "head", command]
    try:
        return subprocess.run(call, input=stdin, capture_output=True, check=False, timeout=ANSWER_TIMEOUT_S)
    except OSError as error:
        why = "not found on this machine's PATH" if isinstance(error, FileNotFoundError) else reason(error)
        raise ClusterError(f"ssh: {why}; install OpenSSH's client") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"the head: no answer for {ANSWER_TIMEOUT_S:g} s") from None


def _wait(end: float, why: str) -> None:
    if time.monotonic() > end:
        raise ClusterError(f"after {REACH_TIMEOUT_S:g} s, {why}")
    time.sleep(POLL_INTERVAL_S)


def _quoted(path: Path) -> str:
    """Return a path as ssh's configuration takes it."""
    return '"' + str(path).replace("%", "%%") + '"'
