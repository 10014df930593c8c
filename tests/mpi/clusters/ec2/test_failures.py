"""Failures while machines on EC2 are started or ended: nothing is left, or the user gets a list of what is left."""

from __future__ import annotations

import os
import random
import signal
import sys
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from tests.support.clusters.ec2_world import NOTHING, World, ec2_world, moto
from tests.support.sampled_cases import sampled_cases
from workbench.core.base.errors import ClusterError
from workbench.core.base.settings import SettingError
from workbench.mpi.clusters.ec2 import access as ec2_access
from workbench.mpi.clusters.ec2 import fleet, launch
from workbench.mpi.clusters.ec2.aws import client

__all__ = ["ec2_world", "moto"]


def refusal(code: str, name: str = "RunInstances") -> ClientError:
    """Return the error with which EC2 refuses a request."""
    return ClientError({"Error": {"Code": code, "Message": f"{code} it is"}}, name)


class Once:
    """Raises an error once, before or after a call. `number`: index of that call, from 0.

    With `name`, only calls of this name count, without dry runs.
    """

    def __init__(
        self, world: World, number: int, error: BaseException, name: str = "", after: bool = False
    ) -> None:
        self.number, self.error, self.name, self.done = number, error, name, False
        setattr(world.calls, "after" if after else "before", self)

    def __call__(self, name: str, fields: dict[str, Any]) -> None:
        rehearsal = "DryRun" in fields or "Error" in fields  # the reply to a dry run is a refusal
        if self.name in ("", name) and not (self.name and rehearsal) and not self.done:
            self.number -= 1
            if self.number < 0:
                self.done = True
                raise self.error


def number_of_calls(world: World) -> int:
    """Count the calls of an `up`."""
    world.cluster().up()
    made = len(world.calls.made)
    world.cluster().down()
    world.calls.made.clear()
    return made


def broken(world: World, number: int, after: bool, error: BaseException) -> None:
    """Check that an `up` with one failing call leaves nothing, and that the next one works."""
    fails = Once(world, number, error, after=after)
    with pytest.raises((ClusterError, KeyboardInterrupt)):
        world.cluster().up()
    assert fails.done
    assert world.count() == NOTHING
    assert [name for name in world.files() if not name.endswith(".lock")] == []


ERRORS = (refusal("InternalError"), KeyboardInterrupt(), ConnectionClosedError(endpoint_url="EC2"))


# the slow test below tries every call
@pytest.mark.parametrize("seed", sampled_cases("number_of_calls", 1, range(2)))
def test_up_failure_at_a_random_call_leaves_nothing(ec2_world: World, seed: int) -> None:
    draw = random.Random(seed)
    broken(ec2_world, draw.randrange(number_of_calls(ec2_world)), draw.random() < 0.5, draw.choice(ERRORS))


@pytest.mark.slow
def test_up_failure_at_every_call_leaves_nothing(ec2_world: World) -> None:
    for number in range(number_of_calls(ec2_world)):
        for after in (False, True):
            for error in ERRORS:
                broken(ec2_world, number, after, error)


@pytest.mark.parametrize(
    ("name", "number"),
    sampled_cases(
        "answers lost",
        2,
        [
            ("CreateSecurityGroup", 0),
            ("AuthorizeSecurityGroupIngress", 0),
            ("ImportKeyPair", 0),
            ("RunInstances", 0),
            ("RunInstances", 1),
            ("DescribeInstanceAttribute", 0),
        ],
    ),
)
def test_up_failure_removes_machines_of_lost_answers(ec2_world: World, name: str, number: int) -> None:
    fails = Once(ec2_world, number, KeyboardInterrupt(), name, after=True)
    with pytest.raises(KeyboardInterrupt):
        ec2_world.cluster().up()
    assert fails.done
    assert ec2_world.count() == NOTHING


@pytest.mark.parametrize(
    ("code", "help"),
    sampled_cases(
        "refusals",
        2,
        [
            ("VcpuLimitExceeded", "Service Quotas"),
            ("InsufficientInstanceCapacity", "subnet in another one"),
            ("UnauthorizedOperation", "permissions"),
            ("SomethingNew", "SomethingNew it is"),
        ],
    ),
)
def test_up_removes_machines_if_the_last_are_refused(
    ec2_world: World, monkeypatch: pytest.MonkeyPatch, code: str, help: str
) -> None:
    # 3 workers need two calls, of which the second is refused
    monkeypatch.setattr("workbench.mpi.clusters.ec2.kind.MACHINES_PER_CALL", 2)
    Once(ec2_world, 2, refusal(code), "RunInstances")
    with pytest.raises(ClusterError, match=help):
        ec2_world.cluster().up()
    assert ec2_world.count() == NOTHING


