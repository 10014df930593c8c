"""Machines on EC2, started all together or not at all, and whatever carries their cluster's tag: finding and ending it.

What is made for a cluster carries its tag from the moment it exists, so `Fleet.down` needs no notes: what carries the
tag is ended, and nothing else is looked at. Every machine is in one security group, and a group with a machine in it
cannot be deleted: once it is gone, no machine is left, not even one that a broken call never told about.

`kind` knows prices, keys and the user.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from typing import Any

from workbench.core.base.errors import ClusterError
from workbench.core.base.settings import SettingError
from workbench.mpi.clusters.ec2 import requests
from workbench.mpi.clusters.ec2.aws import client, code, handled, interrupt, slices, spoken
from workbench.mpi.clusters.ec2.prices import STANDARD, bursts
from workbench.mpi.clusters.ec2.requests import (
    CLUSTER,
    HEAD,
    LAUNCH,
    LaunchRequest,
    part_of,
    state,
    tagged,
    tags,
)
from workbench.mpi.launch.reports import ProgressCallback, no_progress

AT_ONCE = 100  # machines in one call, as EC2's documentation advises
PAGE = 500  # answers on a page
PAUSE = 5.0  # s between two looks
PATIENCE, ENDING = 900.0, 900.0  # s for machines to start, and to end
DOWN_ATTEMPTS = 3  # at ending the machines of an `up` that failed
SETTLING = 60.0  # s in which EC2 may not know of what it has just made
Machine = dict[str, Any]  # in EC2's own words
_UNHEARD = {"InvalidGroup.NotFound", "InvalidKeyPair.NotFound"}
_HOPELESS = {"UnauthorizedOperation", "OperationNotPermitted"}  # where it is not worth while to wait

# What a cluster leaves besides machines: EC2's word for it, under which key it is listed, what identifies one.
_LEFTOVERS = {
    "volume": ("volume", "Volumes", "VolumeId"),
    "interface": ("network_interface", "NetworkInterfaces", "NetworkInterfaceId"),
    "security group": ("security_group", "SecurityGroups", "GroupId"),
    "key pair": ("key_pair", "KeyPairs", "KeyName"),
}


class Fleet:
    """Machines of one cluster, in one region, and what came with them.

    `tag`: whose cluster it is, and its name; what carries this tag belongs to it. Credentials come out of AWS's
    ordinary chain, and go nowhere else.

    >>> Fleet("ada/lab", "eu-central-1")
    <machines tagged straggler-workbench:cluster=ada/lab in eu-central-1>
    """

    def __init__(self, tag: str, region: str) -> None:
        self.tag, self.region = tag, region

    def __repr__(self) -> str:
        return f"<machines tagged {CLUSTER}={self.tag} in {self.region}>"

    @cached_property
    def ec2(self) -> Any:
        """The connection, made when it is first needed."""
        return client("ec2", self.region)

    def machines(self, ended: bool = False) -> list[Machine]:
        """All machines, by part and place in it; `ended`: those too that are gone and not forgotten yet."""
        with spoken():
            groups = self._all("describe_instances", "Reservations")
            found = [m for group in groups for m in group["Instances"] if ended or state(m) != "terminated"]
            return sorted(found, key=_place_in_fleet)

    def left(self) -> dict[str, list[str]]:
        """What there is of the cluster, by sort; empty: nothing."""
        found = {"machine": [m["InstanceId"] for m in self.machines()]}
        with spoken():
            spot = self._all("describe_spot_instance_requests", "SpotInstanceRequests")
            alive = [each for each in spot if each["State"] in ("open", "active")]
            found["spot request"] = [each["SpotInstanceRequestId"] for each in alive]
            for sort, (word, key, identity) in _LEFTOVERS.items():
                found[sort] = [each[identity] for each in self._all(f"describe_{word}s", key)]
        return {sort: ids for sort, ids in found.items() if ids}

    def _all(self, operation: str, key: str) -> list[dict[str, Any]]:
        """Everything of a sort that carries the tag, from all pages."""
        only = {"Filters": [{"Name": f"tag:{CLUSTER}", "Values": [self.tag]}]}
        if not self.ec2.can_paginate(operation):
            return list(getattr(self.ec2, operation)(**only)[key])
        pages = self.ec2.get_paginator(operation).paginate(**only, PaginationConfig={"PageSize": PAGE})
        return [each for page in pages for each in page[key]]

    def down(self, progress: ProgressCallback = no_progress) -> int:
        """End everything that carries the cluster's tag, wait until it is gone; returns how many machines there were.

        Does nothing where there is nothing. Raises `ClusterError` with a list of what is left.
        """
        end = time.monotonic() + ENDING
        most, looks = 0, 1
        while looks:
            if left := self.left():
                alive = len(left.get("machine", []))
                most, looks = max(most, alive), 2  # what was made a moment ago may show itself late
                progress("ending machines", most - alive, most)
                with spoken():
                    refused = self._strike(left)
                if time.monotonic() > end or not _HOPELESS.isdisjoint(refused.values()):
                    things = _listed(left, refused)
                    raise ClusterError(f"{self!r}: STILL THERE, and perhaps costing money: {things}")
            else:
                looks -= 1
            if looks:
                time.sleep(PAUSE)
        progress("ending machines", most, most)
        return most

    def _strike(self, left: dict[str, list[str]]) -> dict[str, str]:
        """Delete what can be deleted now; who would not, and why."""
        ec2, deeds = self.ec2, []
        for ids in slices(left.get("machine", []), AT_ONCE):
            deeds.append(("machines", partial(ec2.terminate_instances, InstanceIds=ids)))
        for ids in slices(left.get("spot request", []), AT_ONCE):
            cancel = partial(ec2.cancel_spot_instance_requests, SpotInstanceRequestIds=ids)
            deeds.append(("spot requests", cancel))
        if "machine" not in left:  # machines hold on to the rest
            for sort, (word, _, identity) in _LEFTOVERS.items():
                delete = getattr(ec2, f"delete_{word}")
                deeds += [(each, partial(delete, **{identity: each})) for each in left.get(sort, [])]
        return {what: why for what, do in deeds if (why := self._refusal(do))}

    def _refusal(self, do: Callable[[], Any]) -> str:
        """Do it; why EC2 did not, if it did not, and it had not been done before."""
        try:
            do()
        except self.ec2.exceptions.ClientError as error:
            return "" if "NotFound" in code(error) else code(error) or "no answer of AWS"
        return ""

    def up(
        self,
        order: LaunchRequest,
        progress: ProgressCallback,
        finish: Callable[[list[Machine]], None],
        keep: bool,
    ) -> None:
        """Have the machines of an order run; starts those that are not there yet.

        When it raises, for a Ctrl-C too, all that carries the cluster's tag is ended. Machines of somebody else's
        order are left alone.

        Parameters
        ----------
        order
            The same order again starts nothing twice.
        said
            Told how far it is.
        finish
            Called with the machines once they run; what it raises counts as well.
        keep
            They had been up before: whatever happens, leave them.

        Raises
        ------
        ClusterError
            EC2 refuses, machines do not come up, or there are some that are not of this order.
        SettingError
            The order names an image or a subnet that is not there.
        """
        there = self._there(order, keep)
        with nullcontext() if keep else self._or_nothing(progress):
            finish(self._start(order, there, progress))

    @contextmanager
    def _or_nothing(self, progress: ProgressCallback) -> Iterator[None]:
        """End everything when something goes wrong; then, a second Ctrl-C does not come in between."""
        with handled(interrupt, "SIGTERM", "SIGHUP"):
            try:
                yield
            except BaseException as error:
                with handled(signal.SIG_IGN, "SIGINT", "SIGTERM", "SIGHUP"):
                    if second := self._down_at_last(progress):
                        both = f"{str(error) or type(error).__name__}; moreover, {second}"
                        ends = "machines may be running: workbench cluster down ends them"
                        raise ClusterError(f"{both}; {ends}") from error
                raise

    def _down_at_last(self, progress: ProgressCallback) -> str:
        """End everything, in several attempts: one answer that is not AWS's must not leave machines running.

        Returns why that failed, empty if it did not.
        """
        why = ""
        for attempt in range(DOWN_ATTEMPTS):
            try:
                time.sleep(PAUSE if attempt else 0.0)
                self.down(progress)
                return ""
            except ClusterError as error:
                why = str(error)
        return why

    def _there(self, order: LaunchRequest, keep: bool) -> set[str]:
        """Which parts are there; raises where machines are not of this order, or some are gone."""
        found = self.machines()
        if any(tags(m).get(LAUNCH) != order.launch for m in found):
            raise ClusterError(
                f"{self!r}: {len(found)} are there that are not in this machine's notes; end them first"
                " (workbench cluster down)"
            )
        counts = Counter(part_of(m) for m in found if state(m) in ("pending", "running"))
        gone = sum(p.count - counts[p.name] for p in order.parts if keep or counts[p.name])
        if gone:
            why = "go on with fewer workers, or start anew (workbench cluster down, then up)"
            raise ClusterError(f"{self!r}: {gone} of {order.count} are gone; {why}")
        return set(counts)

    def _start(self, order: LaunchRequest, there: set[str], progress: ProgressCallback) -> list[Machine]:
        progress("asking EC2", 0, order.count)
        with spoken():
            subnet, network = self._place(order)
            root = self._root(order)
            group = self._group(order, network)  # there already: open to the caller's present address
            if not self._all("describe_key_pairs", "KeyPairs"):  # the private halves stay on this machine
                key, marks = order.public_key.encode(), tagged(order, "key-pair")
                self.ec2.import_key_pair(KeyName=order.label, PublicKeyMaterial=key, TagSpecifications=marks)
            fresh = [part for part in order.parts if part.name not in there]
            calls = [requests.start(order, part, subnet, group, root) for part in fresh]
            for call in calls:  # all of them before the first machine
                self._rehearse(call)
            for call in calls:
                self._settled(self.ec2.run_instances, **call)
        machines = self._await_running(order, progress)
        with spoken():
            self._inspect(order, machines, group)
        return machines

    def _place(self, order: LaunchRequest) -> tuple[str, str]:
        """Subnet and network. All machines are in one zone, so that all links are alike."""
        default = [{"Name": "default-for-az", "Values": ["true"]}]
        subnet = order.wanted.subnet
        which = {"SubnetIds": [subnet]} if subnet else {"Filters": default}
        found = self.ec2.describe_subnets(**which)["Subnets"]
        if not found:
            why = "has no default one; name one that reaches the internet"
            raise SettingError(f"subnet: {self.region} {why}")
        first = min(found, key=lambda each: str(each["AvailabilityZone"]))
        return first["SubnetId"], first["VpcId"]

    def _root(self, order: LaunchRequest) -> str:
        """Name of the image's root disk: only who names it can say how large it is to be."""
        image, disk = order.wanted.image, order.wanted.disk
        found = self.ec2.describe_images(ImageIds=[image])["Images"]
        if not found:
            raise SettingError(f"image = {image!r}: {self.region} has no such image")
        disks = [each["Ebs"] for each in found[0]["BlockDeviceMappings"] if "Ebs" in each]
        if (needed := max((each.get("VolumeSize", 0) for each in disks), default=0)) > disk:
            raise SettingError(f"disk = {disk}: this image needs {needed} GB")
        return str(found[0]["RootDeviceName"])

    def _group(self, order: LaunchRequest, network: str) -> str:
        """The security group, with the rules that it should have and no others."""
        found = self._all("describe_security_groups", "SecurityGroups")
        if not found:
            made = {"GroupName": order.label, "Description": "straggler-workbench", "VpcId": network}
            marks = tagged(order, "security-group")
            found = [self.ec2.create_security_group(**made, TagSpecifications=marks)]
        group, has = found[0]["GroupId"], found[0].get("IpPermissions", [])
        wanted = requests.rules(group, order.wanted.ssh_from)
        have, want = set(map(requests.plain, has)), set(map(requests.plain, wanted))
        if stale := [rule for rule in has if requests.plain(rule) not in want]:
            self.ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=stale)
        if fresh := [rule for rule in wanted if requests.plain(rule) not in have]:
            self._settled(self.ec2.authorize_security_group_ingress, GroupId=group, IpPermissions=fresh)
        return str(group)

    def _rehearse(self, call: dict[str, Any]) -> None:
        """Ask whether a call would be allowed; nothing is started, and its token stays unused."""
        words = {name: value for name, value in call.items() if name != "ClientToken"}
        try:
            self._settled(self.ec2.run_instances, **words, DryRun=True)
        except self.ec2.exceptions.ClientError as error:
            if code(error) != "DryRunOperation":
                raise

    def _settled(self, ask: Callable[..., Any], **words: Any) -> None:
        """Ask again while EC2 has not yet heard everywhere of the group and key that it made a moment ago."""
        end = time.monotonic() + SETTLING
        while True:
            try:
                ask(**words)
                return
            except self.ec2.exceptions.ClientError as error:
                if code(error) not in _UNHEARD or time.monotonic() > end:
                    raise
            time.sleep(PAUSE)

    def _await_running(self, order: LaunchRequest, progress: ProgressCallback) -> list[Machine]:
        end = time.monotonic() + PATIENCE
        while True:
            found = [m for m in self.machines(ended=True) if tags(m).get(LAUNCH) == order.launch]
            if lost := [m for m in found if state(m) not in ("pending", "running")]:
                why = lost[0].get("StateReason", {}).get("Message") or "EC2 does not say why"
                raise ClusterError(f"{self!r}: {len(lost)} of {order.count} ended while starting ({why})")
            running = [m for m in found if state(m) == "running"]
            progress("starting machines", len(running), order.count)
            if len(running) >= order.count:
                return running
            if time.monotonic() > end:
                raise ClusterError(f"{self!r}: {len(running)} of {order.count} are up after {PATIENCE:g} s")
            time.sleep(PAUSE)

    def _inspect(self, order: LaunchRequest, machines: list[Machine], group: str) -> None:
        """Raise unless the machines have what keeps them closed, ends them, and bounds what they cost."""
        for m in machines:
            public = part_of(m) != HEAD and m.get("PublicIpAddress")
            groups = {each["GroupId"] for port in m["NetworkInterfaces"] for each in port["Groups"]}
            if public or groups != {group} or m["MetadataOptions"]["HttpTokens"] != "required":
                raise ClusterError(f"{m['InstanceId']}: is not as closed as it was ordered to be")
        for part in order.parts:
            one = next(m["InstanceId"] for m in machines if part_of(m) == part.name)
            ends = self._of(one, "instanceInitiatedShutdownBehavior")
            if ends != "terminate" or not self._of(one, "userData"):
                raise ClusterError(f"{one}: would not end by itself")
        burst = [m["InstanceId"] for m in machines if bursts(m["InstanceType"])]
        for ids in slices(burst, AT_ONCE):
            answer = self.ec2.describe_instance_credit_specifications(InstanceIds=ids)
            for each in answer["InstanceCreditSpecifications"]:
                if (has := each["CpuCredits"]) != STANDARD:
                    raise ClusterError(f"{each['InstanceId']}: has CpuCredits {has}, not {STANDARD}")

    def _of(self, machine: str, attribute: str) -> Any:
        answer = self.ec2.describe_instance_attribute(InstanceId=machine, Attribute=attribute)
        return answer[attribute[0].upper() + attribute[1:]].get("Value")


def _place_in_fleet(machine: Machine) -> tuple[str, int, str, str, str]:
    """Return what machines are sorted by; raises a LookupError where an answer lacks what every machine has."""
    index = machine.get("AmiLaunchIndex", 0)
    return part_of(machine), index, machine["InstanceId"], machine["InstanceType"], state(machine)


def _listed(left: dict[str, list[str]], refused: dict[str, str]) -> str:
    some = {sort: ", ".join(ids[:5]) + " ..." * (len(ids) > 5) for sort, ids in left.items()}
    things = "; ".join(f"{sort} {some[sort]} ({len(ids)})" for sort, ids in left.items())
    return things + "".join(f"; {what}: {why}" for what, why in refused.items())
