"""Draw the rooms of the package and who imports whom, and print how long they are.

python tools/rooms.py            # print every room's modules, lines and imports, and what a scheme's author reads
python tools/rooms.py --draw     # write docs/images/rooms.svg as well; `make format` does it

Order and purposes of the rooms stand in the first table of docs/architecture.md; the arrows are read from the imports.
"""

from __future__ import annotations

import ast
import random
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from itertools import accumulate, pairwise
from pathlib import Path

from sklearn.isotonic import isotonic_regression

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PICTURE = ROOT / "docs" / "images" / "rooms.svg"
ABOVE = ("notebooks/papers/workbench_book", "notebooks/lecture/workbench_lectures")  # packages beside ours
ENTRANCE = {"__init__", "__main__"}  # not rooms: the list of public names, and `python -m workbench`
# What the author of a scheme reads, and what there is besides to look up.
FOR_SCHEMES = ("core/scheme.py", "core/plan.py", "core/programs.py", "core/odds.py", "schemes/uncoded.py")

WIDE, HIGH, GAP, BETWEEN = 200, 60, 20, 40  # of boxes and what is left between them, px
STARTS, TURNS = 30, 60  # orders that are tried, and how often each is mended
LINE = 16  # what an arrow that passes a floor takes there, px
STYLE = """
    svg { font-family: system-ui, sans-serif; }
    rect { fill: #f4f6f8; stroke: #56606b; }
    .apart rect { fill: #fdf3e3; }
    text { fill: #1a1d21; font-size: 11px; text-anchor: middle; }
    .name { font-size: 15px; font-weight: 600; }
    path { fill: none; stroke: #0072b2; stroke-width: 1.3; marker-end: url(#head); }
    path.up { stroke: #d55e00; stroke-dasharray: 5 4; }
    marker path { fill: #0072b2; stroke: none; }
    @media (prefers-color-scheme: dark) {
      rect { fill: #232932; stroke: #8b96a3; } .apart rect { fill: #3a3122; } text { fill: #e8eaed; }
      path { stroke: #56b4e9; } marker path { fill: #56b4e9; } path.up { stroke: #ff8a3d; }
    }
"""


@dataclass
class Room:
    """A folder of the package, a module that stands alone, or a package beside it."""

    name: str
    modules: int = 0
    lines: int = 0
    uses: set[str] = field(default_factory=set)


def sources() -> Iterator[tuple[str, Path]]:
    """Every module with the name of its room."""
    for path in sorted((ROOT / "workbench").rglob("*.py")):
        parts = path.relative_to(ROOT / "workbench").parts
        name = parts[0] if len(parts) > 1 else path.stem
        if name not in ENTRANCE:
            yield name, path
    for folder in ABOVE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield Path(folder).name, path


