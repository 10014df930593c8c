"""Settings of machines on EC2, their errors, and costs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.clusters.ec2_world import IMAGE, NOTHING, PRICES, REGION, World, ec2_world, moto
from workbench.core.base.errors import ClusterError
from workbench.core.base.settings import SettingError
from workbench.mpi import clusters
from workbench.mpi.clusters.ec2 import notes as ec2_notes
from workbench.mpi.clusters.ec2.kind import Ec2
from workbench.mpi.clusters.ec2.notes import Notes
from workbench.mpi.clusters.ec2.prices import prices
from workbench.mpi.clusters.ec2.settings import PRESETS
from workbench.mpi.clusters.ssh import Ssh

__all__ = ["ec2_world", "moto"]

EXAMPLES = Path(__file__).parents[4] / "clusters" / "ec2"
WORDS: dict[str, Any] = {
    "preset": "codedreduce-156",
    "region": REGION,
    "image": IMAGE,
    "ssh_from": "203.0.113.7/32",
    "hours": 3,
}


@pytest.mark.parametrize(
    ("given", "kept"), [("203.0.113.7", "203.0.113.7/32"), ("2001:db8::1/128", "2001:db8::1/128")]
)
def test_ec2_settings_allow_ssh_from_one_address(given: str, kept: str) -> None:
    assert Ec2(**{**WORDS, "ssh_from": given}).ssh_from == kept


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("ssh_from", "0.0.0.0/0", "lets 4294967296 addresses in"),
        ("ssh_from", "::/0", "lets .* addresses in"),
        ("ssh_from", "10.0.0.0/8", "lets 16777216 addresses in"),
        ("ssh_from", "203.0.113.6/31", "lets 2 addresses in"),
        ("ssh_from", "2001:db8::/64", "lets .* addresses in"),
        ("ssh_from", "203.0.113.7/24", "host bits"),
        ("ssh_from", "home.example", "write your own address"),
        ("ssh_from", "0.0.0.0", "not a public address"),
        ("ssh_from", "127.0.0.1", "not a public address"),
        ("preset", "codedreduce-155", "did you mean 'codedreduce-156'"),
        ("image", "ubuntu", "ami-0123456789abcdef0"),
        ("region", "Frankfurt", "us-east-1"),
        ("hours", 0, "take above 0 to 168"),
        ("hours", 169, "the nearest is 168"),
        ("workers", -1, "take 0"),
        ("worker_type", "micro", "t2.micro"),
        ("cpu_credits", "unlimited", "'standard'"),
        ("prices", {"t2.micro": -1.0}, "not negative"),
        ("price", 0.01, "machines differ"),
        ("subnet", "default", "subnet-"),
        ("owner", "Ada L.", "of the form"),
        ("user", "-oProxyCommand=x", "of the form"),
        ("python", "-c", "begins with a hyphen"),
        ("name", "lab*", "lower-case letters"),
        ("ssh_to", "x", "did you mean 'ssh_from'"),
    ],
)
def test_ec2_settings_refuse_what_cannot_work(field: str, value: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message) as refused:
        Ec2(**{**WORDS, field: value})
    assert field in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("field", ["region", "image", "ssh_from", "hours", "preset"])
def test_ec2_settings_without_a_default_are_required(field: str) -> None:
    with pytest.raises(SettingError, match="is missing"):
        Ec2(**{name: value for name, value in WORDS.items() if name != field})


def test_ec2_settings_of_the_papers_fleets() -> None:
    sizes = {name: preset["workers"] for name, preset in PRESETS.items()}
    assert sizes == {
        "codedreduce-84": 84,
        "codedreduce-156": 156,
        "cegc-10": 10,
        "cegc-15": 15,
        "cegc-20": 20,
        "agc-20": 20,
    }
    assert {preset["worker_type"] for preset in PRESETS.values()} == {"t2.micro"}
    assert Ec2(**{**WORDS, "head_type": "t2.micro"}).kinds() == {"t2.micro": 157}  # as in paper 1
    modern = Ec2(**{**WORDS, "worker_type": "c7i.large"})
    assert "CpuCredits" not in modern.described
    assert "CpuCredits=standard" in Ec2(**WORDS).described
    assert Ec2(**WORDS).model_dump()["cpu_credits"] == "standard"  # stored in the records of runs


def test_ec2_file_errors_have_its_name(tmp_path: Path) -> None:
    path = tmp_path / "fleet-1.yaml"
    path.write_text(yaml.safe_dump({"kind": "ec2", **WORDS}))
    cluster = clusters.load(path)
    assert isinstance(cluster, Ec2)
    assert (cluster.name, cluster.workers, cluster.head_type) == ("fleet-1", 156, "m5.large")
    path.write_text(yaml.safe_dump({"kind": "ec2", **WORDS, "ssh_from": "0.0.0.0/0"}))
    with pytest.raises(SettingError, match=r"fleet-1.yaml: ssh_from: .*own only"):
        clusters.load(path)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("fleet-*.yaml")), ids=lambda path: path.stem)
def test_ec2_examples_need_only_the_stated_fields(path: Path) -> None:
    text = yaml.safe_load(path.read_text())
    assert "prices" not in text  # the examples state no prices
    blank = {name for name, value in text.items() if value is None}
    assert blank <= {"region", "image", "ssh_from"}
    filled = clusters.rebuilt({**text, **{name: WORDS[name] for name in blank}, "name": path.stem})
    assert isinstance(filled, Ec2)


def up(cluster: Ec2, workers: int) -> Notes:
    """Write notes as if the machines were up."""
    asked = cluster.model_dump(mode="json")
    hosts = tuple(f"10.0.0.{k + 5}" for k in range(workers))
    notes = Notes("launch", 0.0, 4e9, asked, {}, 1.0, "192.0.2.1", "10.0.0.4", hosts)
    ec2_notes.write(cluster.folder, notes)
    return notes


def test_ec2_machines_that_are_up_are_an_ssh_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    cluster = Ec2(**{**WORDS, "name": "lab"})
    notes = up(cluster, 156)
    assert ec2_notes.read(cluster.folder) == notes
    ssh = cluster.machines
    assert isinstance(ssh, Ssh)
    assert ssh.placed(157) == ["10.0.0.4", *notes.workers]  # only the master is on the head
    assert ssh.config == str(cluster.folder / "ssh_config")
    fields = {
        name: value
        for name, value in ssh.model_dump(mode="json", exclude_unset=True).items()
        if name != "name"
    }
    path = tmp_path / "copy.yaml"
    path.write_text(yaml.safe_dump({"kind": "ssh", **fields}))
    (cluster.folder / "ssh_config").touch()
    loaded = clusters.load(path)
    assert loaded.replace(name="lab") == ssh
    fewer = cluster.without([notes.workers[0]])
    assert isinstance(fewer, Ssh)
    assert len(fewer.hosts) == 155
    carried = clusters.rebuilt(cluster.carried())  # the settings for the head
    assert isinstance(carried, Ssh)
    assert (carried.config, carried.identity) == (None, None)
    # the settings that another process uses
    assert clusters.rebuilt(cluster.model_dump(mode="json")) == cluster
    assert cluster.gateway is not None
    assert cluster.gateway.command[-1] == "10.0.0.4"


def test_ec2_cluster_without_a_name_is_refused(ec2_world: World) -> None:
    with pytest.raises(SettingError, match="name: is missing"):
        ec2_world.cluster(name="").up()
    with pytest.raises(SettingError, match="name: is missing"):
        ec2_world.cluster(name="").down()
    assert ec2_world.calls.made == []


def test_ec2_cluster_past_its_hours_is_not_queried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    cluster = Ec2(**{**WORDS, "name": "lab"})
    up(cluster, 2)
    monkeypatch.setattr("workbench.mpi.clusters.ec2.kind.time.time", lambda: 4e9 + 1)
    with pytest.raises(ClusterError, match="has ended itself after 3 h"):
        cluster.site.open(3)


# ---------------------------------------------------------------- prices


class PriceList:
    """Server of AWS's price list on loopback. It returns given prices, and records the requests."""

    def __init__(self) -> None:
        self.amounts: dict[str, list[str]] = {}
        self.asked: list[dict[str, str]] = []
        price_list = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                fields = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                filters = {each["Field"]: each["Value"] for each in fields["Filters"]}
                price_list.asked.append({**filters, "service": fields["ServiceCode"]})
                body = json.dumps(
                    {"FormatVersion": "aws_v1", "PriceList": price_list.products(filters)}
                ).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-amz-json-1.1")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *rest: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def products(self, filters: dict[str, str]) -> list[str]:
        """Return a price list in AWS's format."""
        what = filters.get("instanceType") or ("disk" if "volumeApiName" in filters else "address")
        unit = "GB-Mo" if what == "disk" else "Hrs"
        found = [self.product(usd, unit, f"{what}-InUse") for usd in self.amounts.get(what, [])]
        return found + [self.product("7.5", unit, "address-Idle")] * (what == "address")

    @staticmethod
    def product(usd: str, unit: str, usage: str) -> str:
        size = {"SKU.TERM.RATE": {"unit": unit, "pricePerUnit": {"USD": usd}, "description": "from a test"}}
        # such as a fee that is paid in advance
        other = {"X": {"unit": "Quantity", "pricePerUnit": {"USD": "99"}}}
        terms = {
            "OnDemand": {"SKU.TERM": {"priceDimensions": size}},
            "Reserved": {"R": {"priceDimensions": other}},
        }
        return json.dumps(
            {
                "product": {"attributes": {"usagetype": usage}},
                "terms": terms,
                "publicationDate": "2026-10-30T12:00:00Z",
            }
        )


