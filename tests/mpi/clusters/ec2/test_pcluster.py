"""The template of AWS ParallelCluster and its scripts, checked by the tool itself and by AWS's descriptions."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

FOLDER = Path(__file__).parents[4] / "clusters" / "ec2"
TOOL = os.environ.get("PCLUSTER") or shutil.which("pcluster")
needs_tool = pytest.mark.skipif(
    TOOL is None,
    reason="pcluster is not installed (clusters/ec2/README.md says how); PCLUSTER names it elsewhere",
)
# moto does not return the type of a key, and its dry run of RunInstances accepts only EBS disks.
GAPS = ("KeyPairValidator", "HeadNodeLaunchTemplateValidator", "ComputeResourceLaunchTemplateValidator")
REGION = "us-east-1"


@pytest.fixture
def account(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return the environment of a tool for an empty account of moto's with ParallelCluster's image."""
    version = json.loads(subprocess.run([str(TOOL), "version"], capture_output=True, check=True).stdout)[
        "version"
    ]
    image = {
        "ami_id": "ami-0aaaaaaaaaaaaaaaa",
        "name": f"aws-parallelcluster-{version}-amzn2023-hvm-x86_64-202601010000",
        "creation_date": "2026-01-01T00:00:00.000Z",
        "owner_id": "801119661308",
        "public": True,
        "state": "available",
        "description": "for tests",
        "platform": None,
        "image_location": "amazon/test",
        "image_type": "machine",
        "architecture": "x86_64",
        "virtualization_type": "hvm",
        "hypervisor": "xen",
        "root_device_type": "ebs",
        "root_device_name": "/dev/xvda",
        "sriov": "simple",
    }
    (tmp_path / "images.json").write_text(json.dumps([image]))
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "MOTO_AMIS_PATH": str(tmp_path / "images.json"),
        "HOME": str(tmp_path),
    }
    call = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(call, env=environment, stdout=log, stderr=log) as server,
    ):
        try:
            await_server(environment["AWS_ENDPOINT_URL"], server)
            yield environment
        finally:
            server.kill()