def imported(path: Path) -> Iterator[str]:
    """Full names of what a module imports, at the top or in a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms() -> dict[str, Room]:
    """All rooms with their sizes and what they import."""
    found: dict[str, Room] = {}
    for name, path in sources():
        room = found.setdefault(name, Room(name))
        room.modules += 1
        room.lines += len(path.read_text().splitlines())
        room.uses.update(imported(path))
    for room in found.values():
        names = (
            each.split(".")[1] if each.startswith("workbench.") else each.split(".")[0] for each in room.uses
        )
        room.uses = {name for name in names if name in found} - {room.name}
    return found


def purposes() -> dict[str, str]:
    """The rooms in their order, the lowest first, with what they are for."""
    table = PAGE.read_text().partition("| room |")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", table, re.MULTILINE))


def arrows(uses: Mapping[str, Iterable[str]], order: list[str]) -> set[tuple[str, str]]:
    """Who imports whom, without what follows from other arrows: whoever uses B, which uses C, may use C too."""
    place = {name: i for i, name in enumerate(order)}
    down = {a: {b for b in uses[a] if place[b] < place[a]} for a in order}
    below: dict[str, set[str]] = {}
    for name in order:
        below[name] = down[name].union(*(below[b] for b in down[name]))
    direct = {(a, b) for a in order for b in down[a] if not any(b in below[c] for c in down[a])}
    return direct | {(a, b) for a in order for b in uses[a] if place[b] > place[a]}


def drawn() -> tuple[set[str], set[tuple[str, str]]]:
    """Rooms and arrows of the picture that is kept."""
    text = PICTURE.read_text()
    boxes = re.findall(r'data-room="(\w+)"', text)
    return set(boxes), set(re.findall(r'data-from="(\w+)" data-to="(\w+)"', text))


def floors(order: list[str], links: set[tuple[str, str]]) -> dict[str, int]:
    """How many rooms are below each."""
    floor: dict[str, int] = {}
    for name in order:
        floor[name] = 1 + max((floor[b] for a, b in links if a == name and b in floor), default=-1)
    return floor


Spot = tuple[str, ...]  # a room, or (from, to, floor) where an arrow passes a floor


def chains(floor: Mapping[str, int], links: set[tuple[str, str]]) -> dict[tuple[str, str], list[Spot]]:
    """The spots of every arrow, from the upper room to the lower one."""
    found: dict[tuple[str, str], list[Spot]] = {}
    for a, b in sorted(links):
        step = -1 if floor[b] < floor[a] else 1
        between: list[Spot] = [(a, b, str(f)) for f in range(floor[a] + step, floor[b], step)]
        found[a, b] = [(a,), *between, (b,)]
    return found


def width(spot: Spot) -> int:
    """Of a box, or of an arrow that passes."""
    return WIDE if len(spot) == 1 else LINE


def places(floor: Mapping[str, int], ways: Mapping[tuple[str, str], list[Spot]]) -> dict[Spot, float]:
    """Middles of all spots, px, each near those that it is joined with: the best of some orders to begin with."""
    level = {
        spot: floor[spot[0]] if len(spot) == 1 else int(spot[2]) for way in ways.values() for spot in way
    }
    level |= {(name,): f for name, f in floor.items()}
    rows = [sorted(s for s in level if level[s] == f) for f in range(max(level.values()) + 1)]
    pairs = [pair for way in ways.values() for pair in pairwise(way)]
    joined: dict[Spot, list[Spot]] = {spot: [] for spot in level}
    for one, other in pairs:
        joined[one].append(other)
        joined[other].append(one)
    shuffled = [[random.Random(seed).sample(row, len(row)) for row in rows] for seed in range(STARTS)]
    return min(
        (pulled(rows, joined) for rows in shuffled), key=lambda x: sum(abs(x[a] - x[b]) for a, b in pairs)
    )


def pulled(rows: list[list[Spot]], joined: Mapping[Spot, list[Spot]]) -> dict[Spot, float]:
    """Middles, from these orders on, each spot pulled towards its neighbours' mean again and again."""
    middle: dict[Spot, float] = {}
    for row in rows:
        middle.update(laid(row, {spot: (i - len(row) / 2) * WIDE for i, spot in enumerate(row)}))
    for turn in range(TURNS):
        for row in rows if turn % 2 else reversed(rows):
            wish = {s: sum(middle[o] for o in joined[s]) / len(joined[s]) if joined[s] else 0.0 for s in row}
            middle.update(laid(row, wish))
    return middle


def laid(row: list[Spot], wish: Mapping[Spot, float]) -> dict[Spot, float]:
    """A floor's spots in the order of their wishes, and as near to these as their widths allow."""
    ordered = sorted(row, key=lambda spot: (wish[spot], spot))
    apart = [0.0, *((width(one) + width(other)) / 2 + GAP for one, other in pairwise(ordered))]
    offsets = list(accumulate(apart))
    wishes = [wish[spot] - offset for spot, offset in zip(ordered, offsets, strict=True)]
    found = isotonic_regression(wishes, sample_weight=[1.0 if len(s) == 1 else 4.0 for s in ordered])
    return {spot: float(x) + offset for spot, x, offset in zip(ordered, found, offsets, strict=True)}


def curve(points: list[tuple[float, float]]) -> str:
    """A line through points that is upright at each."""
    text = "M{:.0f} {:.0f}".format(*points[0])
    for (x, y), (to_x, to_y) in pairwise(points):
        half = (y + to_y) / 2
        text += f" C{x:.0f} {half:.0f} {to_x:.0f} {half:.0f} {to_x:.0f} {to_y:.0f}"
    return text


