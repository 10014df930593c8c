"""The documents: the modules, files and pages that they name exist, and their sentences are short."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import click
import pytest

import workbench as wb
from tools import reference_tables
from workbench.cli.main import cli
from workbench.core.checking import Checked
from workbench.core.contract.delays import delay_models

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "tests" / "README.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
)
SOURCES = [
    path
    for folder in ("workbench", "notebooks", "tests", "benchmarks", "tools")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
# Pages that are made from code, or that quote other words.
OTHERS = {"architecture.md", "glossary.md", "moving-from-1.0.md"}
HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))
MAX_HOW_TO_LINES, MAX_WORDS = 110, 25
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
MAX_DECISION_LINES = 30  # half a page
# Page -> its classes to check, and the names to check, in order.
OWN = {
    "own-scheme": ["Pairs"],
    "own-delay-model": ["Naps", "Naps"],
    "own-problem": ["Robust"],
    "own-network": ["Function"],
    "own-optimiser": ["momentum"],
}
# pages whose first block takes long: a measurement, kernels, and all lectures translated
LONG = {"choose-a-scheme", "sweeps", "teach"}
PROSE = [
    page
    for page in PAGES
    if page.parent.name
    in ("docs", "tutorial", "how-to", "reference", "explanation", "evidence", "decisions", ROOT.name)
    and page.name not in OTHERS
]
TOP = {path.name for path in ROOT.iterdir()}
# Files that users make, and placeholders for any file.
MADE = re.compile(r"^(runs/|clusters/(NAME|lab|fleet)\b|reports/)|[<>…*]|NAME|/a/|\{")
NAMES = re.compile(r"\b(workbench(?:_book|_lectures)?(?:\.[a-zA-Z_]\w*)+)")
ENDINGS = {"py", "md", "ipynb", "yaml", "toml", "json", "sh", "csv", "png", "svg", "html", "txt", "lock"}


def ids(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def there(name: str) -> bool:
    """Return whether a dotted name is a module, or an attribute in one."""
    module, rest = name, []
    while module:
        try:
            found = find_spec(module) is not None
        except ModuleNotFoundError:
            found = False
        if found:
            break
        module, _, last = module.rpartition(".")
        rest.insert(0, last)
    if not rest:
        return True
    owner = import_module(module)
    for part in rest:
        if not hasattr(owner, part):
            return part in getattr(owner, "model_fields", {}) or part in getattr(owner, "__annotations__", {})
        owner = getattr(owner, part)
    return True


def named(text: str) -> set[str]:
    """Return the dotted names that begin with a package of the workbench, without groups of entry points."""
    families = "schemes|delays|faults|optimisers|schedules|engines|problems|clusters|commands"
    groups = rf"\[project\.entry-points[^\]]*\]|`workbench\.(?:{families})`"
    return set(NAMES.findall(re.sub(groups, "", text)))


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_docs_name_existing_modules(page: Path) -> None:
    assert [name for name in sorted(named(page.read_text())) if not there(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_docs_name_existing_files(page: Path) -> None:
    missing = []
    for word in re.findall(r"`([\w./*-]+)`", page.read_text()):
        first, ending = word.split("/")[0], word.rpartition(".")[2]
        ours = "/" in word and first in TOP - {"runs", "reports"}
        ours |= ending in ENDINGS and word in TOP
        if ours and not MADE.search(word) and not (ROOT / word).exists():
            missing.append(word)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_docs_links_exist(page: Path) -> None:
    missing = []
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target and not (page.parent / target).exists():
            missing.append(target)
    assert missing == []


@pytest.mark.parametrize("page", HOW_TO, ids=ids(HOW_TO))
def test_how_to_fits_on_two_screens_and_has_no_statistics(page: Path) -> None:
    text = page.read_text()
    assert len(text.splitlines()) <= MAX_HOW_TO_LINES
    assert not re.search(r"\d{4}-\d\d-\d\d|±", text), "measured figures are evidence"


@pytest.mark.parametrize("page", DECISIONS, ids=ids(DECISIONS))
def test_decision_is_half_a_page_of_context_decision_and_consequences(page: Path) -> None:
    text = page.read_text()
    assert len(text.splitlines()) <= MAX_DECISION_LINES
    assert re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (page.stem in LONG), id=page.stem)
        for page in HOW_TO
        if page.stem not in OWN
    ],
)
def test_how_to_first_block_works(page: Path, tmp_path: Path) -> None:
    """The first block is executed in an empty folder, as by a user."""
    found = re.search(r"^```(\w+)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    assert found, "no block"
    kind, block = found.groups()
    assert kind in ("python", "sh")
    beside = Path(sys.executable).parent
    path = f"{beside}{os.pathsep}{os.environ['PATH']}"
    argv = [sys.executable, "-c", block] if kind == "python" else ["bash", "-euc", block]
    done = subprocess.run(
        argv, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr.startswith("Traceback")


@pytest.mark.parametrize("name", OWN)
def test_docs_pages_on_user_defined_classes_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text, space, checked = (ROOT / "docs" / "how-to" / f"{name}.md").read_text(), {"__name__": "own_page"}, []
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        for node in ast.parse(block).body:
            if isinstance(node, ast.Expr):
                found = eval(compile(ast.Expression(node.value), name, "eval", dont_inherit=True), space)
                checked += [found] if isinstance(found, Checked) else []
            else:
                exec(compile(ast.Module([node], []), name, "exec", dont_inherit=True), space)
    assert [each.name for each in checked] == OWN[name]
    for each in checked:
        assert each.ok, each


def test_contracts_list_every_property_of_a_scheme() -> None:
    text = (ROOT / "docs" / "reference" / "contracts.md").read_text()
    table = text[text.index("### Properties") : text.index("## A delay model")]
    named = {row.property for row in wb.check("UMW", examples=1).rows}
    assert named <= set(re.findall(r"[a-z]+", table))


@pytest.mark.parametrize("page", reference_tables.pages(), ids=ids(reference_tables.pages()))
def test_reference_tables_are_current(page: Path) -> None:
    text = page.read_text()
    assert reference_tables.renewed(text) == text, "a table is old; run `make format`"


def test_renewed_adds_a_missing_row() -> None:
    text = (ROOT / "docs" / "reference" / "schemes.md").read_text()
    row = next(line for line in text.splitlines(keepends=True) if line.startswith("| CR |"))
    assert reference_tables.renewed(text.replace(row, "")) == text


def test_delay_models_have_a_row_each() -> None:
    ours = {kind for kind, cls in delay_models().items() if cls.__module__.startswith("workbench.")}
    assert set(reference_tables.DELAYS) == ours


def test_commands_are_on_the_hub_or_in_a_how_to() -> None:
    """Every command is named in the form `workbench COMMAND`. For a group, one of its commands is enough."""
    text = "".join(page.read_text() for page in [ROOT / "docs" / "README.md", *HOW_TO])
    assert [name for name in cli.list_commands(click.Context(cli)) if f"workbench {name}" not in text] == []


def sentences(text: str) -> Iterator[str]:
    """Return the sentences of paragraphs and table cells, without code, links and generated tables."""
    text = reference_tables.BLOCK.sub("", text)
    text = re.sub(r"```.*?```|^    .*?$|<picture>.*?</picture>", "", text, flags=re.DOTALL | re.MULTILINE)
    for block in re.split(r"\n\s*\n|\n(?=[-*#|] |\d+\. )", text):
        for cell in block.split("|") if block.lstrip().startswith("|") else [block]:
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "X", cell))
            yield from re.split(r"(?<=[.!?:])\s+(?=[A-Z\"*(0-9])", " ".join(plain.split()))


@pytest.mark.parametrize("page", PROSE, ids=ids(PROSE))
def test_docs_sentences_are_short(page: Path) -> None:
    """The limit of 25 words is that of CONTRIBUTING.md."""
    word = re.compile(r"[A-Za-z0-9\'’]+(?:[-.][A-Za-z0-9]+)*")
    long = [each for each in sentences(page.read_text()) if len(word.findall(each)) > MAX_WORDS]
    assert long == []


def test_docs_pages_are_linked() -> None:
    linked = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text())
    }
    pages = [
        page for page in PAGES if ROOT / "docs" in page.parents and ROOT / "docs" / "site" not in page.parents
    ]
    alone = [page for page in pages if page not in linked]
    assert ids(alone) == []


@pytest.mark.parametrize("package", ["workbench", "notebooks", "tests", "benchmarks", "tools"])
def test_sources_name_existing_modules_and_documents(package: str) -> None:
    """Module names in backticks and paths in docs/ are checked wherever a source has them. Python checks imports."""
    missing = []
    for path in (path for path in SOURCES if path.relative_to(ROOT).parts[0] == package):
        text = path.read_text()
        for name in set(re.findall(r"`(workbench(?:_book|_lectures)?(?:\.\w+)+)[`(]", text)):
            missing += [] if there(name) else [f"{path.relative_to(ROOT)}: {name}"]
        for word in set(re.findall(r"\b(docs/[\w./-]*\w)", text)):
            if not MADE.search(word) and not list(ROOT.glob(word + "*")):
                missing.append(f"{path.relative_to(ROOT)}: {word}")
    assert missing == []


def defined() -> tuple[set[str], set[tuple[str, str]]]:
    """Return every name that the sources define, with its module or class."""
    names, inside = set(), set()
    for path in SOURCES:
        owner = path.parent.name if path.stem == "__init__" else path.stem
        names |= {owner, path.name, path.parent.name}
        inside |= {(path.parent.name, path.stem), (path.parent.parent.name, path.parent.name)}
        for node in ast.walk(ast.parse(path.read_text())):
            members = node.body if isinstance(node, ast.ClassDef | ast.Module) else []
            home = node.name if isinstance(node, ast.ClassDef) else owner
            for member in members:
                targets = getattr(member, "targets", [getattr(member, "target", None)])
                for name in [getattr(member, "name", None), *(getattr(t, "id", None) for t in targets)]:
                    if name:
                        names.add(name)
                        inside.add((home, name))
    return names, inside


def known(mention: str, names: set[str], inside: set[tuple[str, str]]) -> bool:
    """Return whether `Class.method`, `package.module`, `module.name` or a single name exists."""
    parts = mention.split(".") if not mention.endswith(".py") else [mention]
    if parts[0] in ("plotly", "subprocess"):
        return there(mention)
    if parts[0].startswith("workbench"):
        return len(parts) == 1 or there(mention) or (len(parts) == 2 and parts[1] in wb.__all__)
    return parts[0] in names and all(pair in inside for pair in pairwise(parts))


def test_docstrings_refer_to_existing_names() -> None:
    names, inside = defined()
    missing = [
        f"{path.relative_to(ROOT)}: {mention}"
        for path in SOURCES
        if path.relative_to(ROOT).parts[0] in ("workbench", "notebooks")
        for mention in re.findall(r"[Ss]ee(?: also)? `([\w.]+)`", path.read_text())
        if not known(mention, names, inside)
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_docs_use_existing_public_names(page: Path) -> None:
    missing = []
    for name in sorted(set(re.findall(r"\bwb((?:\.[A-Za-z_]\w*)+)", page.read_text()))):
        owner: object = wb
        for part in name[1:].split("."):
            if owner is not None and not hasattr(owner, part):
                missing.append(f"wb{name}")
            owner = getattr(owner, part, None)
    assert missing == []
