"""Requests to EC2 as plain data: starting machines, tags, and rules of the security group."""

import ipaddress
from dataclasses import dataclass
from typing import Any

from workbench.mpi.clusters.ec2.prices import STANDARD, bursts
from workbench.mpi.clusters.ec2.settings import Ec2Settings

CLUSTER, LAUNCH, GROUP = (f"straggler-workbench:{word}" for word in ("cluster", "launch", "part"))
"""Names of the tags: owner and name of the cluster, launch, group of machines."""
HEAD = "head"
_STARTED = ["instance", "volume", "network-interface"]  # kinds of resources that one call creates
_METADATA = {"HttpTokens": "required", "HttpEndpoint": "enabled", "HttpPutResponseHopLimit": 1}


@dataclass(frozen=True)
class MachineGroup:
    """Machines that one call starts. With its `token`, a repeated call starts nothing twice."""

    name: str  # "head", "workers-000", "workers-001" and so on
    type: str
    count: int
    user_data: str
    token: str


@dataclass(frozen=True)
class LaunchRequest:
    """Machines to start. `launch`: identifier of the launch, used as a tag. `wanted`: settings of the machines."""

    tag: str
    launch: str
    groups: tuple[MachineGroup, ...]
    public_key: str
    wanted: Ec2Settings

    @property
    def label(self) -> str:
        """Name of all resources of the cluster."""
        return f"workbench-{self.tag.replace('/', '-')}"

    @property
    def count(self) -> int:
        """Number of machines."""
        return sum(group.count for group in self.groups)


def tagged(order: LaunchRequest, *sorts: str, group: str = "") -> list[dict[str, Any]]:
    """Return the tags that resources of these kinds get when they are created."""
    tags = {"Name": f"{order.label}-{group}".rstrip("-"), CLUSTER: order.tag, LAUNCH: order.launch}
    tags |= {GROUP: group} if group else {}
    listed = [{"Key": key, "Value": value} for key, value in tags.items()]
    return [{"ResourceType": sort, "Tags": listed} for sort in sorts]


def start(order: LaunchRequest, machines: MachineGroup, subnet: str, group: str, root: str) -> dict[str, Any]:
    """Return the call that starts all machines of a group, or none. `root`: name of the image's root disk."""
    spot = order.wanted.spot and machines.name != HEAD
    disk = {"VolumeSize": order.wanted.disk, "VolumeType": "gp3", "DeleteOnTermination": True}
    sorts = [*_STARTED, *["spot-instances-request"] * spot]
    call = {
        **{"ImageId": order.wanted.image, "InstanceType": machines.type, "UserData": machines.user_data},
        **{
            "MinCount": machines.count,
            "MaxCount": machines.count,
            "ClientToken": machines.token,
            "KeyName": order.label,
        },
        "InstanceInitiatedShutdownBehavior": "terminate",  # powering off ends the cost
        "MetadataOptions": _METADATA,
        "NetworkInterfaces": [_port(order, machines, subnet, group)],
        "BlockDeviceMappings": [{"DeviceName": root, "Ebs": disk}],
        "TagSpecifications": tagged(order, *sorts, group=machines.name),
    }
    if bursts(machines.type):
        call["CreditSpecification"] = {"CpuCredits": STANDARD}
    if spot:
        once = {"SpotInstanceType": "one-time"}
        call["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": once}
    return call


def _port(order: LaunchRequest, machines: MachineGroup, subnet: str, group: str) -> dict[str, Any]:
    """Return a machine's network interface. Only the head is reachable from outside, by the caller's IP version."""
    six = ipaddress.ip_network(order.wanted.ssh_from).version == 6
    public: dict[str, Any] = {"AssociatePublicIpAddress": machines.name == HEAD and not six}
    if machines.name == HEAD and six:
        public["Ipv6AddressCount"] = 1
    return {"DeviceIndex": 0, "SubnetId": subnet, "Groups": [group], "DeleteOnTermination": True, **public}


def rules(group: str, ssh_from: str) -> list[dict[str, Any]]:
    """Return the ingress rules: ssh from one address, and TCP among members of the group."""
    caller = ipaddress.ip_network(ssh_from)
    ranges, word = ("IpRanges", "CidrIp") if caller.version == 4 else ("Ipv6Ranges", "CidrIpv6")
    ssh = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, ranges: [{word: str(caller)}]}
    members = [{"GroupId": group}]
    return [ssh, {"IpProtocol": "tcp", "FromPort": 0, "ToPort": 65535, "UserIdGroupPairs": members}]


def plain(rule: dict[str, Any]) -> tuple[Any, ...]:
    """Return the hashable content of a rule, without EC2's extra fields. Equal rules give equal results."""
    sources = [*rule.get("IpRanges", []), *rule.get("Ipv6Ranges", []), *rule.get("UserIdGroupPairs", [])]
    who = frozenset(each.get("CidrIp") or each.get("CidrIpv6") or each.get("GroupId") for each in sources)
    lists = len(rule.get("PrefixListIds", []))
    return rule["IpProtocol"], rule.get("FromPort"), rule.get("ToPort"), who, lists


def tags(machine: dict[str, Any]) -> dict[str, str]:
    """Return the tags of a machine, volume or group as a dict."""
    return {tag["Key"]: tag["Value"] for tag in machine.get("Tags", [])}


def group_of(machine: dict[str, Any]) -> str:
    """Return the name of the group that a machine belongs to."""
    return tags(machine).get(GROUP, "")


def state(machine: dict[str, Any]) -> str:
    """Return pending, running, shutting-down, stopping, stopped or terminated."""
    return str(machine["State"]["Name"])
