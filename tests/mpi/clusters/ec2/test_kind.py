"""The life cycle of a cluster on EC2, on moto's server on loopback."""

from __future__ import annotations

import builtins
import ipaddress
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import botocore.client
import pytest
import yaml
from botocore.exceptions import ClientError
from click.testing import CliRunner

from tests.support.clusters.ec2_world import IMAGE, NOTHING, REGION, SECRETS, World, ec2_world, moto, notes
from tests.support.sampled_cases import rotated, sampled_cases
from workbench.cli.main import cli
from workbench.core.base.errors import ClusterError
from workbench.core.base.settings import SettingError
from workbench.mpi.clusters.ec2 import access as ec2_access
from workbench.mpi.clusters.ec2 import fleet
from workbench.mpi.clusters.ec2 import notes as ec2_notes
from workbench.mpi.clusters.ec2.requests import CLUSTER, GROUP, LAUNCH, group_of, plain, rules, tags

__all__ = ["ec2_world", "moto"]

INPUT = builtins.input  # the fixture replaces the user's input


def calls(world: World, name: str) -> list[dict[str, Any]]:
    """Return the parameters of all calls of a name, without dry runs."""
    return [text for each, text in world.calls.made if each == name and not text.get("DryRun")]


def leftovers(world: World) -> None:
    """Make resources that a cluster could leave: a volume, a network interface, requests for spot machines."""
    ec2, mark = world.ec2, [{"Key": CLUSTER, "Value": "ada/lab"}]
    sorts = ("volume", "network-interface", "spot-instances-request")
    volume, port, spot = ([{"ResourceType": sort, "Tags": mark}] for sort in sorts)
    ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=1, TagSpecifications=volume)
    ec2.create_network_interface(SubnetId=world.alive()[0]["SubnetId"], TagSpecifications=port)
    ec2.request_spot_instances(
        InstanceCount=2, LaunchSpecification={"ImageId": IMAGE}, TagSpecifications=spot
    )


@rotated
@pytest.mark.parametrize(
    ("workers", "at_once"), [(24, 3), pytest.param(156, 20, marks=pytest.mark.slow)], ids=["24", "figure 9"]
)
def test_ec2_fleet_of_many_calls_goes_up_and_down(
    ec2_world: World, monkeypatch: pytest.MonkeyPatch, workers: int, at_once: int
) -> None:
    monkeypatch.setattr(fleet, "ANSWERS_PER_PAGE", 5)  # moto's pages have a number of calls, not of machines
    monkeypatch.setattr("workbench.mpi.clusters.ec2.kind.MACHINES_PER_CALL", at_once)
    cluster = ec2_world.cluster(preset="codedreduce-156", workers=workers)
    seen: list[tuple[str, int, int]] = []
    cluster.up(lambda *state: seen.append(state))

    found = cluster.fleet.machines()
    assert Counter(m["InstanceType"] for m in found) == {"t2.micro": workers, "m5.large": 1}
    assert group_of(found[0]) == "head"
    assert len(notes(ec2_world)["workers"]) == len(set(notes(ec2_world)["workers"])) == workers
    assert ("starting machines", workers + 1, workers + 1) in seen
    assert len(calls(ec2_world, "RunInstances")) == 9
    assert any("NextToken" in text for text in calls(ec2_world, "DescribeInstances"))

    cluster.down(lambda *state: seen.append(state))
    assert seen[-1] == ("ending machines", workers + 1, workers + 1)
    assert ec2_world.count() == NOTHING
    assert not (ec2_world.cache / "clusters" / "lab").exists()


