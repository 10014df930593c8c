"""Maximal cost of a fleet, and CPU credits of burstable machines (t2, t3, ...).

Prices are stated by the user, or come from AWS's price list, with its date. A machine without credits is a straggler.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any, Literal

from workbench.core.base.errors import ClusterError
from workbench.core.base.settings import SettingError
from workbench.mpi.clusters.ec2.aws import client, errors_as_sentences, slices

# keys of prices besides the machine types: disk in $ per GB and month, address in $ per hour
DISK, ADDRESS = "disk", "address"
HOURS_PER_MONTH = 28 * 24.0  # h of the shortest month, which gives a disk's highest price per hour
END_DELAY_H = 0.1  # h that a machine may take to end after its time
STANDARD: Literal["standard"] = "standard"
"""A machine without CPU credits gets slow, not expensive. It then straggles, so the setting is recorded."""
LOW_CREDITS = 1.0  # balance up to which credits count as low; one credit is a minute of a whole core
_METRICS_PER_CALL = 500  # max metrics in one query to CloudWatch
# time span of the query; balances appear every five minutes, with a delay
_BALANCE_WINDOW = timedelta(minutes=20)
_LIST = "us-east-1"  # region of the endpoint for all price lists
_LINUX = {"operatingSystem": "Linux", "preInstalledSw": "NA", "tenancy": "Shared", "capacitystatus": "Used"}


@dataclass(frozen=True)
class Price:
    """Dollars per hour, or per GB and month, and the source of the number."""

    usd: float
    source: str


@dataclass(frozen=True)
class Bill:
    """Cost of machines.

    `counts`: machines by type. `disk`: GB in total. `addresses`: number of public addresses. `hours`: max number of
    hours.
    """

    counts: Mapping[str, int]
    disk: int
    addresses: int
    hours: float
    prices: Mapping[str, Price]

    @property
    def lines(self) -> list[tuple[str, float, Price]]:
        """Items of the bill: text, dollars per hour, and the price behind it."""
        priced = [(n, kind, self.prices[kind]) for kind, n in self.counts.items()]
        rows = [(f"{n} x {kind}", n * price.usd, price) for n, kind, price in priced]
        disk = self.prices[DISK]
        rows.append((f"{self.disk} GB of disks", self.disk * disk.usd / HOURS_PER_MONTH, disk))
        if self.addresses:
            address = self.prices[ADDRESS]
            rows.append((f"{self.addresses} public address", self.addresses * address.usd, address))
        return rows

    @property
    def hourly(self) -> float:
        """Dollars per hour."""
        return sum(row[1] for row in self.lines)

    @property
    def ceiling(self) -> float:
        """Cost in dollars if the machines run until they end themselves."""
        return self.hourly * (self.hours + END_DELAY_H)

    def text(self) -> str:
        """Return the bill as a table."""
        rows = [f"  {what:24} {usd:10.4f} $/h   ({price.source})" for what, usd, price in self.lines]
        most = f"{self.ceiling:.2f} $ for {self.hours:g} h, after which the machines end themselves"
        rows += [f"  at most {most}", "  without traffic out of the region, and without taxes"]
        return "\n".join(rows)


def bursts(kind: str) -> bool:
    """Return whether this type of machine uses CPU credits.

    >>> bursts("t2.micro"), bursts("t4g.small"), bursts("trn1.2xlarge"), bursts("c7i.large")
    (True, True, False, False)
    """
    return re.match(r"t\d", kind) is not None


def prices(kinds: Sequence[str], stated: Mapping[str, float], region: str) -> dict[str, Price]:
    """Return the prices of machine types, disk and address: stated ones, and the others from AWS's price list.

    Raises `SettingError` that names all unknown prices, so that they can be stated.

    >>> stated = {"t2.micro": 0.5, "disk": 0.25, "address": 0.125}  # no real ones
    >>> prices(["t2.micro"], stated, "us-east-1")["disk"]
    Price(usd=0.25, source='stated')
    """
    found = {what: Price(usd, "stated") for what, usd in stated.items()}
    wanted = [what for what in dict.fromkeys([*kinds, DISK, ADDRESS]) if what not in found]
    why = "" if not wanted else _ask(wanted, region, found)
    missing = [what for what in wanted if what not in found]
    if missing:
        example = ", ".join(f"{what}: ..." for what in missing)
        raise SettingError(
            f"prices: no price of {', '.join(missing)} in {region} is known{why}; look them up and state them,"
            f" prices: {{{example}}} (machines and address: $ per hour, disk: $ per GB and month)"
        )
    return found


def _ask(wanted: Sequence[str], region: str, found: dict[str, Price]) -> str:
    """Add prices from AWS's price list to `found`. Return the reason for missing ones."""
    try:
        pricing = client("pricing", _LIST)
        for what in wanted:
            with errors_as_sentences():
                answer = _look_up(pricing, what, region)
            if answer is not None:
                found[what] = answer
    except ClusterError as error:
        return f" ({error})"
    return " (AWS's price list has none, or several)"


