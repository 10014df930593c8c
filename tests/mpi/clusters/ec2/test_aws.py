"""Invalid replies in place of AWS's (a proxy's page, a part of a reply, none): one sentence, and no machine left."""

from __future__ import annotations

import http.server
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import botocore.endpoint
import botocore.exceptions
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.clusters.ec2_world import NOTHING, REGION, SECRETS, World, ec2_world, moto
from tests.support.sampled_cases import sampled_cases
from workbench.core.base.errors import ClusterError
from workbench.core.base.settings import SettingError
from workbench.mpi.clusters.ec2 import prices
from workbench.mpi.clusters.ec2.aws import account_number, errors_as_sentences
from workbench.mpi.clusters.ec2.fleet import Fleet

__all__ = ["ec2_world", "moto"]

PAGE = b"<html><body>please log in</body></html>"
CUT = b'<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><reservationSet><item>'


class Proxy:
    """HTTP server on loopback that gives the same reply to every request."""

    def __init__(self) -> None:
        self.status, self.body = 200, b""
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                self.send_response(proxy.status)
                self.send_header("content-length", str(len(proxy.body)))
                self.end_headers()
                self.wfile.write(proxy.body)

            do_GET = do_POST

            def log_message(self, *text: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    found = Proxy()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{found.server.server_port}")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        # Requests are retried for status 500 or more, which these tests skip.
        patch.setattr(botocore.endpoint, "time", types.SimpleNamespace(sleep=lambda seconds: None))
        yield found
    found.server.shutdown()


@pytest.fixture(scope="module")
def requests(proxy: Proxy) -> dict[str, Callable[[], Any]]:
    """Return the requests to AWS that are made before anything is started, by name."""
    fleet = Fleet("ada/lab", REGION)
    return {
        "machines": fleet.machines,
        "left": fleet.left,
        "down": fleet.down,
        "account": lambda: account_number(REGION),
        "credits": lambda: prices.balances(REGION, ["i-1"]),
    }


def sentence(ask: Callable[[], Any]) -> str:
    """Return the error of a request, which has to be a `ClusterError` of one sentence."""
    with pytest.raises(ClusterError) as caught:
        ask()
    assert str(caught.value).isprintable()
    return str(caught.value)


@pytest.mark.parametrize("status", [200, 403, 502])
@pytest.mark.parametrize("body", [PAGE, b"", CUT, b"\xff\xfe\0", b"{}", b"[]", b"<a/>"], ids=str)
def test_prices_refuse_an_html_page(
    proxy: Proxy, requests: dict[str, Callable[[], Any]], status: int, body: bytes
) -> None:
    proxy.status, proxy.body = status, body
    for name in ("machines", "left", "down", "account"):
        assert "AWS cannot be asked (it answered with a page, or nothing" in sentence(requests[name])
    if body == PAGE:
        assert "is there a proxy" in prices.credit_note(REGION, ["i-1"])
        with pytest.raises(SettingError, match=r"prices: no price of t2.micro"):
            prices.prices(["t2.micro"], {}, REGION)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(200, b"<a><reservationSet><item><instancesSet><item/></instancesSet></item></reservationSet></a>")
@example(200, b"<a><Error><Code>x</Code></Error></a>")
@example(400, b"<Response><Errors><Error/></Errors></Response>")
@given(st.sampled_from([200, 301, 400, 403, 404, 407, 500, 502, 503]), st.binary(max_size=200))
def test_aws_any_answer_is_a_sentence(
    proxy: Proxy, requests: dict[str, Callable[[], Any]], status: int, body: bytes
) -> None:
    proxy.status, proxy.body = status, body
    for name in ("machines", "account"):
        sentence(requests[name])


ERRORS = {
    "EndpointConnectionError": {"endpoint_url": "https://ec2"},
    "ReadTimeoutError": {"endpoint_url": "https://ec2"},
    "ConnectTimeoutError": {"endpoint_url": "https://ec2"},
    "SSLError": {"endpoint_url": "https://ec2", "error": "self-signed certificate"},
    "ProxyConnectionError": {"proxy_url": "http://proxy"},
    "IncompleteReadError": {"actual_bytes": 1, "expected_bytes": 2},
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_as_sentences_distinguishes_network_and_login_errors(name: str) -> None:
    def ask() -> None:
        with errors_as_sentences():
            raise getattr(botocore.exceptions, name)(**ERRORS[name])

    assert "proxy that lets requests through" in sentence(ask)


def test_errors_as_sentences_translates_every_botocore_error() -> None:
    known = vars(botocore.exceptions).values()
    kinds = [kind for kind in known if isinstance(kind, type) and issubclass(kind, Exception)]
    for kind in kinds:
        if issubclass(kind, Warning):
            continue
        error = kind.__new__(kind)
        Exception.__init__(error, "what\nwent wrong")
        error.response, error.operation_name = {}, "DescribeInstances"  # type: ignore[attr-defined]
        if kind.__name__ in ("UndefinedModelAttributeError", "MissingServiceIdError"):
            continue  # errors by wrong use of botocore

        def ask(error: Exception = error) -> None:
            with errors_as_sentences():
                raise error

        sentence(ask)


def test_errors_as_sentences_tells_how_to_log_in() -> None:
    def ask() -> None:
        with errors_as_sentences():
            raise botocore.exceptions.NoCredentialsError

    assert "log in first" in sentence(ask)


class Lacking:
    """Removes a named field from the first reply to an operation that has it, wherever it occurs in this reply."""

    def __init__(self, world: World, operation: str, key: str) -> None:
        self.operation, self.key, self.done = operation, key, False
        world.calls.after = self

    def __call__(self, name: str, answer: dict[str, Any]) -> None:
        if name == self.operation and not self.done:
            self.done = self._taken(answer)

    def _taken(self, value: Any) -> bool:
        if isinstance(value, dict) and self.key in value:
            del value[self.key]
            return True
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        taken = [self._taken(part) for part in parts]  # a list, so that the field is removed from every part
        return any(taken)


ANSWERED = [  # fields that are read while machines are started
    *(
        ("DescribeInstances", key)
        for key in ("Reservations", "Instances", "InstanceId", "State", "InstanceType")
    ),
    *(("DescribeInstances", key) for key in ("PrivateIpAddress", "NetworkInterfaces", "MetadataOptions")),
    *(("DescribeSubnets", key) for key in ("Subnets", "SubnetId", "VpcId", "AvailabilityZone")),
    *(("DescribeImages", key) for key in ("Images", "BlockDeviceMappings", "RootDeviceName")),
    *(
        ("DescribeSecurityGroups", "SecurityGroups"),
        ("DescribeKeyPairs", "KeyPairs"),
        ("CreateSecurityGroup", "GroupId"),
    ),
    *(("DescribeInstanceAttribute", "UserData"), ("DescribeSpotInstanceRequests", "SpotInstanceRequests")),
]


@pytest.mark.parametrize(("operation", "key"), sampled_cases("answers of EC2", 3, ANSWERED))
def test_aws_incomplete_answer_leaves_no_machine(ec2_world: World, operation: str, key: str) -> None:
    lacks = Lacking(ec2_world, operation, key)
    with pytest.raises(ClusterError, match=r"AWS cannot be asked|is not as closed"):
        ec2_world.cluster().up()
    assert lacks.done
    ec2_world.calls.after = lambda name, answer: None
    assert ec2_world.count() == NOTHING


def test_aws_two_html_pages_leave_no_machine(ec2_world: World) -> None:
    """The first page comes while machines are started, and the second one at the first attempt to end them."""
    looks: list[str] = []

    def spoiled(name: str, answer: dict[str, Any]) -> None:
        if name == "DescribeInstances":
            looks.append(name)
            if "RunInstances" in ec2_world.calls.names() and len(looks) < 4:
                answer.clear()

    ec2_world.calls.after = spoiled
    with pytest.raises(ClusterError, match="AWS cannot be asked"):
        ec2_world.cluster().up()
    ec2_world.calls.after = lambda name, answer: None
    assert len(looks) >= 4
    assert ec2_world.count() == NOTHING
