"""Draw the layers and packages of `workbench`, and print their sizes.

python tools/layers.py            # print modules, lines and imports of every package, and files for authors of schemes
python tools/layers.py --draw     # write docs/images/layers.svg as well; `make format` does it

Order and purposes of the packages are read from the first table of docs/architecture.md, imports from the code.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PICTURE = ROOT / "docs" / "images" / "layers.svg"
BESIDE = (
    "notebooks/papers/workbench_book",
    "notebooks/lecture/workbench_lectures",
)  # packages beside `workbench`
NOTEBOOKS = "notebooks"  # layer of the notebooks' packages
LAYERS = ("core", "mpi", "ddp", "analysis", "lab", "cli", NOTEBOOKS)  # the lowest first
SINGLE = ("ddp", "cli")  # layers that are one package
# files of workbench/core that the author of a scheme reads
FOR_SCHEMES = (
    "contract/scheme.py",
    "contract/plan.py",
    "contract/programs.py",
    "contract/round_times.py",
    "schemes/uncoded.py",
)

BOX_WIDTH_PX, BOX_HEIGHT_PX, GAP_PX, BETWEEN_LAYERS_PX, PER_ROW = 178, 62, 12, 40, 5
STYLE = """
    svg { font-family: system-ui, sans-serif; }
    .layer > rect { fill: #eef3f8; stroke: #8fa3b8; }
    .package rect { fill: #ffffff; stroke: #56606b; }
    text { fill: #1a1d21; font-size: 11px; text-anchor: middle; }
    .title { font-size: 15px; font-weight: 600; text-anchor: start; }
    .name { font-size: 13px; font-weight: 600; }
    path { fill: none; stroke: #0072b2; stroke-width: 1.5; marker-end: url(#head); }
    marker path { fill: #0072b2; stroke: none; }
    @media (prefers-color-scheme: dark) {
      .layer > rect { fill: #1c2129; stroke: #5c6875; } .package rect { fill: #2a313b; stroke: #8b96a3; }
      text { fill: #e8eaed; } path { stroke: #56b4e9; } marker path { fill: #56b4e9; }
    }
"""


@dataclass
class Package:
    """A folder or module of a layer, or a package beside `workbench`."""

    layer: str
    name: str
    modules: int = 0
    lines: int = 0
    uses: set[str] = field(default_factory=set)  # imported modules; at the end, their packages


def sources() -> Iterator[tuple[str, str, Path]]:
    """Yield layer, package and file of every module."""
    for path in sorted((ROOT / "workbench").rglob("*.py")):
        layer, *inside = path.relative_to(ROOT / "workbench").parts
        if inside and path.parent != ROOT / "workbench" / layer:
            yield layer, inside[0], path
        elif layer in SINGLE or (inside and path.stem != "__init__"):
            yield layer, layer if layer in SINGLE else path.stem, path
    for folder in BESIDE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield NOTEBOOKS, Path(folder).name, path


def imported(path: Path) -> Iterator[str]:
    """Yield the full names of all modules that a module imports, at the top or in a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def packages() -> dict[str, Package]:
    """Return all packages with their sizes and imports, by names such as "core.base"."""
    found: dict[str, Package] = {}
    for layer, name, path in sources():
        package = found.setdefault(f"{layer}.{name}", Package(layer, name))
        package.modules += 1
        package.lines += len(path.read_text().splitlines())
        package.uses.update(imported(path))
    for key, package in found.items():
        full = {use.removeprefix("workbench.") for use in package.uses}
        full |= {f"{use.partition('.')[0]}.{use}" for use in full if use.partition(".")[0] in SINGLE}
        package.uses = {
            other for other in found for use in full if f"{use}.".startswith(f"{other}.") and other != key
        }
    return found


def purposes() -> dict[str, str]:
    """Return package -> purpose, the lowest package first."""
    table = PAGE.read_text().partition("| layer | package |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| ([^|]+?) \|", table, re.MULTILINE)
    return {f"{layer}.{name}": purpose for layer, name, purpose in rows}


def arrows(uses: Mapping[str, Iterable[str]]) -> set[tuple[str, str]]:
    """Return pairs of layers of which the first imports the second, without pairs that follow from others.

    >>> sorted(arrows({"lab": {"core", "mpi"}, "mpi": {"core"}, "core": set()}))
    [('lab', 'mpi'), ('mpi', 'core')]
    """
    below: dict[str, set[str]] = {}
    for layer in sorted(uses, key=LAYERS.index):
        below[layer] = set(uses[layer]).union(*(below.get(b, set()) for b in uses[layer]))
    return {
        (a, b) for a in uses for b in uses[a] if not any(b in below[c] for c in uses[a] if c not in (a, b))
    }


def between_layers(found: Mapping[str, Package]) -> dict[str, set[str]]:
    """Return the layers that each layer imports."""
    uses: dict[str, set[str]] = {layer: set() for layer in LAYERS}
    for package in found.values():
        uses[package.layer] |= {found[other].layer for other in package.uses} - {package.layer}
    return uses


def drawn() -> tuple[set[str], set[tuple[str, str]]]:
    """Return packages and arrows of the repository's picture."""
    text = PICTURE.read_text()
    boxes = re.findall(r'data-package="([\w.]+)"', text)
    return set(boxes), set(re.findall(r'data-from="(\w+)" data-to="(\w+)"', text))


def svg(message: Mapping[str, str], links: Iterable[tuple[str, str]]) -> str:
    """Return the picture: a band for each layer, the highest on top, with its packages in it."""
    width = PER_ROW * (BOX_WIDTH_PX + GAP_PX) + GAP_PX
    parts, top, places = [], 0, {}
    for layer in reversed(LAYERS):
        names = [key for key in message if key.startswith(f"{layer}.")][::-1]
        rows = -(-len(names) // PER_ROW)
        height = 30 + rows * (BOX_HEIGHT_PX + GAP_PX)
        places[layer] = (top, top + height)
        parts.append(f'<g class="layer"><rect x="0" y="{top}" width="{width}" height="{height}" rx="8"/>')
        parts.append(f'<text class="title" x="{GAP_PX}" y="{top + 20}">{layer}</text></g>')
        for i, key in enumerate(names):
            x = GAP_PX + i % PER_ROW * (BOX_WIDTH_PX + GAP_PX)
            y = top + 30 + i // PER_ROW * (BOX_HEIGHT_PX + GAP_PX)
            parts.append(_box(key, message[key], x, y))
        top += height + BETWEEN_LAYERS_PX
    for i, (a, b) in enumerate(sorted(links)):
        parts.append(_arrow(a, b, places, width - 24 * (i + 1)))
    head = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    size = f'viewBox="-2 -2 {width + 4} {top - BETWEEN_LAYERS_PX + 4}" width="{width + 4}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n'
        "<title>Layers of the package: an arrow goes from the importing layer to the imported one</title>\n"
        f'<style>{STYLE}</style>\n<defs>{head}<path d="M0 0L8 4L0 8z"/></marker></defs>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _box(key: str, purpose: str, x: float, y: float) -> str:
    lines = textwrap.wrap(purpose.replace("`", ""), 30)[:2]
    text = "".join(
        f'<text x="{x + BOX_WIDTH_PX / 2}" y="{y + 36 + 14 * i}">{escape(line)}</text>'
        for i, line in enumerate(lines)
    )
    return (
        f'<g class="package" data-package="{key}"><rect x="{x}" y="{y}" width="{BOX_WIDTH_PX}" '
        f'height="{BOX_HEIGHT_PX}" rx="6"/><text class="name" x="{x + BOX_WIDTH_PX / 2}" y="{y + 18}">'
        f"{key.partition('.')[2]}</text>{text}</g>"
    )


def _arrow(a: str, b: str, places: Mapping[str, tuple[int, int]], x: float) -> str:
    start, end = places[a][1], places[b][0]
    return f'<path data-from="{a}" data-to="{b}" d="M{x} {start}L{x} {end}"/>'


def printed(found: Mapping[str, Package], order: list[str]) -> str:
    """Return the listing: sizes and imports of every package, and of the files for authors of schemes."""
    lines = [f"{'package':30s} modules  lines  imports"]
    for name in order:
        package = found[name]
        uses = ", ".join(sorted(package.uses, key=order.index))
        lines.append(f"{name:30s} {package.modules:7d} {package.lines:6d}  {uses}")
    for layer in LAYERS:
        inside = [each for each in found.values() if each.layer == layer]
        lines.append(f"{layer:30s} {sum(p.modules for p in inside):7d} {sum(p.lines for p in inside):6d}")
    lines.append("\nto add a scheme, read")
    counts = {name: len((ROOT / "workbench/core" / name).read_text().splitlines()) for name in FOR_SCHEMES}
    lines += [
        f"{name:28s} {count:6d}" for name, count in {**counts, "together": sum(counts.values())}.items()
    ]
    return "\n".join(lines)


def main(draw: bool) -> None:
    """Print the listing, and draw with --draw."""
    found, text = packages(), purposes()
    if set(found) != set(text):
        sys.exit(
            f"the table of packages in {PAGE.name} and the code differ: {sorted(set(found) ^ set(text))}"
        )
    print(printed(found, list(text)))
    if draw:
        PICTURE.write_text(svg(text, arrows(between_layers(found))))


if __name__ == "__main__":
    main("--draw" in sys.argv[1:])
