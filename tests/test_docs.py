"""The documents: the modules, files and pages that they name exist."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

import workbench as wb
from workbench.core.checking import Checked

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
TOP = {path.name for path in ROOT.iterdir()}
# Files that users make, and placeholders for any file.
MADE = re.compile(r"^(runs/|clusters/(NAME|lab|fleet)\b|reports/)|[<>…*]|NAME|/a/|\{")
NAMES = re.compile(r"\b(workbench(?:_book|_lectures)?(?:\.[a-zA-Z_]\w*)+)")
ENDINGS = {"py", "md", "ipynb", "yaml", "toml", "json", "sh", "csv", "png", "svg", "html", "txt", "lock"}


def ids(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def there(name: str) -> bool:
    """Return whether a dotted name is a module, or something in one."""
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
    """Dotted names of modules of ours; not files (`workbench.egg-info`), not groups of entry points."""
    families = "schemes|delays|faults|optimisers|problems|clusters|commands"
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


def test_docs_page_on_user_defined_schemes_runs() -> None:
    text, space, checked = (ROOT / "docs" / "yours.md").read_text(), {"__name__": "own_page"}, []
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        for node in ast.parse(block).body:
            if isinstance(node, ast.Expr):
                found = eval(
                    compile(ast.Expression(node.value), "yours.md", "eval", dont_inherit=True), space
                )
                checked += [found] if isinstance(found, Checked) else []
            else:
                exec(compile(ast.Module([node], []), "yours.md", "exec", dont_inherit=True), space)
    assert [each.name for each in checked] == ["Pairs", "Naps", "Naps", "Robust", "momentum"]
    for each in checked:
        assert each.ok, each
    named = {row.property for each in checked[:1] for row in each.rows}
    table = text[text.index("| law |") : text.index("A broken law")]
    assert named <= set(re.findall(r"[a-z]+", table))


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
    """Names in quotes, comments and docstrings; imports are Python's own business."""
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
    """Return every name that our sources define, with its module or class."""
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