def await_server(address: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server replies."""
    for _ in range(600):
        assert server.poll() is None, "moto's server has ended"
        try:
            urlopen(f"{address}/moto-api/", timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail("moto's server does not answer")


def filled_in(environment: dict[str, str], folder: Path, **changes: Any) -> Path:
    """Return the template, filled in as the README describes: two subnets in one zone, and a key pair."""
    import boto3

    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    session = boto3.session.Session(*(environment[key] for key in keys), region_name=REGION)
    ec2 = session.client("ec2", endpoint_url=environment["AWS_ENDPOINT_URL"])
    network = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    for what in ("EnableDnsSupport", "EnableDnsHostnames"):
        ec2.modify_vpc_attribute(VpcId=network, **{what: {"Value": True}})
    subnets = [
        ec2.create_subnet(VpcId=network, CidrBlock=f"10.0.{k}.0/24", AvailabilityZone=f"{REGION}a")["Subnet"][
            "SubnetId"
        ]
        for k in (0, 1)
    ]
    ec2.create_key_pair(KeyName="YOUR-KEY-PAIR")
    text = (FOLDER / "pcluster.yaml").read_text()
    for k, subnet in enumerate(subnets):
        assert f"subnet-{k:017}" in text
        text = text.replace(f"subnet-{k:017}", subnet)
    for old, new in changes.get("replaced", {}).items():
        assert old in text
        text = text.replace(old, new)
    path = folder / "pcluster.yaml"
    path.write_text(text)
    return path


def dry_run(environment: dict[str, str], config: Path) -> dict[str, Any]:
    """Return the output of `pcluster create-cluster --dryrun true`."""
    call = [str(TOOL), "create-cluster", "-n", "lab", "-c", str(config), "--dryrun", "true", "-r", REGION]
    call += ["--suppress-validators", *(f"type:{name}" for name in GAPS)]
    found = subprocess.run(call, env=environment, capture_output=True, text=True, check=False, timeout=300)
    return json.loads(found.stdout)


@needs_tool
def test_pcluster_takes_the_template(account: dict[str, str], tmp_path: Path) -> None:
    text = dry_run(account, filled_in(account, tmp_path))
    assert text["message"] == "Request would have succeeded, but DryRun flag is set."
    assert not [each for each in text.get("validationMessages", []) if each["level"] == "ERROR"]


@needs_tool
@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "validator"),
    [
        ("m7i.xlarge", "m7i.large", "HeadNodeMemorySizeValidator"),
        ("alinux2023", "ubuntu2404", "Cannot find official ParallelCluster AMI"),
        ("ScaledownIdletime: 5", "ScaledownIdletime: soon", "ScaledownIdletime"),
    ],
)
def test_pcluster_would_refuse_a_wrong_one(
    account: dict[str, str], tmp_path: Path, old: str, new: str, validator: str
) -> None:
    text = dry_run(account, filled_in(account, tmp_path, replaced={old: new}))
    assert "nvalid" in text["message"]
    assert validator in json.dumps(text)


def test_pcluster_template_shrinks_when_idle() -> None:
    text = yaml.safe_load((FOLDER / "pcluster.yaml").read_text())
    assert text["Scheduling"]["SlurmSettings"]["ScaledownIdletime"] <= 10
    assert text["Imds"]["ImdsSupport"] == "v2.0"
    assert text["HeadNode"]["Ssh"]["AllowedIps"].endswith("/32")
    for queue in text["Scheduling"]["SlurmQueues"]:
        for machines in queue["ComputeResources"]:
            assert (machines["MinCount"], machines["MaxCount"]) == (0, 156)
    assert all(disk["EbsSettings"]["DeletionPolicy"] == "Delete" for disk in text["SharedStorage"])
    assert text["Monitoring"]["Logs"]["CloudWatch"]["DeletionPolicy"] == "Delete"


def test_pcluster_budget_is_accepted_by_aws() -> None:
    session = pytest.importorskip("botocore.session").get_session()
    fields = {
        "AccountId": "123456789012",
        "Budget": json.loads((FOLDER / "budget.json").read_text()),
        "NotificationsWithSubscribers": json.loads((FOLDER / "budget-mails.json").read_text()),
    }
    shape = session.get_service_model("budgets").operation_model("CreateBudget").input_shape
    pytest.importorskip("botocore.validate").validate_parameters(fields, shape)
    assert fields["Budget"]["BudgetType"] in shape.members["Budget"].members["BudgetType"].enum


@pytest.mark.parametrize(
    ("jobs", "logins", "idle", "stops"),
    [
        ("", "", 70, True),
        ("", "", 50, False),
        ("", "", None, False),
        ("17 papers", "", 70, False),
        ("", "ada pts/0", 70, False),
        (None, "", 70, False),  # Slurm does not reply
    ],
)
def test_pcluster_head_stops_only_when_idle(
    tmp_path: Path, jobs: str | None, logins: str, idle: int | None, stops: bool
) -> None:
    says = {
        "squeue": "exit 1" if jobs is None else f"printf '{jobs}'",
        "who": f"printf '{logins}'",
        "sudo": 'echo "$@"',
    }
    for name, does in says.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    since = tmp_path / "since"
    if idle is not None:
        since.touch()
        os.utime(since, times=(time.time() - 60 * idle,) * 2)
    found = subprocess.run(
        ["sh", str(FOLDER / "idle-head.sh"), str(since)],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == ("shutdown -h now\n" if stops else "")
    assert since.exists() == (not stops and not jobs and not logins)


def test_pcluster_image_script_is_valid() -> None:
    subprocess.run(["sh", "-n", str(FOLDER / "image.sh")], check=True)
