"""Fixtures and hooks of all tests: hypothesis profiles, a separate cache folder, groups, sampled cases."""

import gc
import os
import re
import signal
import sys
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import sampled_cases
from workbench.core.contract.delays import DelayModel
from workbench.core.contract.faults import Fault
from workbench.core.contract.optimisers import Optimiser
from workbench.core.contract.optimisers.schedules import Schedule
from workbench.core.contract.scheme import Scheme
from workbench.core.problems import ProblemArgs
from workbench.lab.notebooks import grammar_put_off

with grammar_put_off():  # before any module imports it
    import nbformat  # noqa: F401

# In the background of a shell, tests and the processes that they start would ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadlines, since a loaded machine may be slow.
settings.register_profile("ci", max_examples=30, deadline=None, derandomize=True)
settings.register_profile("all", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


# Sources of version 1.0 in run folders and notebooks, and scripts that tests start: they are not imported.
collect_ignore_glob = ["corpus/*/*", "core/trace/old/*", "support/ddp/job_script.py"]


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Set the cache folder of this test session."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_CACHE", str(folder))
        # the key that signs folders is in another folder
        patch.setenv("XDG_DATA_HOME", str(folder / "share"))
        yield folder


@pytest.fixture(autouse=True)
def remove_user_defined_classes() -> Iterator[None]:
    """Remove the user-defined classes of a test, such as schemes and delay models, and close its widgets.

    An open explorer would follow the classes of later tests.
    """
    families = (Scheme, DelayModel, Optimiser, Schedule, ProblemArgs, Fault)
    before = [dict(family.catalogue) for family in families]
    yield
    for family, known in zip(families, before, strict=True):
        family.catalogue._classes.clear()
        family.catalogue._classes.update(known)
    if widgets := sys.modules.get("ipywidgets"):
        widgets.Widget.close_all()


# files of user-defined classes, which would stay registered if they were imported for their doctests
USER_FILES = ("plugin_scheme.py", "stochastic_problem.py", "cada_amsgrad.py")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore files that tests only load by path."""
    return True if collection_path.name in USER_FILES else None


# The slowest groups mostly wait. They are started first, so that they do not delay the end.
LONGEST_GROUPS = ("browser", "mpi", "hosts", "site", "pages", "book", "wheel", "additions")


def group(item: pytest.Item) -> str:
    """Return the group of a test, which one worker runs from start to end.

    Tests of a group share browsers, ranks, ports, addresses or entries of the book. Other tests are grouped by
    file, so that fixtures of a file are made once.
    """
    if marked := item.get_closest_marker("xdist_group"):
        return str(marked.args[0])
    for kind in ("browser", "mpi"):
        if item.get_closest_marker(kind):
            return kind
    if "found_before" in getattr(item, "fixturenames", ()):
        return "book"
    return re.sub(r"\W", "_", item.nodeid.split(".py")[0])


@pytest.hookimpl(tryfirst=True)  # before xdist, which adds the group to the names
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort tests by group, the longest groups first."""
    if getattr(config.option, "loadgroup", False):
        for item in items:
            if not item.get_closest_marker("xdist_group"):
                item.add_marker(pytest.mark.xdist_group(group(item)))
        items.sort(key=lambda item: (*LONGEST_GROUPS, group(item)).index(group(item)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude imported modules and collected tests from garbage collection, since they exist until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to run tests of one group in parallel, since they use the same cores, ports and addresses."""
    if getattr(session.config.option, "loadgroup", False):
        apart = [
            i.nodeid for i in session.items if i.get_closest_marker("xdist_group") and "@" not in i.nodeid
        ]
        if apart:
            raise pytest.UsageError(
                f"this pytest-xdist does not group {apart[0]}; see pyproject.toml on pytest's version"
            )


class PlainNames:
    """Reports without the group that xdist adds to a test's name. --last-failed then finds the test again."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        report.nodeid = re.sub(r"@\w+$", "", report.nodeid)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--rotate`, the seed by which expensive cases are sampled."""
    parser.addoption(
        "--rotate",
        type=int,
        default=sampled_cases.DEFAULT_SEED,
        metavar="SEED",
        help="seed that chooses which expensive cases are not slow (default: %(default)s)",
    )


def pytest_report_header(config: pytest.Config) -> str:
    """Print the seed of the sampled cases."""
    return f"sampled cases: --rotate {config.getoption('rotate')}"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """After a failure, print the option that samples the same cases."""
    if exitstatus == pytest.ExitCode.TESTS_FAILED:
        terminalreporter.write_line(
            f"to repeat it with the same sampled cases: --rotate {config.getoption('rotate')}"
        )


def pytest_configure(config: pytest.Config) -> None:
    """Set the seed of sampled cases.

    Rename reports in the main process only, because workers need the names of xdist.
    """
    # without PyTorch, the doctests of modules that import it are not collected; their tests skip with the reason
    if find_spec("torch") is None:
        files = (
            f for each in ("workbench/ddp", "tests/support") for f in (config.rootpath / each).rglob("*.py")
        )
        needing = [str(f) for f in files if re.search("^import torch", f.read_text(), re.MULTILINE)]
        config.option.ignore = [*(config.option.ignore or []), *needing]
    sampled_cases.rotate(config.getoption("rotate"))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(PlainNames())
