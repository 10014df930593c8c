"""Stand-in hosts on this machine: network namespaces, each with an sshd, on one bridge, with links limited by `tc tbf`.

Each host has its own name, home folder, /tmp, /dev/shm, processes and monotonic clock. It does not see the repository's
package, but shares Python's environment. Needs root, iproute2 and sshd.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from workbench.mpi.launch.processes import is_alive

ROOT = Path(__file__).parents[3]
HOME = Path(pwd.getpwuid(os.getuid()).pw_dir)  # as sshd uses it, whatever $HOME is
PATIENCE = 120.0  # s, on a loaded machine

# Shell script in separate namespaces: $1 folder, $2 name, $3 home, then folders that Python needs.
INSIDE = r"""
set -e
folder=$1 name=$2 home=$3; shift 3
mount --make-rprivate /
cover() {  # another folder in the place of $1, with what Python needs in it
    new=$folder$1; mkdir -p "$new"; target=$1; shift
    for kept in "$@"; do case $kept in "$target"/*)
        mkdir -p "$folder$kept"; mount --bind "$kept" "$folder$kept";; esac; done
    mount --rbind "$new" "$target"
}
mkdir -p "$folder/nothing"
mount --bind "$folder/nothing" "$PACKAGE"
cover "$home" "$@"; cover /dev/shm
cp -r "$folder/ssh" "$home/.ssh"; chmod 700 "$home/.ssh"; chmod 600 "$home"/.ssh/*
cover /tmp "$@"; chmod 1777 /tmp /dev/shm
hostname "$name"
exec /usr/sbin/sshd -D -e -f "$home/.ssh/sshd_config"
"""
SSHD = """\
ListenAddress {address}
HostKey {home}/.ssh/host_key
PidFile none
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
MaxStartups 200
LogLevel ERROR
"""
# The hosts stand for machines with the same processor, on which OpenBLAS chooses the same kernels as here.
KERNELS = "OPENBLAS_CORETYPE"


def missing() -> str:
    """Return why stand-in hosts are impossible here, or ""."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "stand-in hosts need root on Linux"
    lacking = [name for name in ("ip", "tc", "ssh", "ssh-keygen", "unshare") if shutil.which(name) is None]
    lacking += [] if Path("/usr/sbin/sshd").exists() else ["sshd"]
    if lacking:
        return f"stand-in hosts need {', '.join(lacking)}: apt-get install openssh-server iproute2"
    probe = f"wb{secrets.token_hex(3)}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode:
        return f"stand-in hosts need network namespaces: {made.stderr.strip()}"
    call("ip", "netns", "del", probe)
    return ""


def call(*command: str) -> str:
    """Run a command and return its output."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Host:
    """One stand-in host."""

    def __init__(self, hosts: Hosts, number: int) -> None:
        self.hosts, self.number = hosts, number
        self.name = f"w{number}"
        self.address = f"{hosts.network}.{10 + number}"
        self.space = f"{hosts.mark}n{number}"  # network namespace
        self.link = f"{hosts.mark}v{number}"
        self.folder = hosts.folder / self.name
        self.home = Path(f"{self.folder}{HOME}")
        self.log = self.folder / "sshd.log"

    def start(self) -> None:
        """Make the namespace and the link, and start sshd."""
        call("ip", "netns", "add", self.space)
        inside = ("ip", "-n", self.space)
        call("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.space)
        call("ip", "link", "set", self.link, "master", self.hosts.bridge, "up")
        call(*inside, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            call(*inside, "link", "set", device, "up")
        self._prepare()
        self.boot()

    def _prepare(self) -> None:
        """Write the keys of the host and the settings of its sshd."""
        ssh = self.folder / "ssh"
        ssh.mkdir(parents=True)
        for name in ("id_ed25519", "id_ed25519.pub"):
            shutil.copy(self.hosts.folder / name, ssh)
        shutil.copy(self.hosts.folder / "id_ed25519.pub", ssh / "authorized_keys")
        keygen(ssh / "host_key")
        settings = SSHD.format(address=self.address, home=HOME)
        settings += f"SetEnv {KERNELS}={os.environ[KERNELS]}\n" if KERNELS in os.environ else ""
        (ssh / "sshd_config").write_text(settings)

    def boot(self) -> None:
        """Start sshd in separate namespaces."""
        kept = [str(Path(p).resolve()) for p in (sys.prefix, sys.base_prefix)]
        ahead = str(1000 * self.number)  # s by which its monotonic clock is ahead
        apart = ["unshare", "-muipf", "--mount-proc", "-T", "--monotonic", ahead, "--boottime", ahead]
        sshd = ["bash", "-c", INSIDE, "inside", str(self.folder), self.name, str(HOME), *kept]
        with self.log.open("ab") as log:
            self.sshd = subprocess.Popen(
                ["ip", "netns", "exec", self.space, *apart, *sshd],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "PACKAGE": str(ROOT / "workbench")},
                start_new_session=True,
            )

    @property
    def key(self) -> str:
        """Return the line of the host in a known_hosts file."""
        kind, key, *_ = (self.folder / "ssh/host_key.pub").read_text().split()
        return f"{self.address} {kind} {key}\n"

    def pids(self) -> list[int]:
        """Return the ids of the processes that run on the host."""
        found = subprocess.run(["ip", "netns", "pids", self.space], capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]

    def commands(self) -> list[str]:
        """Return the ids and command lines of the processes of the host other than sshd."""
        found = []
        for pid in self.pids():
            text = self._line(pid)
            if text and not any(own in text.split()[1] for own in ("sshd", "unshare")):
                found.append(text)
        return found

    def _line(self, pid: int) -> str:
        """Return the id and the command line of a process, or "" if it has no command line."""
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            return f"{pid} {text}" if text else ""
        return ""

    def _inside(self) -> int:
        """Return the id of the sshd in the namespaces of the host."""
        lines = {pid: self._line(pid) for pid in self.pids()}
        return next(pid for pid, line in lines.items() if "/usr/sbin/sshd" in line and "unshare" not in line)

    def inside(self, path: str) -> Path:
        """Return the path on this machine of a file or folder of the host."""
        return Path(f"/proc/{self._inside()}/root{path}")

    def small_disk(self, folder: str, megabytes: int) -> None:
        """Mount a disk of that size in the place of a folder."""
        size = f"size={megabytes}m,mode=1777"
        call("nsenter", "-t", str(self._inside()), "-m", "mount", "-t", "tmpfs", "-o", size, "tmpfs", folder)

    def limit(self, bits: float | None) -> None:
        """Limit the bits per second that the host sends and receives. None removes the limit."""
        for way, device in ((("tc", "-n", self.space), "eth0"), (("tc",), self.link)):
            subprocess.run([*way, "qdisc", "del", "dev", device, "root"], capture_output=True, check=False)
            if bits is not None:
                burst = str(max(int(bits / 8 / 100), 5000))
                limits = ("rate", f"{int(bits)}bit", "burst", burst, "latency", "400ms")
                call(*way, "qdisc", "replace", "dev", device, "root", "tbf", *limits)

    def cut(self) -> None:
        """Take the link down."""
        call("ip", "link", "set", self.link, "down")

    def power_off(self) -> None:
        """Disconnect the host from the network, and end its processes."""
        self.cut()
        self.kill()

    def kill(self) -> None:
        """End all processes of the host."""
        until = time.monotonic() + PATIENCE
        while pids := [pid for pid in self.pids() if is_alive(pid)]:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert time.monotonic() < until, self.commands()
            time.sleep(0.02)
        self.sshd.wait()

    def end(self) -> None:
        """Remove the namespace and the link."""
        self.kill()
        subprocess.run(["ip", "netns", "del", self.space], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self.link], check=False, capture_output=True)


class Hosts:
    """Stand-in hosts on a bridge, on which the machine that runs the tests has an address as well."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.mark = f"wb{secrets.token_hex(3)}"
        self.bridge = f"{self.mark}b"
        self.network = f"10.99.{free_network()}"
        folder.mkdir(parents=True, exist_ok=True)
        keygen(folder / "id_ed25519")
        self.hosts = [Host(self, number) for number in range(1, count + 1)]
        self.known = folder / "known_hosts"

    def start(self) -> None:
        """Make the bridge, and start all hosts."""
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd needs this folder
        call("ip", "link", "add", self.bridge, "type", "bridge")
        call("ip", "addr", "add", f"{self.network}.1/24", "dev", self.bridge)
        call("ip", "link", "set", self.bridge, "up")
        for host in self.hosts:
            host.start()
        self.known.write_text("".join(host.key for host in self.hosts))
        for host in self.hosts:
            self.await_sshd(host)

    def await_sshd(self, host: Host) -> None:
        """Wait until logins are accepted."""
        until = time.monotonic() + PATIENCE
        while subprocess.run([*self.ssh(host), "true"], capture_output=True).returncode:
            assert host.sshd.poll() is None, host.log.read_text()
            assert time.monotonic() < until, host.log.read_text()
            time.sleep(0.1)

    def ssh(self, host: Host) -> list[str]:
        """Return the command line that logs in on a host."""
        options = {
            "IdentityFile": self.folder / "id_ed25519",
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.known,
            "BatchMode": "yes",
            "ConnectTimeout": "5",
        }
        return ["ssh", "-F", "none", *(f"-o{k}={v}" for k, v in options.items()), host.address]

    def cut_client(self) -> None:
        """Cut the connection between this machine and the hosts, which still reach each other."""
        call("ip", "addr", "del", f"{self.network}.1/24", "dev", self.bridge)

    def repair_client(self) -> None:
        """Restore the connection."""
        call("ip", "addr", "add", f"{self.network}.1/24", "dev", self.bridge)

    def end(self) -> None:
        """Remove the hosts and the bridge."""
        for host in self.hosts:
            host.end()
        subprocess.run(["ip", "link", "del", self.bridge], check=False, capture_output=True)


def keygen(path: Path) -> None:
    """Make a new key without a passphrase."""
    call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path))


def free_network() -> int:
    """Return the third number of a network 10.99.x.0/24 that no device here has."""
    taken = call("ip", "-o", "addr")
    free = [n for n in range(1, 255) if f" 10.99.{n}." not in taken]
    return secrets.choice(free)


@contextlib.contextmanager
def standing(folder: Path, count: int) -> Iterator[Hosts]:
    """Run stand-in hosts inside the context."""
    hosts = Hosts(folder, count)
    try:
        hosts.start()
        yield hosts
    finally:
        hosts.end()


def write_yaml(hosts: Hosts, name: str = "lab", /, **fields: object) -> Path:
    """Write the cluster file of stand-in hosts. `fields` are added to its lines, or replace them, as YAML."""
    lines = {
        "kind": "ssh",
        "hosts": f"[{', '.join(host.address for host in hosts.hosts)}]",
        "identity": hosts.folder / "id_ed25519",
        "known_hosts": hosts.known,
        "python": sys.executable,
        **fields,
    }
    path = hosts.folder / f"{name}.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
    return path
