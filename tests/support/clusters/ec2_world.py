"""An EC2 on this machine: moto's server on loopback, invalid credentials, and clusters for tests.

`ec2_world` is a fixture, to be imported by tests. It makes no connection to the internet.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from workbench.mpi.clusters import Cluster, HostState, Status
from workbench.mpi.clusters.ec2 import access as ec2_access
from workbench.mpi.clusters.ec2 import fleet
from workbench.mpi.clusters.ec2.aws import client
from workbench.mpi.clusters.ec2.kind import Ec2
from workbench.mpi.clusters.ssh import Ssh
from workbench.mpi.launch.gateway import Gateway

# searched for in everything that is written or printed
SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIALOOKFORTHISONE01",
    "AWS_SECRET_ACCESS_KEY": "look/for/this/one/too+0123456789abcdef01",
}
PRICES = {"t2.micro": 0.5, "m5.large": 0.25, "disk": 0.125, "address": 0.0625}  # not real prices
REGION, IMAGE = "eu-central-1", "ami-03cf127a"  # an image of moto


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    """Return the address of a server that has one image.

    Making all images of EC2 for each account would take most of the server's time.
    """
    server_of = pytest.importorskip("moto.server", reason="moto is not installed")
    from moto.ec2.models import amis

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(amis, "AMIS", [each for each in amis.AMIS if each["ami_id"] == IMAGE])
        patch.setenv("MOTO_AMIS_PATH", "its own are above")
        yield from _serving(server_of)


def _serving(server_of: Any) -> Iterator[str]:
    server = server_of.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it would log every request
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


class World:
    """An empty account, with a network in one region."""

    def __init__(self, address: str, cache: Path) -> None:
        self.address, self.cache, self.calls = address, cache, Calls()
        urlopen(Request(f"{address}/moto-api/reset", method="POST")).read()
        self.ec2 = connection("the test's", "ec2", REGION, address)

    def cluster(self, name: str = "lab", **changes: Any) -> Ec2:
        """Make a small cluster."""
        fields = {
            "workers": 3,
            "worker_type": "t2.micro",
            "head_type": "m5.large",
            "hours": 2.5,
            "prices": PRICES,
        }
        fields |= {
            "region": REGION,
            "image": IMAGE,
            "ssh_from": "203.0.113.7/32",
            "owner": "ada",
            "disk": 20,
        }
        return Ec2(**{**fields, "name": name, **changes})

    def alive(self) -> list[dict[str, Any]]:
        """Return all machines of the account that are not terminated."""
        pages = self.ec2.get_paginator("describe_instances").paginate()
        found = [m for page in pages for r in page["Reservations"] for m in r["Instances"]]
        return [m for m in found if m["State"]["Name"] != "terminated"]

    def count(self) -> dict[str, int]:
        """Count the resources that were made in the account, by type."""
        groups = [
            g for g in self.ec2.describe_security_groups()["SecurityGroups"] if g["GroupName"] != "default"
        ]
        spot = self.ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
        return {
            "machines": len(self.alive()),
            "volumes": len(self.ec2.describe_volumes()["Volumes"]),
            "interfaces": len(self.ec2.describe_network_interfaces()["NetworkInterfaces"]),
            "groups": len(groups),
            "keys": len(self.ec2.describe_key_pairs()["KeyPairs"]),
            "spot requests": len([each for each in spot if each["State"] in ("open", "active")]),
        }

    def files(self) -> dict[str, str]:
        """Return all files in the cache, by name."""
        found = [path for path in self.cache.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.cache)): path.read_text(errors="replace") for path in found}


NOTHING = {"machines": 0, "volumes": 0, "interfaces": 0, "groups": 0, "keys": 0, "spot requests": 0}


class Calls:
    """All calls to AWS, some of which can be made to fail. It uses a hook of botocore, so requests are real."""

    def __init__(self) -> None:
        self.made: list[tuple[str, dict[str, Any]]] = []
        self.before: Callable[[str, dict[str, Any]], None] = lambda name, text: None
        self.after: Callable[[str, dict[str, Any]], None] = lambda name, answer: None

    def names(self) -> list[str]:
        """Return the names of all calls so far."""
        return [name for name, _ in self.made]

    @contextmanager
    def watching(self, client: Any) -> Iterator[None]:
        """Record the calls of a connection for a while."""
        hooks = (("provide-client-params", self._begun), ("after-call", self._answered))
        for event, hook in hooks:
            client.meta.events.register(event, hook)
        yield
        for event, hook in hooks:
            client.meta.events.unregister(event, hook)

    def _begun(self, params: dict[str, Any], model: Any, **more: Any) -> None:
        self.made.append((model.name, dict(params)))  # copied, since botocore encodes some of them later
        self.before(model.name, params)

    def _answered(self, parsed: dict[str, Any], model: Any, **more: Any) -> None:
        self.after(model.name, parsed)


@pytest.fixture
def ec2_world(moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Make an empty account. The cluster's name is typed for the user, ssh is skipped, and waits take no time."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name, value in {**SECRETS, "AWS_ENDPOINT_URL": moto, "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("builtins.input", lambda: "lab")
    monkeypatch.setattr(fleet, "POLL_INTERVAL_S", 0.0)
    monkeypatch.setattr(fleet, "END_TIMEOUT_S", 60.0)
    # moto's machines have no sshd, and their addresses belong to others on the internet.
    monkeypatch.setattr(ec2_access, "deliver", lambda *rest: None)
    monkeypatch.setattr(Ssh, "check", lambda *rest: [])
    monkeypatch.setattr(Cluster, "status", lambda *rest: Status((HostState("by ssh", "up"),)))
    monkeypatch.setattr(Gateway, "connect", lambda *rest, **more: pytest.fail("a connection to outside"))
    world = World(moto, tmp_path / "cache")
    with ExitStack() as stack:

        def connected(service: str, region: str) -> Any:
            found = connection("ours", service, region, moto)
            if found not in seen:
                seen.append(found)
                stack.enter_context(world.calls.watching(found))
            return found

        seen: list[Any] = []
        monkeypatch.setattr(fleet, "client", connected)
        yield world


@cache
def connection(_user: str, service: str, region: str, address: str) -> Any:
    """Return a connection as the package makes it, cached for all tests, since each takes 0.17 s."""
    return client(service, region)


def notes(world: World, name: str = "lab") -> dict[str, Any]:
    """Return the notes about a cluster."""
    return json.loads((world.cache / "clusters" / name / "machines.json").read_text())


__all__ = ["IMAGE", "NOTHING", "PRICES", "REGION", "SECRETS", "World", "ec2_world", "moto", "notes"]
