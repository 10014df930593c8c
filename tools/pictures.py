"""Take the README's pictures from the real pages: the explorer, a run on real processes (animated) and a lecture.

python tools/pictures.py [NAME ...]     # explorer, live, lecture; needs Chromium, takes about two minutes

Each picture is taken twice, light and dark, 1280 px wide: docs/images/NAME-light.png and NAME-dark.png.
docs/images/pictures.json has a hash of each picture's sources, by which a test finds old pictures.
"""

from __future__ import annotations

import ast
import base64
import json
import re
import shutil
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from playwright.sync_api import Locator, Page

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for the tests' driver of JupyterLab
from tests.support.browser.explorer_user import User  # noqa: E402
from tests.support.browser.jupyterlab import Lab, Server, browser, jupyter  # noqa: E402
from workbench.core.base.files import write_json  # noqa: E402

IMAGES = ROOT / "docs" / "images"
WIDTH = 1280
PAD = 12  # px around an element of a page
MARGIN = 168 - 2 * PAD  # px of JupyterLab beside an output
FRAME_INTERVAL_S = 1.0  # s between two frames of the run
FRAME_TIME_S = 0.25  # s that a frame is shown
LAST_FRAME_TIME_S = 4.0  # s that the last frame is shown
MAX_FRAMES = 60  # max number of frames
MAX_COLOURS = 255  # max number of colours of a picture, besides the transparent one

Pixels = NDArray[np.uint32]  # one number per pixel

HASHES = IMAGES / "pictures.json"  # name of a picture -> hash of its sources
WIDGETS = ("workbench/lab/widgets", "workbench/lab/figures", "notebooks/02-explore.ipynb")
LECTURE = (
    "notebooks/lecture/workbench_lectures",
    "workbench/lab/figures/js",
    "notebooks/lecture/3-why-a-tree.ipynb",
)
DRAWN_FROM = {"explorer": WIDGETS, "live": WIDGETS, "lecture": LECTURE}
QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"|`[^`]*`')

# Chromium decodes the pictures that it takes, so that no image library is needed.
DECODE = """async (png) => {
  const bitmap = await createImageBitmap(await (await fetch("data:image/png;base64," + png)).blob());
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height), context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0);
  const bytes = context.getImageData(0, 0, bitmap.width, bitmap.height).data;
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return [bitmap.width, bitmap.height, btoa(text)]; }"""
FINISHED = "() => document.querySelectorAll('.wb-status .wb-finished').length"


def shot(page: Page, reader: Page, part: Locator, height: int) -> Pixels:
    """Return the upper `height` pixels of an element of a page. `reader`: an empty page that decodes the picture."""
    box = part.bounding_box()
    assert box is not None
    left = min(PAD, box["x"])
    width = min(WIDTH, left + box["width"] + PAD)  # without the scroll bar beside it
    clip = {"x": box["x"] - left, "y": max(box["y"], 0), "width": width, "height": height}
    png = page.screenshot(clip=clip)  # type: ignore[arg-type]
    wide, high, text = reader.evaluate(DECODE, base64.b64encode(png).decode())
    return np.frombuffer(base64.b64decode(text), np.uint32).reshape(high, wide)


def palette(frames: Iterable[Pixels]) -> NDArray[np.uint32]:
    """Return the most frequent colours."""
    counts: dict[int, int] = {}
    for frame in frames:
        for colour, count in zip(*np.unique(frame, return_counts=True), strict=True):
            counts[int(colour)] = counts.get(int(colour), 0) + int(count)
    return np.array(sorted(counts, key=lambda c: -counts[c])[:MAX_COLOURS], np.uint32)