@pytest.fixture
def price_list(monkeypatch: pytest.MonkeyPatch) -> Iterator[PriceList]:
    """Start a price server in place of AWS's."""
    served = PriceList()
    monkeypatch.setenv("AWS_ENDPOINT_URL_PRICING", f"http://127.0.0.1:{served.server.server_port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    yield served
    served.server.shutdown()
    served.server.server_close()


def test_prices_come_from_the_list_with_its_date(price_list: PriceList) -> None:
    price_list.amounts = {
        "t2.micro": ["0.5000"],
        "m5.large": ["0.25", "0.0"],
        "disk": ["0.125"],
        "address": ["0.0625"],
    }
    found = prices(["t2.micro", "m5.large"], {}, REGION)
    assert {what: price.usd for what, price in found.items()} == PRICES
    assert {price.source for price in found.values()} == {"AWS price list, 2026-10-30"}
    assert {asked["regionCode"] for asked in price_list.asked} == {REGION}
    machine = next(asked for asked in price_list.asked if asked.get("instanceType") == "t2.micro")
    assert machine["service"] == "AmazonEC2"
    assert machine["operatingSystem"] == "Linux"


def test_a_stated_price_is_not_looked_up(price_list: PriceList) -> None:
    found = prices(["t2.micro"], {"t2.micro": 1.0, "disk": 0.5, "address": 0.25}, REGION)
    assert {price.source for price in found.values()} == {"stated"}
    assert price_list.asked == []


@pytest.mark.parametrize("amounts", [{}, {"t2.micro": ["0.5", "0.75"]}, {"t2.micro": ["0"]}])
def test_prices_that_are_unknown_must_be_stated(price_list: PriceList, amounts: dict[str, list[str]]) -> None:
    price_list.amounts = amounts
    with pytest.raises(
        SettingError, match=r"no price of t2.micro, address in eu-central-1 .*prices: \{t2.micro: \.\.\.,"
    ):
        prices(["t2.micro", "m5.large"], {"m5.large": 1.0, "disk": 1.0}, REGION)


def test_ec2_unknown_price_starts_nothing(ec2_world: World) -> None:
    with pytest.raises(SettingError, match=r"no price of m5.large in eu-central-1 is known .*AWS"):
        ec2_world.cluster(prices={name: usd for name, usd in PRICES.items() if name != "m5.large"}).up()
    assert ec2_world.count() == NOTHING
    assert [name for name in ec2_world.calls.names() if not name.startswith("Describe")] == []


def test_ec2_cost_ceiling_is_price_times_count_times_hours(ec2_world: World) -> None:
    bill = ec2_world.cluster(workers=156, hours=10, disk=16).bill()
    hourly = 156 * 0.5 + 0.25 + 157 * 16 * 0.125 / 672 + 0.0625
    assert bill.hourly == pytest.approx(hourly)
    assert bill.ceiling == pytest.approx(hourly * 10.1)
    assert f"at most {bill.ceiling:.2f} $ for 10 h" in bill.text()
