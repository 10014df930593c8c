"""What is asked of EC2, as plain data: the call that starts machines, their tags, and who may talk to whom."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Any, Literal

CLUSTER, LAUNCH, PART = (f"straggler-workbench:{word}" for word in ("cluster", "launch", "part"))
"""Names of the tags: whose cluster a thing belongs to, which launch made it, which part of the fleet it is."""
HEAD = "head"
STANDARD: Literal["standard"] = "standard"
"""Out of CPU credits, a machine gets slow, not dear: a source of stragglers, so it is on record."""
_STARTED = ["instance", "volume", "network-interface"]  # what one call makes


@dataclass(frozen=True)
class Part:
    """Machines that one call starts; its `token` makes it start them once, however often it is sent."""

    name: str  # "head", "workers-0", "workers-1" and so on
    type: str
    count: int
    user_data: str
    token: str


@dataclass(frozen=True)
class Order:
    """What to start. `launch`: who starts them, as a tag; `disk`: GB each; no `subnet`: the default one."""

    tag: str
    launch: str
    parts: tuple[Part, ...]
    image: str
    ssh_from: str
    public_key: str
    disk: int
    spot: bool = False
    subnet: str | None = None

    @property
    def label(self) -> str:
        """Name of what is made."""
        return f"workbench-{self.tag.replace('/', '-')}"

    @property
    def count(self) -> int:
        """How many machines."""
        return sum(part.count for part in self.parts)


def tagged(order: Order, *sorts: str, part: str = "") -> list[dict[str, Any]]:
    """Tags that things of these sorts have from the moment they exist."""
    words = {"Name": f"{order.label}-{part}".rstrip("-"), CLUSTER: order.tag, LAUNCH: order.launch}
    words |= {PART: part} if part else {}
    listed = [{"Key": key, "Value": value} for key, value in words.items()]
    return [{"ResourceType": sort, "Tags": listed} for sort in sorts]


def start(order: Order, part: Part, subnet: str, group: str, root: str) -> dict[str, Any]:
    """The call that starts all machines of a part, or none; `root` names the image's root disk."""
    spot = order.spot and part.name != HEAD
    call = {
        "ImageId": order.image,
        "InstanceType": part.type,
        "MinCount": part.count,
        "MaxCount": part.count,
        "ClientToken": part.token,
        "KeyName": order.label,
        "UserData": part.user_data,
        "InstanceInitiatedShutdownBehavior": "terminate",  # so that powering off ends the bill
        "MetadataOptions": {
            "HttpTokens": "required",
            "HttpEndpoint": "enabled",
            "HttpPutResponseHopLimit": 1,
        },
        "NetworkInterfaces": [_port(order, part, subnet, group)],
        "BlockDeviceMappings": [{"DeviceName": root, "Ebs": _disk(order)}],
        "TagSpecifications": tagged(order, *_STARTED, *["spot-instances-request"] * spot, part=part.name),
    }
    if bursts(part.type):
        call["CreditSpecification"] = {"CpuCredits": STANDARD}
    if spot:
        call["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {"SpotInstanceType": "one-time"},
        }
    return call


def _port(order: Order, part: Part, subnet: str, group: str) -> dict[str, Any]:
    """A machine's network interface: only the head can be reached from outside, at an address like the caller's."""
    six = ipaddress.ip_network(order.ssh_from).version == 6
    public: dict[str, Any] = {"AssociatePublicIpAddress": part.name == HEAD and not six}
    if part.name == HEAD and six:
        public["Ipv6AddressCount"] = 1
    return {"DeviceIndex": 0, "SubnetId": subnet, "Groups": [group], "DeleteOnTermination": True, **public}


def _disk(order: Order) -> dict[str, Any]:
    return {"VolumeSize": order.disk, "VolumeType": "gp3", "DeleteOnTermination": True}


def rules(group: str, ssh_from: str) -> list[dict[str, Any]]:
    """Who may open connections: ssh from one address, and the group's members among themselves."""
    caller = ipaddress.ip_network(ssh_from)
    ranges, word = ("IpRanges", "CidrIp") if caller.version == 4 else ("Ipv6Ranges", "CidrIpv6")
    ssh = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, ranges: [{word: str(caller)}]}
    members = [{"GroupId": group}]
    return [ssh, {"IpProtocol": "tcp", "FromPort": 0, "ToPort": 65535, "UserIdGroupPairs": members}]


def plain(rule: dict[str, Any]) -> tuple[Any, ...]:
    """What a rule says, whatever else EC2 tells with it; equal rules give equal answers."""
    sources = [*rule.get("IpRanges", []), *rule.get("Ipv6Ranges", []), *rule.get("UserIdGroupPairs", [])]
    who = {each.get("CidrIp") or each.get("CidrIpv6") or each.get("GroupId") for each in sources}
    return (
        rule["IpProtocol"],
        rule.get("FromPort"),
        rule.get("ToPort"),
        frozenset(who),
        len(rule.get("PrefixListIds", [])),
    )


def bursts(kind: str) -> bool:
    """Does this type of machine live on CPU credits?

    >>> bursts("t2.micro"), bursts("t4g.small"), bursts("trn1.2xlarge"), bursts("c7i.large")
    (True, True, False, False)
    """
    return re.match(r"t\d", kind) is not None


def tags(machine: dict[str, Any]) -> dict[str, str]:
    """Tags of a machine, volume, group, in EC2's words, as a dict."""
    return {tag["Key"]: tag["Value"] for tag in machine.get("Tags", [])}


def part_of(machine: dict[str, Any]) -> str:
    """Which part a machine belongs to."""
    return tags(machine).get(PART, "")


def state(machine: dict[str, Any]) -> str:
    """pending, running, shutting-down, stopping, stopped or terminated."""
    return str(machine["State"]["Name"])