@pytest.mark.parametrize(
    "name", sampled_cases("a new group", 1, ["RunInstances", "AuthorizeSecurityGroupIngress"])
)
def test_up_retries_a_group_that_ec2_does_not_know_yet(ec2_world: World, name: str) -> None:
    Once(ec2_world, 0, refusal("InvalidGroup.NotFound", name), name)
    ec2_world.cluster().up()
    assert len(ec2_world.alive()) == 4
    tokens = [texts["ClientToken"] for call, texts in ec2_world.calls.made if "ClientToken" in texts]
    assert len(set(tokens)) == 2


def test_up_dry_run_that_is_refused_starts_nothing(ec2_world: World) -> None:
    def refuse(name: str, fields: dict[str, Any]) -> None:
        if name == "RunInstances" and fields.get("DryRun") and fields["MinCount"] == 3:
            raise refusal("UnauthorizedOperation")

    ec2_world.calls.before = refuse
    with pytest.raises(ClusterError, match="UnauthorizedOperation"):
        ec2_world.cluster().up()
    assert [
        text for name, text in ec2_world.calls.made if name == "RunInstances" and "DryRun" not in text
    ] == []
    assert ec2_world.count() == NOTHING


def change_descriptions(world: World, change: Any) -> None:
    """Change EC2's description of each machine."""

    def after(name: str, answer: dict[str, Any]) -> None:
        for reservation in answer.get("Reservations", []) if name == "DescribeInstances" else []:
            for machine in reservation["Instances"]:
                change(machine)

    world.calls.after = after


def test_up_removes_machines_that_do_not_start_in_time(
    ec2_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "START_TIMEOUT_S", 0.0)
    change_descriptions(
        ec2_world, lambda m: m["State"].update(Name=m["State"]["Name"].replace("running", "pending"))
    )
    with pytest.raises(ClusterError, match="0 of 4 are up after"):
        ec2_world.cluster().up()
    assert ec2_world.count() == NOTHING


def test_up_removes_machines_that_end_while_starting(ec2_world: World) -> None:
    def change(m: dict[str, Any]) -> None:
        if m["InstanceType"] == "t2.micro" and m["State"]["Name"] == "running":
            m["State"]["Name"] = "shutting-down"
            m["StateReason"] = {"Message": "Server.InsufficientInstanceCapacity: none left"}

    change_descriptions(ec2_world, change)
    with pytest.raises(ClusterError, match=r"3 of 4 ended while starting \(Server.Insuff.*none left"):
        ec2_world.cluster().up()
    assert ec2_world.count() == NOTHING


@pytest.mark.parametrize(
    "change",
    sampled_cases(
        "not closed",
        1,
        [
            lambda m: m["MetadataOptions"].update(HttpTokens="optional"),
            lambda m: m.update(PublicIpAddress="192.0.2.1"),
            lambda m: m["NetworkInterfaces"][0]["Groups"].append({"GroupId": "sg-another"}),
        ],
    ),
)
def test_up_removes_machines_without_a_closed_firewall(ec2_world: World, change: Any) -> None:
    change_descriptions(ec2_world, change)
    with pytest.raises(ClusterError, match="not as closed"):
        ec2_world.cluster().up()
    assert ec2_world.count() == NOTHING


@pytest.mark.parametrize(
    "lacking", sampled_cases("not ending", 1, ["InstanceInitiatedShutdownBehavior", "UserData"])
)
def test_up_removes_machines_without_automatic_shutdown(ec2_world: World, lacking: str) -> None:
    def after(name: str, answer: dict[str, Any]) -> None:
        if lacking in answer:
            answer[lacking] = {}

    ec2_world.calls.after = after
    with pytest.raises(ClusterError, match="would not end by itself"):
        ec2_world.cluster().up()
    assert ec2_world.count() == NOTHING


def test_up_removes_machines_with_unlimited_credits(ec2_world: World) -> None:
    def after(name: str, answer: dict[str, Any]) -> None:
        for each in answer.get("InstanceCreditSpecifications", []):
            each["CpuCredits"] = "unlimited"

    ec2_world.calls.after = after
    with pytest.raises(ClusterError, match="CpuCredits unlimited"):
        ec2_world.cluster().up()
    assert ec2_world.count() == NOTHING


