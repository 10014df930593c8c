"""Machines on Amazon EC2, by the hour: `up` starts them, and `down` ends them.

While they are up, they are a cluster of kind ssh. This machine reaches their head by ssh, and the head reaches the
workers. `workbench.mpi.clusters.ssh` does the rest. See docs/how-to/ec2.md and docs/explanation/ec2.md.
"""

import contextlib
import getpass
import re
import secrets
import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from workbench.core.base.errors import ClusterError
from workbench.core.base.settings import SettingError
from workbench.mpi.clusters.base import Cluster
from workbench.mpi.clusters.ec2 import access
from workbench.mpi.clusters.ec2 import notes as ec2_notes
from workbench.mpi.clusters.ec2.aws import account_number, errors_as_sentences
from workbench.mpi.clusters.ec2.fleet import MACHINES_PER_CALL, Fleet, Machine
from workbench.mpi.clusters.ec2.launch import Launch
from workbench.mpi.clusters.ec2.notes import Notes
from workbench.mpi.clusters.ec2.prices import END_DELAY_H, bursts, credit_note
from workbench.mpi.clusters.ec2.requests import HEAD, LaunchRequest, MachineGroup, group_of, state
from workbench.mpi.clusters.ec2.settings import Ec2Settings
from workbench.mpi.clusters.ssh import Ssh
from workbench.mpi.launch.gateway import Gateway
from workbench.mpi.launch.reports import HostState, ProgressCallback, Status, no_progress
from workbench.mpi.launch.site import Site

_CHANGEABLE_FIELDS = {"ssh_from", "prices", "price"}  # fields that may change while the machines are up


