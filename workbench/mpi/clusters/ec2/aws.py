"""Connection to AWS: clients, errors as sentences, and signal handlers while machines are ended."""

import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from workbench.core.base.errors import ClusterError, quoted, sentence_of
from workbench.core.base.settings import SettingError

_HINTS = {
    "VcpuLimitExceeded": "the account's quota is smaller than the fleet: ask for more under Service Quotas",
    "InstanceLimitExceeded": "the account's quota is smaller than the fleet: ask for more under Service Quotas",
    "MaxSpotInstanceCountExceeded": "the account's quota of spot machines is smaller than the fleet",
    "InsufficientInstanceCapacity": "this zone has no room now: name a subnet in another one, or take another type",
    "Unsupported": "this zone does not have that type: name a subnet in another one, or take another type",
    "UnauthorizedOperation": "docs/how-to/ec2.md lists the permissions that are needed",
    "InvalidAMIID.NotFound": "an image belongs to one region; docs/how-to/ec2-image.md says how to make one",
    "ExpiredToken": "log in to AWS again",
    "RequestExpired": "log in to AWS again, and check this machine's clock",
}
_LOGIN = "log in first, with `aws login`, `aws sso login` or `aws configure`"
_NETWORK = "is there a network, and a proxy that lets requests through?"
_NO_ANSWER = "AWS cannot be asked (it answered with a page, or nothing: is there a proxy?)"
_SETTINGS = "look at the cluster's file and at AWS's own settings"
# parts of the names of AWS's errors that concern the login
_OF_LOGIN = ("Credential", "Login", "SSO", "Token", "Profile", "MFA", "Metadata")


def client(service: str, region: str) -> Any:
    """Return a client of a service. Credentials come from AWS's usual chain (environment, profile).

    Raises `ClusterError` if boto3 is missing or AWS cannot be asked.
    """
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        why = "install the extra ec2 into this environment (pip install 'straggler-workbench[ec2]')"
        raise ClusterError(f"boto3: not found; {why}") from None
    with errors_as_sentences():
        # throttled calls are repeated; calls that start machines have a token, so repeating them starts nothing twice
        again = Config(retries={"mode": "standard", "total_max_attempts": 8})
        return boto3.session.Session(region_name=region).client(service, config=again)


def account_number(region: str) -> str:
    """Return the number of the account that pays. Raises `ClusterError` if no user is logged in."""
    sts = client("sts", region)
    with errors_as_sentences():
        return str(sts.get_caller_identity()["Account"])


def code(error: Any) -> str:
    """Return AWS's name of an error, or "" if the answer is not from AWS, such as a proxy's page."""
    found = str((error.response.get("Error") or {}).get("Code") or "")
    return found if re.fullmatch(r"[A-Za-z][\w.:-]*", found) else ""


@contextmanager
def errors_as_sentences() -> Iterator[None]:
    """Turn each error of a call to AWS into a `ClusterError` of one sentence.

    A proxy or a hotel's network may answer instead of AWS, with a page or with nothing. Answers are therefore also read
    inside this context. An answer without an expected field raises a LookupError or the like.
    """
    try:
        from botocore import exceptions as errors
        from botocore.parsers import ResponseParserError
    except ImportError:
        yield  # a missing package is reported by `client`
        return
    try:
        yield
    except (ClusterError, SettingError):
        raise
    except errors.ClientError as error:
        if not (name := code(error)):
            raise ClusterError(f"{_NO_ANSWER}: status {_status(error)}") from error
        text = quoted(error.response["Error"].get("Message", ""))
        hint = f"; {_HINTS[name]}" if name in _HINTS else ""
        raise ClusterError(f"AWS refused {error.operation_name}: {name} ({text}){hint}") from error
    except (errors.ConnectionError, errors.HTTPClientError, errors.IncompleteReadError) as error:
        raise ClusterError(_unasked(quoted(error), _NETWORK)) from error
    except errors.BotoCoreError as error:
        login = any(word in type(error).__name__ for word in _OF_LOGIN)
        raise ClusterError(_unasked(quoted(error), _LOGIN if login else _SETTINGS)) from error
    except LookupError as error:
        raise ClusterError(f"{_NO_ANSWER}: {quoted(error)} is missing") from error
    except (ResponseParserError, TypeError, AttributeError, ValueError, StopIteration) as error:
        raise ClusterError(f"{_NO_ANSWER}: {quoted(error) or type(error).__name__}") from error
    except OSError as error:
        raise ClusterError(_unasked(sentence_of(error), _NETWORK)) from error


def _status(error: Any) -> str:
    """Return the HTTP status of an answer."""
    return str(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", "unknown"))


def _unasked(text: str, fix: str) -> str:
    return f"AWS cannot be asked ({text}); {fix}"


def slices(ids: Sequence[str], most: int) -> list[Sequence[str]]:
    """Return the items in pieces of at most `most`.

    >>> slices(["a", "b", "c"], 2)
    [['a', 'b'], ['c']]
    """
    return [ids[start : start + most] for start in range(0, len(ids), most)]


@contextmanager
def handled(handler: Any, *names: str) -> Iterator[None]:
    """Handle these signals with `handler` inside the context. Outside the main thread nothing changes."""
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
    """Raise KeyboardInterrupt, so that a closed terminal also ends what has been started."""
    raise KeyboardInterrupt