def _look_up(pricing: Any, what: str, region: str) -> Price | None:
    """Return the only price in the list, or None if it has none or several."""
    service, fields = "AmazonEC2", {"instanceType": what, **_LINUX}
    if what == DISK:
        fields = {"productFamily": "Storage", "volumeApiName": "gp3"}
    elif what == ADDRESS:
        service, fields = "AmazonVPC", {"group": "VPCPublicIPv4Address"}
    fields["regionCode"] = region
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in fields.items()]
    pages = pricing.get_paginator("get_products").paginate(ServiceCode=service, Filters=filters)
    products = [json.loads(product) for page in pages for product in page["PriceList"]]
    # the price list also contains idle addresses and blocks of addresses, which are skipped
    if what == ADDRESS:
        facts = [(each, each.get("product", {}).get("attributes", {})) for each in products]
        products = [each for each, known in facts if "InUse" in str(known.get("usagetype", ""))]
    unit = "GB-Mo" if what == DISK else "Hrs"
    amounts = {usd for product in products for usd in _amounts(product, unit) if usd > 0}
    if len(amounts) != 1:
        return None
    date = max(str(product.get("publicationDate", "of unknown date"))[:10] for product in products)
    return Price(amounts.pop(), f"AWS price list, {date}")


def _amounts(product: Mapping[str, Any], unit: str) -> list[float]:
    """Return the on-demand prices of a product."""
    terms = product.get("terms", {}).get("OnDemand", {}).values()
    sizes = [size for term in terms for size in term["priceDimensions"].values()]
    return [float(size["pricePerUnit"]["USD"]) for size in sizes if size["unit"] == unit]


def credit_note(region: str, machines: Sequence[str]) -> str:
    """Return one sentence on the newest credit balances, or on why they cannot be read."""
    try:
        found = balances(region, machines)
    except ClusterError as error:
        return f"CPU credits cannot be read ({error})"
    if not found:
        return f"CPU credits: CloudWatch has no balance of the {len(machines)} machines yet (it takes ten minutes)"
    low, values = sum(value < LOW_CREDITS for value in found.values()), list(found.values())
    return (
        f"CPU credits: {min(values):.3g} to {max(values):.3g}, median {median(values):.3g} ({len(found)} of"
        f" {len(machines)} machines), {low} below {LOW_CREDITS:g}: those run at their baseline and straggle"
    )


def balances(region: str, machines: Sequence[str]) -> dict[str, float]:
    """Return the newest CPUCreditBalance of each machine that CloudWatch has one for. Raises `ClusterError`."""
    cloudwatch, now = client("cloudwatch", region), datetime.now(UTC)
    found: dict[str, float] = {}
    for ids in slices(machines, _METRICS_PER_CALL):
        which = [[{"Name": "InstanceId", "Value": machine}] for machine in ids]
        metrics = [{"Namespace": "AWS/EC2", "MetricName": "CPUCreditBalance", "Dimensions": d} for d in which]
        stats = [{"Metric": metric, "Period": 300, "Stat": "Average"} for metric in metrics]
        queries = [{"Id": f"m{k}", "MetricStat": stat, "ReturnData": True} for k, stat in enumerate(stats)]
        arguments = {"MetricDataQueries": queries, "StartTime": now - _BALANCE_WINDOW, "EndTime": now}
        with errors_as_sentences():
            paginator = cloudwatch.get_paginator("get_metric_data")
            pages = paginator.paginate(**arguments, ScanBy="TimestampDescending")
            answers = [answer for page in pages for answer in page["MetricDataResults"]]
            found |= {ids[int(a["Id"][1:])]: float(a["Values"][0]) for a in answers if a["Values"]}
    return found