def test_up_removes_unreachable_machines(ec2_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(*rest: Any) -> None:
        raise ClusterError("after 900 s, the head cannot be reached (Connection timed out)")

    monkeypatch.setattr(ec2_access, "deliver", deaf)
    with pytest.raises(ClusterError, match="cannot be reached"):
        ec2_world.cluster().up()
    assert ec2_world.count() == NOTHING
    assert "clusters/lab/key" not in ec2_world.files()


def test_up_failure_keeps_earlier_machines(ec2_world: World) -> None:
    ec2_world.cluster().up()
    Once(ec2_world, 3, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        ec2_world.cluster().up()
    assert len(ec2_world.alive()) == 4
    assert "clusters/lab/key" in ec2_world.files()


@pytest.mark.parametrize("number", sampled_cases("signals", 1, [signal.SIGTERM, signal.SIGHUP]))
def test_up_interrupted_by_a_closed_terminal_leaves_nothing(ec2_world: World, number: int) -> None:
    sent = []

    def before(name: str, fields: dict[str, Any]) -> None:
        if name == "RunInstances" and "workers" in fields.get("ClientToken", ""):
            sent.append(number)
            os.kill(os.getpid(), number)
        if name in ("TerminateInstances", "DeleteSecurityGroup"):
            sent.append(signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    ec2_world.calls.before = before
    with pytest.raises(KeyboardInterrupt):
        ec2_world.cluster().up()
    assert sent == [number, signal.SIGINT, signal.SIGINT]
    assert ec2_world.count() == NOTHING


def test_down_retries_a_security_group_in_use(ec2_world: World) -> None:
    ec2_world.cluster().up()
    tries = []

    def before(name: str, fields: dict[str, Any]) -> None:
        if name == "DeleteSecurityGroup" and len(tries) < 3:
            tries.append(name)
            raise refusal("DependencyViolation", name)

    ec2_world.calls.before = before
    ec2_world.cluster().down()
    assert len(tries) == 3
    assert ec2_world.count() == NOTHING


@pytest.mark.parametrize(
    "operation",
    sampled_cases("what is left", 1, ["TerminateInstances", "DeleteSecurityGroup", "DeleteKeyPair"]),
)
def test_down_reports_what_is_left_and_why(ec2_world: World, operation: str) -> None:
    cluster = ec2_world.cluster()
    cluster.up()

    def before(name: str, fields: dict[str, Any]) -> None:
        if name == operation:
            raise refusal("UnauthorizedOperation", name)

    ec2_world.calls.before = before
    with pytest.raises(
        ClusterError, match=r"STILL THERE, and perhaps costing money: .*UnauthorizedOperation"
    ):
        cluster.down()
    assert cluster.fleet.left()
    ec2_world.calls.before = lambda *rest: None
    cluster.down()
    assert ec2_world.count() == NOTHING


def test_down_reports_a_timeout(ec2_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ec2_world.cluster()
    cluster.up()
    monkeypatch.setattr(fleet, "END_TIMEOUT_S", 0.0)
    change_descriptions(ec2_world, lambda m: m["State"].update(Name="shutting-down"))
    with pytest.raises(ClusterError, match=r"machine i-\w+, .* \(4\)"):
        cluster.down()


def test_up_failure_and_cleanup_failure_are_both_reported(ec2_world: World) -> None:
    def before(name: str, fields: dict[str, Any]) -> None:
        if name == "ImportKeyPair":
            raise refusal("InternalError", name)
        if name == "DeleteSecurityGroup":
            raise refusal("UnauthorizedOperation", name)

    ec2_world.calls.before = before
    with pytest.raises(ClusterError, match=r"InternalError .* moreover, .*STILL THERE.*security group sg-"):
        ec2_world.cluster().up()


def test_ec2_without_credentials_is_one_sentence(ec2_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(ClusterError, match=r"Unable to locate credentials.*log in first"):
        ec2_world.cluster().up()


def test_ec2_without_boto3_says_what_to_install(ec2_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "client", client)
    for name in ("boto3", "botocore.config", "botocore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ClusterError, match=r"boto3: not found; .*straggler-workbench\[ec2\]"):
        ec2_world.cluster().up()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image": "ami-00000000"}, "ami-00000000"),
        ({"disk": 8}, r"disk = 8: this image needs \d+ GB"),
        ({"subnet": "subnet-00000000"}, "subnet-00000000"),
    ],
)
def test_up_reports_missing_resources_and_starts_nothing(
    ec2_world: World, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises((ClusterError, SettingError), match=message):
        ec2_world.cluster(**changes).up()
    assert ec2_world.count() == NOTHING
