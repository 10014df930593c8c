"""Talking to AWS: a connection, what it says when it refuses, and being left alone while machines are ended."""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from workbench.core.base.errors import ClusterError

_HINTS = {
    "VcpuLimitExceeded": "the account's quota is smaller than the fleet: ask for more under Service Quotas",
    "InstanceLimitExceeded": "the account's quota is smaller than the fleet: ask for more under Service Quotas",
    "MaxSpotInstanceCountExceeded": "the account's quota of spot machines is smaller than the fleet",
    "InsufficientInstanceCapacity": "this zone has no room now: name a subnet in another one, or take another type",
    "Unsupported": "this zone does not have that type: name a subnet in another one, or take another type",
    "UnauthorizedOperation": "docs/ec2.md lists the permissions that are needed",
    "InvalidAMIID.NotFound": "an image belongs to one region; docs/ec2.md says how to make one",
    "ExpiredToken": "log in to AWS again",
    "RequestExpired": "log in to AWS again, and check this machine's clock",
}
_LONGEST = 300  # characters of AWS's own words


def client(service: str, region: str) -> Any:
    """A connection; credentials come out of AWS's ordinary chain (environment, profile). Raises `ClusterError`."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        why = "install the extra ec2 into this environment (pip install 'straggler-workbench[ec2]')"
        raise ClusterError(f"boto3: not found; {why}") from None
    with spoken():
        # Calls that EC2 is too busy for are made again; those that start machines carry a token, so they start once.
        again = Config(retries={"mode": "standard", "total_max_attempts": 8})
        return boto3.session.Session(region_name=region).client(service, config=again)


def whose(region: str) -> str:
    """Number of the account that would pay; raises `ClusterError` where nobody is logged in."""
    sts = client("sts", region)
    with spoken():
        return str(sts.get_caller_identity()["Account"])


def code(error: Any) -> str:
    """AWS's name for what went wrong."""
    return str(error.response["Error"]["Code"])


@contextmanager
def spoken() -> Iterator[None]:
    """Turn the complaints of AWS and of boto3 into a `ClusterError` of one sentence."""
    try:
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        yield  # `client` says what is missing
        return
    try:
        yield
    except ClientError as error:
        words = " ".join(str(error.response["Error"].get("Message", "")).split())
        hint = _HINTS.get(code(error))
        said = f"{error.operation_name}: {code(error)} ({words[:_LONGEST]})"
        raise ClusterError(f"AWS refused {said}{'; ' + hint if hint else ''}") from error
    except BotoCoreError as error:
        words = " ".join(str(error).split())[:_LONGEST]
        why = "log in first, with `aws login`, `aws sso login` or `aws configure`"
        raise ClusterError(f"AWS cannot be asked ({words}); {why}") from error


def slices(ids: Sequence[str], most: int) -> list[Sequence[str]]:
    """In pieces of at most so many.

    >>> slices(["a", "b", "c"], 2)
    [['a', 'b'], ['c']]
    """
    return [ids[start : start + most] for start in range(0, len(ids), most)]


@contextmanager
def handled(handler: Any, *names: str) -> Iterator[None]:
    """Handle these signals otherwise for a while; only the main thread can, others go on as they are."""
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def interrupt(number: int, frame: FrameType | None) -> None:
    """What Ctrl-C does: so that a closed terminal, too, ends what has been started."""
    raise KeyboardInterrupt
