"""Settings of machines on EC2, checked before AWS is asked, and the cost of such machines."""

import ipaddress
import re
from collections import Counter
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, model_validator

from workbench.core.base.settings import setting, unknown_name
from workbench.mpi.clusters.base import Cluster, Word, matching
from workbench.mpi.clusters.ec2.prices import STANDARD, Bill, bursts, prices

# Fleets of the papers. The master of paper 1 was a t2.micro, too, but its 1 GiB is too little for 156 connections.
PRESETS: dict[str, dict[str, Any]] = {
    "codedreduce-84": {"workers": 84, "worker_type": "t2.micro", "head_type": "m5.large"},
    "codedreduce-156": {"workers": 156, "worker_type": "t2.micro", "head_type": "m5.large"},
    "cegc-10": {"workers": 10, "worker_type": "t2.micro", "head_type": "c3.8xlarge"},
    "cegc-15": {"workers": 15, "worker_type": "t2.micro", "head_type": "c3.8xlarge"},
    "cegc-20": {"workers": 20, "worker_type": "t2.micro", "head_type": "c3.8xlarge"},
    "agc-20": {"workers": 20, "worker_type": "t2.micro", "head_type": "m5.large"},
}


def _like(pattern: str, example: str) -> AfterValidator:
    return matching(pattern, f"is not of the form {example}")


def _one_address(text: str) -> str:
    """Check that the text is a single address, so that nobody else can connect."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}; write your own address, such as 203.0.113.7/32") from None
    if network.num_addresses > 1:
        many = f"lets {network.num_addresses} addresses in"
        raise ValueError(f"{text!r}: {many}; write your own only, with /32 or /128")
    if network.is_unspecified or network.is_loopback or network.is_multicast:
        raise ValueError(f"{text!r}: is not a public address; write your own")
    return str(network)


Kind = Annotated[str, _like(r"[a-z0-9-]+\.[a-z0-9-]+", "t2.micro")]
Image = Annotated[str, _like(r"ami-[0-9a-f]{8,17}", "ami-0123456789abcdef0")]
Subnet = Annotated[str, _like(r"subnet-[0-9a-f]{8,17}", "subnet-0123456789abcdef0")]
User = Annotated[str, _like(r"[a-z_][a-z0-9_-]*", "admin")]
Owner = Annotated[str, _like(r"[a-z0-9-]{1,40}|", "ada")]
Address = Annotated[str, AfterValidator(_one_address)]


class Ec2Settings(Cluster):
    """Fields of the kind ec2."""

    preset: str | None = setting(None, f"fleet of a paper: {', '.join(PRESETS)}")
    workers: int = setting(..., "worker machines; 0: a head alone, for making an image", ge=0, le=5000)
    worker_type: Kind = setting(..., "type of the workers' machines")
    head_type: Kind = setting(..., "type of the master's machine")
    region: Annotated[str, _like(r"[a-z]{2}(-[a-z]+)+-\d", "us-east-1")] = setting(
        ..., "region of AWS, e.g. us-east-1"
    )
    image: Image = setting(
        ..., "the machines' image, with Python and the packages; see docs/how-to/ec2-image.md"
    )
    ssh_from: Address = setting(..., "your own address, the only one from which ssh is open")
    hours: float = setting(..., "time after which the machines end themselves", "h", gt=0, le=168)
    disk: int = setting(16, "disk of each machine", "GB", ge=1, le=1000)
    prices: dict[str, float] = setting(
        {},
        "$ per hour for each type of machine and for a public `address`, $ per GB and month for `disk`; missing prices"
        " are looked up",
    )
    subnet: Subnet | None = setting(
        None, "subnet of the machines; by default the region's default subnet in its first zone"
    )
    spot: bool = setting(False, "spot machines as workers: cheaper, and AWS may take them away in a run")
    cpu_credits: Literal["standard"] = setting(
        STANDARD,
        "mode of CPU credits of burstable machines (t2, t3): without credits they get slow, not expensive",
    )
    user: User = setting("admin", "login name in the image")
    python: Word = setting("/opt/workbench/bin/python", "the Python in the image that has the packages")
    owner: Owner = setting("", "owner of the machines, for their tags; by default your login name here")

    @model_validator(mode="before")
    @classmethod
    def _of_preset(cls, data: Any) -> Any:
        """Fill in the values of a preset where none are given."""
        chosen = data.get("preset") if isinstance(data, dict) else None
        # compared with a list, because the value may not be hashable
        if chosen is not None and chosen not in list(PRESETS):
            raise unknown_name("preset", chosen, list(PRESETS))
        return {**PRESETS[chosen], **data} if chosen else data

    @model_validator(mode="after")
    def _checked(self) -> Self:
        # EC2's filters take * and ? as wildcards, so a name with one would match other clusters.
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,39}|", self.name):
            raise ValueError(f"name = {self.name!r}: use lower-case letters, digits and hyphens (40 at most)")
        if self.price is not None:
            example = f"{{{self.worker_type}: ...}}"
            raise ValueError(f"price = {self.price}: machines differ; write prices: {example}")
        if bad := {what: usd for what, usd in self.prices.items() if usd < 0}:
            raise ValueError(f"prices = {bad}: a price is not negative")
        return self

    @property
    def described(self) -> str:
        """Short text about the machines."""
        kinds = " + ".join(f"{count} {kind}" for kind, count in self.kinds().items())
        burst = f", CpuCredits={self.cpu_credits}" if any(map(bursts, self.kinds())) else ""
        return f"{kinds} in {self.region}{burst}{', workers on spot' if self.spot else ''}"

    def kinds(self) -> Counter[str]:
        """Return the number of machines by type."""
        return Counter({self.worker_type: self.workers}) + Counter({self.head_type: 1})

    def bill(self) -> Bill:
        """Return the bill of the machines. Raises `SettingError` if a price is unknown."""
        kinds = self.kinds()
        disk, six = self.disk * kinds.total(), ipaddress.ip_network(self.ssh_from).version == 6
        return Bill(kinds, disk, 0 if six else 1, self.hours, prices(list(kinds), self.prices, self.region))