def indexed(frame: Pixels, colours: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Return each pixel's nearest colour."""
    own, place = np.unique(frame, return_inverse=True)
    channels = [(c.view(np.uint8).reshape(-1, 4)[:, :3]).astype(int) for c in (own, colours)]
    apart = ((channels[0][:, None] - channels[1][None]) ** 2).sum(axis=2)
    return apart.argmin(axis=1).astype(np.uint8)[place].reshape(frame.shape)


def chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def packed(rows: NDArray[np.uint8]) -> bytes:
    """Return rows of a PNG file, without filters, which do not help pictures with few colours."""
    return zlib.compress(np.insert(rows, 0, 0, axis=1).tobytes(), 9)


def changes(frames: Sequence[NDArray[np.uint8]]) -> list[tuple[int, int, NDArray[np.uint8]]]:
    """Return top, left and pixels of the rectangle that each frame changes. Unchanged pixels are transparent."""
    found = [(0, 0, frames[0])]
    for before, after in pairwise(frames):
        ys, xs = np.nonzero(before != after)
        top, left, bottom, right = ys.min(), xs.min(), ys.max() + 1, xs.max() + 1
        part = after[top:bottom, left:right]
        same = part == before[top:bottom, left:right]
        found.append((int(top), int(left), np.where(same, np.uint8(MAX_COLOURS), part)))
    return found


def picture(shots: Sequence[Pixels]) -> bytes:
    """Return a PNG file, or an animated one (APNG) of several shots.

    Each shot is shown for `FRAME_TIME_S`, and the last one for `LAST_FRAME_TIME_S`.
    """
    colours = palette(shots)
    frames = [indexed(each, colours) for each in shots]
    frames = [frames[0], *(after for before, after in pairwise(frames) if (before != after).any())]
    high, wide = frames[0].shape
    table = np.zeros((MAX_COLOURS + 1, 3), np.uint8)
    table[: len(colours)] = colours.view(np.uint8).reshape(-1, 4)[:, :3]
    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", wide, high, 8, 3, 0, 0, 0))
    if len(frames) > 1:
        out += chunk(b"acTL", struct.pack(">II", len(frames), 0))
    out += chunk(b"PLTE", table.tobytes()) + chunk(b"tRNS", b"\xff" * MAX_COLOURS + b"\x00")
    serial = 0
    for number, (top, left, part) in enumerate(changes(frames)):
        seconds = LAST_FRAME_TIME_S if number == len(frames) - 1 else FRAME_TIME_S
        rows, columns = part.shape
        if len(frames) > 1:
            place = struct.pack(">IIIII", serial, columns, rows, left, top)
            out += chunk(
                b"fcTL", place + struct.pack(">HHBB", round(1000 * seconds), 1000, 0, int(number > 0))
            )
            serial += 1
        if number == 0:
            out += chunk(b"IDAT", packed(part))
        else:
            out += chunk(b"fdAT", struct.pack(">I", serial) + packed(part))
            serial += 1
    return out + chunk(b"IEND", b"")


def opened(page: Page, server: Server, dark: bool) -> Locator:
    """Open the explorer in its notebook. Return it once it is drawn."""
    lab = Lab(page, server, "02-explore.ipynb")
    lab.dark(dark)
    lab.run_all()
    page.add_style_tag(content=".jp-InputArea, .jp-OutputPrompt, .jp-Collapser { visibility: hidden; }")
    page.locator('[role=figure][aria-label*="Time per round"] .wb-forecast[data-drawn]').first.wait_for()
    return page.locator(".wb-explorer").first


def settled(page: Page) -> None:
    """Move the pointer away from figures, scroll to the top, and wait 1.5 s for the last drawing."""
    page.mouse.move(0, 0)
    to_top(page)
    page.wait_for_timeout(1500)


def to_top(page: Page) -> None:
    """Scroll the explorer to the top, so that the lower end of the window is not in the picture."""
    for part in page.locator(".wb-explorer").all():
        part.evaluate("element => element.scrollIntoView({block: 'start'})")


def explorer(page: Page, reader: Page, server: Server, dark: bool) -> list[Pixels]:
    """Take a picture of the explorer's forms and forecasts."""
    part = opened(page, server, dark)
    settled(page)
    return [shot(page, reader, part, 600)]


def live(page: Page, reader: Page, server: Server, dark: bool) -> list[Pixels]:
    """Take pictures of five schemes that run on real processes, until the last one ends."""
    part, me = opened(page, server, dark), User(page)
    page.get_by_text("Rounds, batches, faults", exact=True).click()
    for name, value in (("children", "3"), ("layers", "2"), ("rounds", "40")):
        me.field(name).fill(value)
    me.tab("Run")
    me.field("Engine").select_option("real processes (MPI)")
    me.press("Run")
    to_top(page)
    page.wait_for_function(
        "() => Number(document.querySelector('.wb-plot[data-points]')?.dataset.points ?? 0) > 5"
    )
    shots: list[Pixels] = []
    while len(shots) < MAX_FRAMES and page.evaluate(FINISHED) < 5:
        shots.append(shot(page, reader, part, 780))
        time.sleep(FRAME_INTERVAL_S)
    page.locator("table[aria-label='time to the target']").wait_for()
    settled(page)
    return [*shots, shot(page, reader, part, 780)]


def lecture(page: Page, reader: Page, server: Server, dark: bool) -> list[Pixels]:
    """Take a picture of a lecture's page without code."""
    theme = "dark" if dark else "light"
    page.goto(server.address(f"voila/render/lecture/3-why-a-tree.ipynb?theme={theme}"))
    page.locator(".wb-score").wait_for(state="attached")
    page.locator('[role=figure][aria-label*="round 0"] .wb-plot[data-drawn]').first.wait_for()
    settled(page)
    return [shot(page, reader, page.locator("body"), 1170)]


def drawn_from(name: str, root: Path = ROOT) -> str:
    """Return a hash of the texts, styles and notebooks that a picture shows. Code without texts does not count."""
    places = [root / place for place in DRAWN_FROM[name]]
    files = sorted(file for place in places for file in (place.rglob("*") if place.is_dir() else [place]))
    digest = sha256()
    for file in files:
        if file.suffix in (".py", ".js", ".css", ".yaml", ".ipynb"):
            digest.update("\0".join(_texts(file)).encode())
    return digest.hexdigest()


def _texts(file: Path) -> list[str]:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        return ["".join(cell["source"]) for cell in json.loads(text)["cells"]]
    if file.suffix == ".js":
        return sorted(QUOTED.findall(text))
    if file.suffix != ".py":
        return [text]
    tree = ast.parse(text)
    named = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    docstrings = {ast.get_docstring(node, clean=False) for node in named}
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return sorted({value for value in constants if isinstance(value, str)} - docstrings)  # type: ignore[arg-type]


TAKERS = {"explorer": explorer, "live": live, "lecture": lecture}


def served(folder: Path) -> Path:
    """Copy the notebooks to a writable folder."""
    root = folder / "notebooks"
    root.mkdir()
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        shutil.copy(path, root)
    shutil.copytree(ROOT / "notebooks" / "lecture", root / "lecture")
    return root


def main(names: Sequence[str]) -> None:
    """Take the named pictures, or all."""
    with tempfile.TemporaryDirectory() as name:
        root = served(Path(name))
        with jupyter(root, Path(name) / "home") as server:
            for each in names or TAKERS:
                for dark in (False, True):
                    wide = WIDTH if each == "lecture" else WIDTH + MARGIN
                    with browser(wide, 1900, dark) as (page, _):
                        shots = TAKERS[each](page, page.context.new_page(), server, dark)
                    path = IMAGES / f"{each}-{'dark' if dark else 'light'}.png"
                    path.write_bytes(picture(shots))
                    print(
                        f"{path.relative_to(ROOT)}: {len(shots)} frames, {path.stat().st_size / 1e6:.2f} MB"
                    )
                known = json.loads(HASHES.read_text(encoding="utf-8")) if HASHES.is_file() else {}
                write_json(HASHES, dict(sorted((known | {each: drawn_from(each)}).items())), indent=2)


if __name__ == "__main__":
    main(sys.argv[1:])