class Ec2(Ec2Settings):
    """Machines on Amazon EC2."""

    kind = "ec2"

    elsewhere: ClassVar[bool] = True

    @property
    def folder(self) -> Path:
        """Folder of notes and keys on this machine, while the cluster is up. Raises `SettingError` without a name."""
        if not self.name:
            raise SettingError("name: is missing; write the cluster into a file clusters/NAME.yaml")
        return ec2_notes.folder_of(self.name)

    @cached_property
    def fleet(self) -> Fleet:
        """Machines of this cluster, as EC2 lists them."""
        try:
            login = getpass.getuser()
        except (OSError, KeyError):  # some containers have no user name
            login = "user"
        letters = re.sub(r"[^a-z0-9-]", "-", login.lower())[:40]  # only characters that a tag may have
        return Fleet(f"{self.owner or letters}/{self.name}", self.region)

    def up(self, progress: ProgressCallback = no_progress) -> None:
        """Start the machines, after the user has seen the maximal cost and typed the cluster's name.

        If they are up already, the call only opens ssh for the present address. If the call raises, also after Ctrl-C,
        everything that the call started is ended. Raises `SettingError` and `ClusterError`.

        >>> cluster = clusters.load("fleet")  # doctest: +SKIP
        >>> cluster.up()  # prints the maximal cost, asks, starts, waits  # doctest: +SKIP
        >>> wb.run(experiment, engine="mpi", cluster="fleet", emulate="nothing")  # doctest: +SKIP
        >>> cluster.down()  # doctest: +SKIP
        """
        with ec2_notes.alone(self.folder):
            notes = self._noted(progress) or self._agreed()
            try:
                launch = Launch(self.fleet, self._order(notes), progress)
                launch.up(lambda machines: self._reach(notes, machines, progress), notes.complete)
            except BaseException:
                with contextlib.suppress(ClusterError):
                    if not notes.complete and not self.fleet.left():
                        ec2_notes.forget(self.folder)
                raise
        print(f"log in to the head: ssh -F {shlex.quote(str(self.folder / access.CONFIG))} head")

    def down(self, progress: ProgressCallback = no_progress) -> None:
        """End all machines of the cluster, and everything made for them. Raises `ClusterError` if anything is left."""
        with ec2_notes.alone(self.folder):
            with contextlib.suppress(ec2_notes.Damaged):
                self._moved(ec2_notes.read(self.folder))
            self.fleet.down(progress)
            ec2_notes.forget(self.folder)

    def _noted(self, progress: ProgressCallback) -> Notes | None:
        """Return the notes of machines that are up or were being started, or None for a new start."""
        notes = ec2_notes.read(self.folder)
        self._moved(notes)
        if notes is not None and not self.fleet.machines():
            # The machines ended themselves, but the security group and the key still exist
            self.fleet.down(progress)
            ec2_notes.forget(self.folder)
            return None
        if notes is None:
            if left := self.fleet.left():
                raise ClusterError(
                    f"{self.fleet!r}: {sum(map(len, left.values()))} resources exist that are not in this"
                    " machine's notes; end them first (workbench cluster down)"
                )
        elif changed := [key for key, value in self._asked().items() if notes.asked.get(key) != value]:
            raise SettingError(
                f"{changed[0]} = {self._asked()[changed[0]]!r}: {self.name} is up with {notes.asked.get(changed[0])!r};"
                f" put that back, or end it first (workbench cluster down {self.name})"
            )
        return notes

    def _moved(self, notes: Notes | None) -> None:
        """Raise `SettingError` if region or owner has changed, since machines are found by these two."""
        if notes is None:
            return
        for field in ("region", "owner"):
            if (then := notes.asked[field]) != (now := getattr(self, field)):
                raise SettingError(f"{field} = {now!r}: {self.name} is up with {then!r}; put that back first")

    def _asked(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude=_CHANGEABLE_FIELDS)

    def _agreed(self) -> Notes:
        """Show the bill, ask the user, and return the notes of a new launch. Raises `ClusterError` if not confirmed."""
        bill, account = self.bill(), account_number(self.region)
        text = f"{self.name}: {self.described}, account {account}\n{bill.text()}\n"
        print(f"{text}Type {self.name} to start them: ", end="", flush=True)
        try:
            typed = input()
        except EOFError:
            typed = ""
        if typed.strip() != self.name:
            raise ClusterError(f"{typed.strip()!r}: is not {self.name!r}; nothing was started")
        now = time.time()
        asked, end = self._asked(), now + 3600 * self.hours
        notes = Notes(secrets.token_hex(8), now, end, asked, dict(bill.prices), bill.ceiling)
        ec2_notes.write(self.folder, notes)
        return notes

    def _order(self, notes: Notes) -> LaunchRequest:
        """Return the launch request of some notes. EC2 carries out an equal request only once."""
        access.make_keys(self.folder)
        script = access.user_data(self.folder, access.HEAD_HOST, notes.deadline)
        inner = [access.public(self.folder, access.INNER)]
        worker = access.user_data(self.folder, access.WORKERS_HOST, notes.deadline, inner)
        parts = [MachineGroup(HEAD, self.head_type, 1, script, f"{notes.launch}-{HEAD}")]
        for k, first in enumerate(range(0, self.workers, MACHINES_PER_CALL)):
            count, name = min(MACHINES_PER_CALL, self.workers - first), f"workers-{k:03}"
            parts.append(MachineGroup(name, self.worker_type, count, worker, f"{notes.launch}-{name}"))
        key = access.public(self.folder, access.OWN)
        return LaunchRequest(self.fleet.tag, notes.launch, tuple(parts), key, self)

    def _reach(self, notes: Notes, machines: list[Machine], progress: ProgressCallback) -> None:
        """Configure ssh for all machines, check that runs can start, and write the addresses into the notes."""
        with errors_as_sentences():
            head = next(m for m in machines if group_of(m) == HEAD)
            if (address := head.get("PublicIpAddress")) is None:
                address = head["NetworkInterfaces"][0]["Ipv6Addresses"][0]["Ipv6Address"]
            workers = tuple(m["PrivateIpAddress"] for m in machines if group_of(m) != HEAD)
            private = head["PrivateIpAddress"]
        access.write_access(self.folder, self.user, address, private, workers)
        access.deliver(self.folder, self.user, workers, progress)
        notes = replace(notes, address=address, head=private, workers=workers)
        if workers:
            self._ssh(notes).checked("runs cannot start", progress)
        ec2_notes.write(self.folder, notes)

    @property
    def machines(self) -> Ssh:
        """The machines as a cluster of kind ssh. Raises `ClusterError` if they are not up."""
        notes = ec2_notes.read(self.folder)
        if notes is None or not notes.complete:
            raise ClusterError(f"{self.name}: is not up; `workbench cluster up {self.name}` starts it")
        if not notes.workers:
            raise ClusterError(f"{self.name}: has no workers, only a head to make an image on")
        if time.time() > notes.deadline:
            why = f"`workbench cluster up {self.name}` starts it again"
            raise ClusterError(f"{self.name}: has ended itself after {notes.asked['hours']:g} h; {why}")
        return self._ssh(notes)

    def _ssh(self, notes: Notes) -> Ssh:
        config = str(self.folder / access.CONFIG)
        return Ssh(name=self.name, head=notes.head, hosts=notes.workers, python=self.python, config=config)

    @property
    def gateway(self) -> Gateway | None:
        """Connection to the head."""
        return self.machines.gateway

    @override
    def without(self, hosts: Sequence[str]) -> Cluster | None:
        return self.machines.without(hosts)

    def carried(self) -> dict[str, Any]:
        """Return the settings for the head, where the cluster is of kind ssh."""
        return self.machines.carried()

    @override
    def here(self) -> Site:
        return self.machines.here()

    def status(self, progress: ProgressCallback = no_progress) -> Status:
        """Return machines, maximal cost so far, time of the end, and CPU credits."""
        notes, found = ec2_notes.read(self.folder), self.fleet.machines()
        kinds = [f"{m['InstanceId']}, {m['InstanceType']}" for m in found]
        hosts = [HostState(str(m.get("PrivateIpAddress", "")), state(m)) for m in found]
        rows = tuple(replace(host, note=kind) for host, kind in zip(hosts, kinds, strict=True))
        if notes is None or not found:
            left = ", ".join(f"{len(ids)} {sort}" for sort, ids in self.fleet.left().items())
            nothing = f"nothing is there of {self.fleet!r}"
            return Status(rows, note=f"not up, but there are: {left}" if left else nothing)
        if self.workers and notes.complete and {state(m) for m in found} == {"running"}:
            known = {row.host: row.note for row in rows}
            seen = super().status(progress).hosts  # ranks, cores and memory, as measured through ssh
            rows = tuple(replace(host, note=host.note or known.get(host.host, "")) for host in seen)
        hours = max(min(time.time(), notes.deadline) - notes.created, 0.0) / 3600
        burst = [m["InstanceId"] for m in found if bursts(m["InstanceType"])]
        ahead = (notes.deadline - time.time()) / 3600
        ends = f"ends itself in {ahead:.1f} h, for {notes.ceiling:.2f} $ at most"
        if ahead < 0:
            ends = f"SHOULD HAVE ENDED ITSELF {-ahead:.1f} h ago: `workbench cluster down {self.name}`"
        credits = credit_note(self.region, burst) if burst else ""
        lines = (self.described, ends, credits)
        cost = notes.ceiling * hours / (notes.asked["hours"] + END_DELAY_H)
        return Status(rows, hours * len(found), cost, "; ".join(line for line in lines if line))
