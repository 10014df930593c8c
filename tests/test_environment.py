"""The environment: pyproject.toml, environment.yml and requirements.lock agree."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import workbench as wb
from workbench.core.base.extras import EXTRAS

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())
LOCK = (ROOT / "requirements.lock").read_text()

CONDA_NAMES = {
    "kaleido": "python-kaleido",
    "playwright": "playwright-python",
    "xxhash": "python-xxhash",
}  # package on PyPI -> its name on conda-forge
PYTHONS = ["3.11", "3.12", "3.13"]
PLATFORMS = [
    {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"},
    {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix", "platform_machine": "arm64"},
    {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt", "platform_machine": "AMD64"},
]


def declared() -> list[Requirement]:
    """Return all requirements in pyproject.toml: to run, to develop, and to build the site."""
    lines = [*PROJECT["dependencies"], *of_extra("dev"), *of_extra("site")]
    return [Requirement(line) for line in dict.fromkeys(lines)]


def of_extra(name: str) -> list[str]:
    """Return the requirements of an extra, with those of the extras in it."""
    found = []
    for line in PROJECT["optional-dependencies"][name]:
        requirement = Requirement(line)
        if requirement.name == PROJECT["name"]:
            found += [each for extra in sorted(requirement.extras) for each in of_extra(extra)]
        else:
            found.append(line)
    return found


def locked() -> list[tuple[Requirement, list[str]]]:
    """Return every requirement of the lock with its hashes."""
    lines = LOCK.replace("\\\n", "").splitlines()  # one line per requirement
    entries = [line.split("--hash=") for line in lines if not line.lstrip().startswith("#")]
    return [(Requirement(entry[0].strip()), [h.strip() for h in entry[1:]]) for entry in entries]


def test_conda_has_the_dependencies_of_pyproject() -> None:
    specs = [Requirement(spec) for spec in CONDA["dependencies"] if isinstance(spec, str)]
    conda = {spec.name: spec.specifier for spec in specs}
    assert conda.pop("python") == PROJECT["requires-python"]
    assert conda.pop("pip") == ""
    assert conda == {CONDA_NAMES.get(r.name, r.name): r.specifier for r in declared()}


def test_conda_file_is_one_that_conda_reads() -> None:
    assert set(CONDA) == {"name", "channels", "dependencies"}
    assert CONDA["channels"] == ["conda-forge", "nodefaults"]
    assert CONDA["dependencies"][-1] == {"pip": ["-e ."]}


@pytest.mark.parametrize("name", ["requirements.lock", "environment.yml"])
def test_environment_files_have_no_host_and_no_path(name: str) -> None:
    text = (ROOT / name).read_text()
    assert not re.findall(r"\S*://\S*|\S+ @ \S+", text)
    assert not re.findall(r"\b[\w-]+\.(?:org|com|net|io|dev|internal|local)\b", text)
    assert not re.findall(r"(?:^|[\s=])(?:/\w|[A-Z]:\\)\S*", text, re.MULTILINE)
    assert not re.findall(r"^\s*-(?:i|f)\b|--(?:[a-z-]*index|find-links|trusted)\S*", text, re.MULTILINE)


def test_lock_is_pinned_and_hashed() -> None:
    assert len(locked()) > len(declared())
    for requirement, hashes in locked():
        assert [s.operator for s in requirement.specifier] == ["=="], requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), requirement


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: platform["sys_platform"])
@pytest.mark.parametrize("python", PYTHONS)
def test_lock_satisfies_pyproject(python: str, platform: dict[str, str]) -> None:
    machine = {"python_version": python, "python_full_version": f"{python}.0", **platform}
    pins = [r for r, _ in locked() if r.marker is None or r.marker.evaluate(machine)]
    names = [pin.name for pin in pins]
    assert len(names) == len(set(names)), "a package is locked twice for one platform"
    versions = {pin.name: str(next(iter(pin.specifier)).version) for pin in pins}
    needed = [r for r in declared() if r.marker is None or r.marker.evaluate(machine)]
    for requirement in needed:
        assert requirement.specifier.contains(versions[requirement.name]), requirement


def test_citation_is_of_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cited["version"], cited["license"]) == (PROJECT["version"], PROJECT["license"])
    assert cited["version"] == wb.__version__
    assert len(cited["references"]) == 5


def test_container_has_a_supported_python_and_loopback_ports() -> None:
    text = (ROOT / ".devcontainer" / "devcontainer.json").read_text()
    container = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    assert re.fullmatch(r"python:3\.1[1-3]-\w+", container["image"])  # an image name without a registry
    assert container["postCreateCommand"] == "make env"
    assert set(map(str, container["forwardPorts"])) == set(container["portsAttributes"])
    assert "appPort" not in container  # appPort would listen on all interfaces
    assert "0.0.0.0" not in text


@pytest.mark.parametrize("extra", sorted(set(EXTRAS.values())))
def test_the_extra_that_an_error_names_is_declared(extra: str) -> None:
    assert of_extra(extra)


def test_extra_all_has_every_extra_but_torch_and_dask() -> None:
    apart = {"torch", "cnn", "dask"}
    users = set(PROJECT["optional-dependencies"]) - {"all", "dev", "site"} - apart
    assert set(of_extra("all")) == {line for extra in users for line in of_extra(extra)}