def svg(said: Mapping[str, str], links: set[tuple[str, str]]) -> str:
    """The picture."""
    order = list(said)
    floor = floors(order, links)
    ways = chains(floor, links)
    middle = places(floor, ways)
    left = min(x - width(s) / 2 for s, x in middle.items()) - GAP
    across = max(x + width(s) / 2 for s, x in middle.items()) + GAP - left
    top = max(floor.values())
    down = GAP * 2 + (top + 1) * HIGH + top * BETWEEN

    def y(f: int) -> float:
        return GAP + (top - f) * (HIGH + BETWEEN)

    parts = []
    for (a, b), way in ways.items():
        rises = floor[b] > floor[a]
        points = [(middle[way[0]] - left, y(floor[a]) + (0 if rises else HIGH))]
        for spot in way[1:-1]:
            ends = [y(int(spot[2])), y(int(spot[2])) + HIGH]
            points += [(middle[spot] - left, end) for end in (reversed(ends) if rises else ends)]
        points.append((middle[way[-1]] - left, y(floor[b]) + (HIGH if rises else 0)))
        up = ' class="up"' if order.index(b) > order.index(a) else ""
        parts.append(f'<path{up} data-from="{a}" data-to="{b}" d="{curve(points)}"/>')
    for name, words in said.items():
        parts.append(box(name, words, middle[(name,)] - left, y(floor[name])))
    head = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across:.0f} {down:.0f}" width="{across:.0f}">\n'
        f"<title>The rooms of the package: an arrow goes from who imports to what is imported</title>\n"
        f'<style>{STYLE}</style>\n<defs>{head}<path d="M0 0L8 4L0 8z"/></marker></defs>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def box(name: str, words: str, x: float, y: float) -> str:
    """A room with its name and purpose."""
    lines = textwrap.wrap(words, 32)
    kind = ' class="apart"' if any(folder.endswith(name) for folder in ABOVE) else ""
    text = "".join(
        f'<text x="{x:.0f}" y="{y + 36 + 14 * i:.0f}">{escape(line)}</text>' for i, line in enumerate(lines)
    )
    return (
        f'<g{kind} data-room="{name}"><rect x="{x - WIDE / 2:.0f}" y="{y:.0f}" width="{WIDE}" height="{HIGH}" rx="6"/>'
        f'<text class="name" x="{x:.0f}" y="{y + 20:.0f}">{name}</text>{text}</g>'
    )


def printed(found: Mapping[str, Room], order: list[str]) -> str:
    """Sizes and imports, in the order of the page; then what the author of a scheme reads."""
    lines = [f"{'room':20s} modules  lines  uses"]
    for name in order:
        room = found[name]
        uses = ", ".join(sorted(room.uses, key=order.index))
        lines.append(f"{name:20s} {room.modules:7d} {room.lines:6d}  {uses}")
    inside = [room for name, room in found.items() if not any(f.endswith(name) for f in ABOVE)]
    lines.append(f"{'workbench/':20s} {sum(r.modules for r in inside):7d} {sum(r.lines for r in inside):6d}")
    lines.append("\nto add a scheme, read")
    counts = {name: len((ROOT / "workbench" / name).read_text().splitlines()) for name in FOR_SCHEMES}
    lines += [
        f"{name:28s} {count:6d}" for name, count in {**counts, "together": sum(counts.values())}.items()
    ]
    return "\n".join(lines)


def main(draw: bool) -> None:
    """Print, and draw if asked to."""
    found, said = rooms(), purposes()
    if set(found) != set(said):
        sys.exit(
            f"the table of rooms in {PAGE.name} and the package differ: {sorted(set(found) ^ set(said))}"
        )
    links = arrows({name: room.uses for name, room in found.items()}, list(said))
    print(printed(found, list(said)))
    if draw:
        PICTURE.write_text(svg(said, links))


if __name__ == "__main__":
    main("--draw" in sys.argv[1:])
