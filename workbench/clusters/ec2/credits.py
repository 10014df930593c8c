"""CPU credits of machines that live on them (t2, t3, ...): a machine without any is a straggler."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from statistics import median

from workbench.base.errors import ClusterError
from workbench.clusters.ec2.aws import client, slices, spoken

_AT_ONCE = 500  # metrics in one question to CloudWatch
_BACK = timedelta(minutes=20)  # a balance comes every five minutes, and late
LOW = 1.0  # credits: a minute of a whole core


def credit_note(region: str, machines: Sequence[str]) -> str:
    """One sentence on the newest balances, or on why they cannot be read."""
    try:
        found = balances(region, machines)
    except ClusterError as error:
        return f"CPU credits cannot be read ({error})"
    if not found:
        return f"CPU credits: CloudWatch has no balance of the {len(machines)} machines yet (it takes ten minutes)"
    low, values = sum(value < LOW for value in found.values()), list(found.values())
    return (
        f"CPU credits: {min(values):.3g} to {max(values):.3g}, median {median(values):.3g} ({len(found)} of"
        f" {len(machines)} machines), {low} below {LOW:g}: those run at their baseline and straggle"
    )


def balances(region: str, machines: Sequence[str]) -> dict[str, float]:
    """The newest CPUCreditBalance of each machine that CloudWatch has one of; raises `ClusterError`."""
    cloudwatch, now = client("cloudwatch", region), datetime.now(UTC)
    found: dict[str, float] = {}
    for ids in slices(machines, _AT_ONCE):
        which = [[{"Name": "InstanceId", "Value": machine}] for machine in ids]
        metrics = [{"Namespace": "AWS/EC2", "MetricName": "CPUCreditBalance", "Dimensions": d} for d in which]
        stats = [{"Metric": metric, "Period": 300, "Stat": "Average"} for metric in metrics]
        queries = [{"Id": f"m{k}", "MetricStat": stat, "ReturnData": True} for k, stat in enumerate(stats)]
        words = {"MetricDataQueries": queries, "StartTime": now - _BACK, "EndTime": now}
        with spoken():
            paginator = cloudwatch.get_paginator("get_metric_data")
            pages = paginator.paginate(**words, ScanBy="TimestampDescending")
            answers = [answer for page in pages for answer in page["MetricDataResults"]]
        found |= {ids[int(a["Id"][1:])]: float(a["Values"][0]) for a in answers if a["Values"]}
    return found