def test_ec2_machines_are_closed_and_end_themselves(ec2_world: World) -> None:
    cluster = ec2_world.cluster()
    cluster.up()
    launch = notes(ec2_world)["launch"]
    for m in ec2_world.alive():
        assert m["MetadataOptions"]["HttpTokens"] == "required"
        assert tags(m)[CLUSTER] == "ada/lab"
        assert tags(m)[LAUNCH] == launch
        assert bool(m.get("PublicIpAddress")) == (tags(m)[GROUP] == "head")
        ends = ec2_world.ec2.describe_instance_attribute(
            InstanceId=m["InstanceId"], Attribute="instanceInitiatedShutdownBehavior"
        )
        assert ends["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"
    for text in calls(ec2_world, "RunInstances"):
        part = text["ClientToken"].removeprefix(f"{launch}-")
        assert text["MinCount"] == text["MaxCount"] == (1 if part == "head" else 3)
        assert [port["AssociatePublicIpAddress"] for port in text["NetworkInterfaces"]] == [part == "head"]
        assert text["BlockDeviceMappings"][0]["Ebs"] == {
            "VolumeSize": 20,
            "VolumeType": "gp3",
            "DeleteOnTermination": True,
        }
        sorts = {each["ResourceType"] for each in text["TagSpecifications"]}
        assert sorts == {"instance", "volume", "network-interface"}
        assert text.get("CreditSpecification") == (None if part == "head" else {"CpuCredits": "standard"})
    for volume in ec2_world.ec2.describe_volumes()["Volumes"]:
        assert tags(volume)[CLUSTER] == "ada/lab"
    group = cluster.fleet.tagged("describe_security_groups", "SecurityGroups")[0]
    assert {plain(rule) for rule in group["IpPermissions"]} == {
        plain(rule) for rule in rules(group["GroupId"], "203.0.113.7/32")
    }
    assert "0.0.0.0/0" not in repr(group["IpPermissions"])
    assert len(cluster.fleet.tagged("describe_key_pairs", "KeyPairs")) == 1


def test_ec2_user_data_set_shutdown_access_and_host_key(ec2_world: World) -> None:
    cluster = ec2_world.cluster()
    cluster.up()
    for text in calls(ec2_world, "RunInstances"):
        user_data = yaml.safe_load(text["UserData"])
        file = user_data["write_files"][0]
        # at each start, not only the first one
        assert file["path"].startswith("/var/lib/cloud/scripts/per-boot/")
        assert str(int(notes(ec2_world)["deadline"])) in file["content"]
        head = text["ClientToken"].endswith("head")
        host = ec2_access.HEAD_HOST if head else ec2_access.WORKERS_HOST
        assert user_data["ssh_keys"]["ed25519_public"] == ec2_access.public(cluster.folder, host)
        assert user_data["ssh_authorized_keys"] == (
            [] if head else [ec2_access.public(cluster.folder, "inner")]
        )
        inner, own = ((cluster.folder / name).read_text() for name in ("inner", "key"))
        assert inner not in text["UserData"]
        assert own not in text["UserData"]


def test_ec2_stores_no_credential(ec2_world: World, capfd: pytest.CaptureFixture[str], caplog: Any) -> None:
    caplog.set_level("DEBUG", logger="workbench")
    cluster = ec2_world.cluster()
    cluster.up()
    cluster.status()
    with pytest.raises(SettingError) as refused:
        ec2_world.cluster(hours=1).up()
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("workbench")]
    user_data = [texts["UserData"] for texts in calls(ec2_world, "RunInstances")]
    out, err = capfd.readouterr()
    everything = [*ec2_world.files().values(), *ours, *user_data, out, err, str(refused.value), repr(cluster)]
    assert len(everything) > 10
    for secret in SECRETS.values():
        assert not [text for text in everything if secret in text]
    keys = [name for name, text in ec2_world.files().items() if "PRIVATE KEY" in text]
    assert len(keys) == 4
    for name in ec2_world.files():
        assert name.endswith(".pub") or (ec2_world.cache / name).stat().st_mode & 0o077 == 0, name
    assert cluster.folder.stat().st_mode & 0o077 == 0


