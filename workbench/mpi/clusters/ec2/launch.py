"""Launch of machines on EC2: all of them, or none."""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from workbench.core.base.errors import ClusterError
from workbench.core.base.settings import SettingError
from workbench.mpi.clusters.ec2 import fleet, requests
from workbench.mpi.clusters.ec2.aws import code, errors_as_sentences, handled, interrupt, slices
from workbench.mpi.clusters.ec2.fleet import MACHINES_PER_CALL, Fleet, Machine
from workbench.mpi.clusters.ec2.prices import STANDARD, bursts
from workbench.mpi.clusters.ec2.requests import HEAD, LAUNCH, LaunchRequest, group_of, state, tagged, tags
from workbench.mpi.launch.reports import ProgressCallback

START_TIMEOUT_S = 900.0  # s for machines to start
DOWN_ATTEMPTS = 3  # attempts to end the machines of a failed `up`
SETTLE_TIMEOUT_S = 60.0  # max time, s, during which EC2 may not find resources that it has just created
_UNKNOWN_YET = {"InvalidGroup.NotFound", "InvalidKeyPair.NotFound"}


@dataclass(frozen=True)
class Launch:
    """Launch request for a fleet. Repeating an equal request starts nothing twice."""

    fleet: Fleet
    order: LaunchRequest
    progress: ProgressCallback

    @property
    def ec2(self) -> Any:
        """Client of EC2."""
        return self.fleet.ec2

    def up(self, finish: Callable[[list[Machine]], None], keep: bool) -> None:
        """Start the machines of the request that are not up yet, and wait for all of them.

        If the call raises, also after Ctrl-C, everything with the cluster's tag is ended. Machines of another launch
        are left alone.

        Parameters
        ----------
        finish
            Called with the running machines. Its errors count as failures of the launch.
        keep
            Leave the machines running whatever happens, because they had been up before.

        Raises
        ------
        ClusterError
            EC2 refuses, machines do not start, or some machines are not part of this request.
        SettingError
            The image or the subnet of the request does not exist.
        """
        there = self._groups_up(keep)
        with nullcontext() if keep else self._or_nothing():
            finish(self._start(there))

    @contextmanager
    def _or_nothing(self) -> Iterator[None]:
        """End everything after an error. A second Ctrl-C does not interrupt that."""
        with handled(interrupt, "SIGTERM", "SIGHUP"):
            try:
                yield
            except BaseException as error:
                with handled(signal.SIG_IGN, "SIGINT", "SIGTERM", "SIGHUP"):
                    if second := self._down_repeatedly():
                        both = f"{str(error) or type(error).__name__}; moreover, {second}"
                        ends = "machines may be running: workbench cluster down ends them"
                        raise ClusterError(f"{both}; {ends}") from error
                raise

    def _down_repeatedly(self) -> str:
        """End everything, in several attempts, since one failed call must not leave machines running.

        Return the error of the last attempt, or "" after success.
        """
        why = ""
        for attempt in range(DOWN_ATTEMPTS):
            try:
                time.sleep(fleet.POLL_INTERVAL_S if attempt else 0.0)
                self.fleet.down(self.progress)
                return ""
            except ClusterError as error:
                why = str(error)
        return why

    def _groups_up(self, keep: bool) -> set[str]:
        """Return the names of the groups that are up. Raises if machines are foreign, or some are gone."""
        found = self.fleet.machines()
        if any(tags(m).get(LAUNCH) != self.order.launch for m in found):
            raise ClusterError(
                f"{self.fleet!r}: {len(found)} exist that are not in this machine's notes; end them first"
                " (workbench cluster down)"
            )
        counts = Counter(group_of(m) for m in found if state(m) in ("pending", "running"))
        gone = sum(p.count - counts[p.name] for p in self.order.groups if keep or counts[p.name])
        if gone:
            why = "continue with fewer workers, or start again (workbench cluster down, then up)"
            raise ClusterError(f"{self.fleet!r}: {gone} of {self.order.count} are gone; {why}")
        return set(counts)

    def _start(self, there: set[str]) -> list[Machine]:
        self.progress("asking EC2", 0, self.order.count)
        with errors_as_sentences():
            subnet, network = self._place()
            root = self._root()
            # If it exists already, it is opened for the caller's present address
            group = self._group(network)
            # the private halves stay on this machine
            if not self.fleet.tagged("describe_key_pairs", "KeyPairs"):
                key, marks = self.order.public_key.encode(), tagged(self.order, "key-pair")
                self.ec2.import_key_pair(
                    KeyName=self.order.label, PublicKeyMaterial=key, TagSpecifications=marks
                )
            fresh = [part for part in self.order.groups if part.name not in there]
            calls = [requests.start(self.order, part, subnet, group, root) for part in fresh]
            for call in calls:  # check all calls before the first machine is started
                self._dry_run(call)
            for call in calls:
                self._settled(self.ec2.run_instances, **call)
        machines = self._await_running()
        with errors_as_sentences():
            self._inspect(machines, group)
        return machines

    def _place(self) -> tuple[str, str]:
        """Return subnet and network. All machines are in one zone, so that all links are alike."""
        default = [{"Name": "default-for-az", "Values": ["true"]}]
        subnet = self.order.wanted.subnet
        which = {"SubnetIds": [subnet]} if subnet else {"Filters": default}
        found = self.ec2.describe_subnets(**which)["Subnets"]
        if not found:
            why = "has no default one; name one that reaches the internet"
            raise SettingError(f"subnet: {self.fleet.region} {why}")
        first = min(found, key=lambda each: str(each["AvailabilityZone"]))
        return first["SubnetId"], first["VpcId"]

    def _root(self) -> str:
        """Return the name of the image's root disk, which is needed to set the disk's size."""
        image, disk = self.order.wanted.image, self.order.wanted.disk
        found = self.ec2.describe_images(ImageIds=[image])["Images"]
        if not found:
            raise SettingError(f"image = {image!r}: {self.fleet.region} has no such image")
        disks = [each["Ebs"] for each in found[0]["BlockDeviceMappings"] if "Ebs" in each]
        if (needed := max((each.get("VolumeSize", 0) for each in disks), default=0)) > disk:
            raise SettingError(f"disk = {disk}: this image needs {needed} GB")
        return str(found[0]["RootDeviceName"])

    def _group(self, network: str) -> str:
        """Return the security group, and make its rules exactly those that are wanted."""
        found = self.fleet.tagged("describe_security_groups", "SecurityGroups")
        if not found:
            made = {"GroupName": self.order.label, "Description": "straggler-workbench", "VpcId": network}
            marks = tagged(self.order, "security-group")
            found = [self.ec2.create_security_group(**made, TagSpecifications=marks)]
        group, has = found[0]["GroupId"], found[0].get("IpPermissions", [])
        wanted = requests.rules(group, self.order.wanted.ssh_from)
        have, want = set(map(requests.plain, has)), set(map(requests.plain, wanted))
        if stale := [rule for rule in has if requests.plain(rule) not in want]:
            self.ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=stale)
        if fresh := [rule for rule in wanted if requests.plain(rule) not in have]:
            self._settled(self.ec2.authorize_security_group_ingress, GroupId=group, IpPermissions=fresh)
        return str(group)

    def _dry_run(self, call: dict[str, Any]) -> None:
        """Check with a dry run whether a call would be allowed. Its token stays unused."""
        fields = {name: value for name, value in call.items() if name != "ClientToken"}
        try:
            self._settled(self.ec2.run_instances, **fields, DryRun=True)
        except self.ec2.exceptions.ClientError as error:
            if code(error) != "DryRunOperation":
                raise

    def _settled(self, ask: Callable[..., Any], **fields: Any) -> None:
        """Repeat a call while EC2 does not yet find the group and key that it has just created."""
        end = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            try:
                ask(**fields)
                return
            except self.ec2.exceptions.ClientError as error:
                if code(error) not in _UNKNOWN_YET or time.monotonic() > end:
                    raise
            time.sleep(fleet.POLL_INTERVAL_S)

    def _await_running(self) -> list[Machine]:
        end = time.monotonic() + START_TIMEOUT_S
        while True:
            found = [m for m in self.fleet.machines(ended=True) if tags(m).get(LAUNCH) == self.order.launch]
            if lost := [m for m in found if state(m) not in ("pending", "running")]:
                why = lost[0].get("StateReason", {}).get("Message") or "EC2 does not say why"
                raise ClusterError(
                    f"{self.fleet!r}: {len(lost)} of {self.order.count} ended while starting ({why})"
                )
            running = [m for m in found if state(m) == "running"]
            self.progress("starting machines", len(running), self.order.count)
            if len(running) >= self.order.count:
                return running
            if time.monotonic() > end:
                raise ClusterError(
                    f"{self.fleet!r}: {len(running)} of {self.order.count} are up after {START_TIMEOUT_S:g} s"
                )
            time.sleep(fleet.POLL_INTERVAL_S)

    def _inspect(self, machines: list[Machine], group: str) -> None:
        """Raise `ClusterError` unless the machines are closed, end themselves, and have bounded costs."""
        for m in machines:
            public = group_of(m) != HEAD and m.get("PublicIpAddress")
            groups = {each["GroupId"] for port in m["NetworkInterfaces"] for each in port["Groups"]}
            if public or groups != {group} or m["MetadataOptions"]["HttpTokens"] != "required":
                raise ClusterError(f"{m['InstanceId']}: is not as closed as it was ordered to be")
        for part in self.order.groups:
            one = next(m["InstanceId"] for m in machines if group_of(m) == part.name)
            ends = self._of(one, "instanceInitiatedShutdownBehavior")
            if ends != "terminate" or not self._of(one, "userData"):
                raise ClusterError(f"{one}: would not end by itself")
        burst = [m["InstanceId"] for m in machines if bursts(m["InstanceType"])]
        for ids in slices(burst, MACHINES_PER_CALL):
            answer = self.ec2.describe_instance_credit_specifications(InstanceIds=ids)
            for each in answer["InstanceCreditSpecifications"]:
                if (has := each["CpuCredits"]) != STANDARD:
                    raise ClusterError(f"{each['InstanceId']}: has CpuCredits {has}, not {STANDARD}")

    def _of(self, machine: str, attribute: str) -> Any:
        answer = self.ec2.describe_instance_attribute(InstanceId=machine, Attribute=attribute)
        return answer[attribute[0].upper() + attribute[1:]].get("Value")