def test_ec2_up_twice_starts_nothing(ec2_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ec2_world.cluster().up()
    before, started = notes(ec2_world), len(calls(ec2_world, "RunInstances"))
    monkeypatch.setattr("builtins.input", lambda: pytest.fail("asked"))
    ec2_world.cluster().up()
    assert len(calls(ec2_world, "RunInstances")) == started
    assert notes(ec2_world) == before
    ec2_world.cluster(ssh_from="198.51.100.9/32").up()  # the address of this machine has changed
    group = ec2_world.cluster().fleet.tagged("describe_security_groups", "SecurityGroups")[0]
    assert {plain(rule) for rule in group["IpPermissions"]} == {
        plain(rule) for rule in rules(group["GroupId"], "198.51.100.9/32")
    }


def test_ec2_up_continues_after_a_kill(ec2_world: World) -> None:
    class Killed(BaseException):
        pass

    cluster = ec2_world.cluster()

    def kill(name: str, fields: dict[str, Any]) -> None:
        if name == "RunInstances" and "workers" in fields.get("ClientToken", ""):
            raise Killed

    with pytest.MonkeyPatch.context() as patch:  # a killed process cleans nothing up
        patch.setattr(type(cluster.fleet), "down", lambda *rest: 0)
        patch.setattr(ec2_notes, "forget", lambda *rest: None)
        ec2_world.calls.before = kill
        with pytest.raises(Killed):
            cluster.up()
    ec2_world.calls.before = lambda *rest: None
    assert len(ec2_world.alive()) == 1
    cluster.up()
    assert len(ec2_world.alive()) == 4
    sent = calls(ec2_world, "RunInstances")
    again = [texts for texts in sent if "workers" in texts["ClientToken"]]
    assert len(sent) == 3
    # equal requests, so that EC2 starts nothing twice, whatever it received before
    assert again[0] == again[1]


def test_ec2_down_twice_and_without_up(ec2_world: World) -> None:
    ec2_world.cluster().down()
    ec2_world.cluster().up()
    ec2_world.cluster().down()
    ec2_world.cluster().down()
    assert ec2_world.count() == NOTHING


def test_ec2_down_without_notes(ec2_world: World) -> None:
    cluster = ec2_world.cluster()
    cluster.up()
    (cluster.folder / "machines.json").write_text('{"launch": ')
    with pytest.raises(ClusterError, match=r"machines.json: cannot be read .*workbench cluster down"):
        cluster.up()
    for path in cluster.folder.iterdir():
        path.unlink()
    with pytest.raises(ClusterError, match="not in this"):
        cluster.up()
    assert len(ec2_world.alive()) == 4
    (cluster.folder / "machines.json").write_text('{"launch": ')
    cluster.down()
    assert ec2_world.count() == NOTHING


def test_ec2_down_removes_everything_with_the_tag_only(ec2_world: World) -> None:
    others = [ec2_world.cluster("lab-2"), ec2_world.cluster(owner="bob"), ec2_world.cluster("la")]
    with pytest.MonkeyPatch.context() as patch:
        for other in others:
            patch.setattr("builtins.input", lambda name=other.name: name)
            patch.setenv("WORKBENCH_CACHE", str(ec2_world.cache / (other.owner + other.name)))
            other.up()
    alone = ec2_world.count()
    cluster = ec2_world.cluster()
    cluster.up()
    leftovers(ec2_world)
    ec2_world.ec2.stop_instances(InstanceIds=[cluster.fleet.machines()[-1]["InstanceId"]])
    cluster.down()
    assert cluster.fleet.left() == {}
    after = ec2_world.count()
    bare = [m for m in ec2_world.alive() if CLUSTER not in tags(m)]  # machines of the spot requests
    assert {**after, "machines": after["machines"] - len(bare)} | {"volumes": 0, "interfaces": 0} == {
        **alone,
        "volumes": 0,
        "interfaces": 0,
    }
    assert all(len(other.fleet.machines()) == 4 for other in others)


def test_ec2_spot_requests_have_the_tag(ec2_world: World) -> None:
    ec2_world.cluster(spot=True).up()
    head, workers = calls(ec2_world, "RunInstances")
    assert "InstanceMarketOptions" not in head
    assert workers["InstanceMarketOptions"]["MarketType"] == "spot"
    assert "spot-instances-request" in {each["ResourceType"] for each in workers["TagSpecifications"]}


@pytest.mark.parametrize("typed", sampled_cases("typed names", 2, ["", "y", "yes", "LAB", "lab2"]))
def test_ec2_up_requires_the_typed_name(
    ec2_world: World, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    monkeypatch.setattr("builtins.input", lambda: typed)
    with pytest.raises(ClusterError, match="nothing was started"):
        ec2_world.cluster().up()
    assert ec2_world.count() == NOTHING
    assert not [name for name in ec2_world.calls.names() if not name.startswith("Describe")]


def test_ec2_up_without_a_keyboard_is_refused(ec2_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", nobody)
    with pytest.raises(ClusterError, match="nothing was started"):
        ec2_world.cluster().up()
    assert ec2_world.count() == NOTHING


def test_ec2_up_states_costs_before_confirmation(
    ec2_world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    ec2_world.cluster(hours=3.9).up()
    text = capsys.readouterr().out
    ceiling = (3 * 0.5 + 0.25 + 80 * 0.125 / 672 + 0.0625) * 4.0  # with a tenth of an hour for shutting down
    assert f"at most {ceiling:.2f} $" in text
    assert "3 t2.micro + 1 m5.large in eu-central-1, CpuCredits=standard, account 123456789012" in text
    assert f"ssh -F {ec2_world.cluster().folder / 'ssh_config'} head" in text
    assert notes(ec2_world)["ceiling"] == pytest.approx(ceiling)


def test_ec2_up_refuses_other_settings(ec2_world: World) -> None:
    ec2_world.cluster().up()
    with pytest.raises(SettingError, match=r"workers = 4: lab is up with 3"):
        ec2_world.cluster(workers=4).up()
    # `down` would search in the wrong region or for the wrong owner
    for other in ({"region": "us-east-1"}, {"owner": "eve"}):
        with pytest.raises(SettingError, match="put that back"):
            ec2_world.cluster(**other).down()
    assert len(ec2_world.alive()) == 4


def test_ec2_run_does_not_restart_missing_machines(ec2_world: World) -> None:
    cluster = ec2_world.cluster()
    cluster.up()
    ec2_world.ec2.terminate_instances(InstanceIds=[cluster.fleet.machines()[-1]["InstanceId"]])
    with pytest.raises(ClusterError, match="1 of 4 are gone"):
        cluster.up()
    assert len(ec2_world.alive()) == 3  # a run may continue on them


def test_ec2_up_after_automatic_shutdown(ec2_world: World) -> None:
    cluster = ec2_world.cluster()
    cluster.up()
    first = notes(ec2_world)["launch"]
    ec2_world.ec2.terminate_instances(InstanceIds=[m["InstanceId"] for m in ec2_world.alive()])
    assert "not up, but there are" in cluster.status().note
    cluster.up()
    assert notes(ec2_world)["launch"] != first
    assert ec2_world.count()["machines"] == 4
    assert ec2_world.count()["groups"] == ec2_world.count()["keys"] == 1


def test_ec2_status_before_and_after(ec2_world: World) -> None:
    assert "nothing is there" in ec2_world.cluster().status().note
    assert ec2_world.cluster().status().hosts == ()


def test_ec2_status_shows_cost_hours_and_credits(ec2_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ec2_world.cluster()
    cluster.up()
    # no ssh connection is made then
    ec2_world.ec2.stop_instances(InstanceIds=[cluster.fleet.machines()[0]["InstanceId"]])
    assert "no balance of the 3 machines yet" in cluster.status().note
    watch = boto3.client("cloudwatch", region_name=REGION)
    for m, credits in zip(cluster.fleet.machines()[1:], (0.25, 12.0, 30.0), strict=True):
        which = [{"Name": "InstanceId", "Value": m["InstanceId"]}]
        datum = {
            "MetricName": "CPUCreditBalance",
            "Dimensions": which,
            "Value": credits,
            "Timestamp": datetime.now(UTC) - timedelta(minutes=4),
        }
        watch.put_metric_data(Namespace="AWS/EC2", MetricData=[datum])
    status = cluster.status()
    assert "0.25 to 30, median 12 (3 of 3 machines), 1 below 1" in status.note
    assert "CpuCredits=standard" in status.note
    assert "at most" in status.note
    assert status.cost is not None
    assert 0 <= status.cost < 0.5
    assert [host.state for host in status.hosts] == ["stopped", "running", "running", "running"]


def test_ec2_status_of_overdue_machines(ec2_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ec2_world.cluster().up()
    later = notes(ec2_world)["deadline"] + 3600
    monkeypatch.setattr("workbench.mpi.clusters.ec2.kind.time.time", lambda: later)
    status = ec2_world.cluster().status()
    assert "SHOULD HAVE ENDED ITSELF 1.0 h ago" in status.note
    assert status.cost == pytest.approx(notes(ec2_world)["ceiling"] * 2.5 / 2.6)


def test_ec2_policy_allows_exactly_the_calls(ec2_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made: set[str] = set()
    plain = botocore.client.BaseClient._make_api_call

    def counted(self: Any, name: str, fields: dict[str, Any]) -> Any:
        if self is not ec2_world.ec2:  # calls of the test itself
            service = self.meta.service_model.signing_name.replace("monitoring", "cloudwatch")
            made.add(f"{service}:{name}")
        return plain(self, name, fields)

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", counted)
    cluster = ec2_world.cluster(prices={}, spot=True)
    with pytest.raises(SettingError, match="no price"):
        cluster.up()
    cluster = ec2_world.cluster()
    cluster.up()
    cluster.status()
    ec2_world.cluster(ssh_from="198.51.100.9/32").up()
    leftovers(ec2_world)
    cluster.down()
    policy = json.loads((Path(__file__).parents[4] / "clusters" / "ec2" / "policy.json").read_text())
    allowed = {action for each in policy["Statement"] for action in each["Action"]}
    beside = {
        "ec2:CreateTags",
        "iam:CreateServiceLinkedRole",
    }  # tags are set by the calls themselves; the role is for spot machines
    needs_none = {"sts:GetCallerIdentity"}
    assert made - needs_none == allowed - beside


def test_ec2_head_alone_for_an_image(ec2_world: World) -> None:
    cluster = ec2_world.cluster(workers=0)
    cluster.up()
    (head,) = ec2_world.alive()
    (row,) = cluster.status().hosts
    assert row.note == f"{head['InstanceId']}, m5.large"
    assert "1 m5.large in eu-central-1;" in cluster.status().note
    with pytest.raises(ClusterError, match="no workers"):
        cluster.site.open(2)
    cluster.down()
    assert ec2_world.count() == NOTHING


def test_ec2_up_from_an_ipv6_address(ec2_world: World) -> None:
    cluster = ec2_world.cluster(ssh_from="2001:db8::7/128")
    assert cluster.bill().addresses == 0
    order = rules("sg-1", "2001:db8::7/128")
    assert order[0]["Ipv6Ranges"] == [{"CidrIpv6": "2001:db8::7/128"}]
    assert "IpRanges" not in order[0]
    assert ipaddress.ip_network(cluster.ssh_from).prefixlen == 128


def test_ec2_run_on_a_cluster_that_is_not_up(ec2_world: World) -> None:
    with pytest.raises(ClusterError, match="workbench cluster up lab"):
        ec2_world.cluster().site.open(3)
    assert ec2_world.calls.made == []


def test_ec2_command_line(ec2_world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fields = ec2_world.cluster().model_dump(mode="json", exclude_unset=True, exclude={"name"})
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "lab.yaml").write_text(yaml.safe_dump({"kind": "ec2", **fields}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("builtins.input", INPUT)

    def workbench(*arguments: str, typed: str = "") -> Any:
        return CliRunner().invoke(cli, ["cluster", *arguments], input=typed)

    refused = workbench("up", "lab", typed="yes\n")
    assert refused.exit_code == 1
    assert "nothing was started" in refused.output
    assert ec2_world.count() == NOTHING
    done = workbench("up", "lab", typed="lab\n")
    assert done.exit_code == 0, done.output
    assert "at most" in done.output
    assert len(ec2_world.alive()) == 4
    assert "CpuCredits=standard" in workbench("status", "lab").output
    ec2_world.calls.before = refuse_to_end
    left = workbench("down", "lab")
    assert left.exit_code == 1
    assert "STILL THERE, and perhaps costing money: machine i-" in left.output
    ec2_world.calls.before = lambda *rest: None
    assert workbench("down", "lab").exit_code == 0
    assert ec2_world.count() == NOTHING
    (tmp_path / "clusters" / "lab.yaml").write_text(
        yaml.safe_dump({"kind": "ec2", **fields, "ssh_from": "::/0"})
    )
    wide = workbench("up", "lab", typed="lab\n")
    assert wide.exit_code != 0
    assert "ssh_from" in str(wide.exception)


def refuse_to_end(name: str, fields: dict[str, Any]) -> None:
    """Forbid to end machines."""
    if name == "TerminateInstances":
        raise ClientError({"Error": {"Code": "UnauthorizedOperation", "Message": "no"}}, name)
