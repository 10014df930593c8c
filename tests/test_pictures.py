"""Pictures of pages are current, and are written in PNG's format: the changes of each frame, in few colours."""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tools.pictures import (
    DRAWN_FROM,
    HASHES,
    MAX_COLOURS,
    ROOT,
    changes,
    drawn_from,
    indexed,
    palette,
    picture,
)


def chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        kind, data = png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        (crc,) = struct.unpack(">I", png[place + 8 + length : place + 12 + length])
        assert crc == zlib.crc32(kind + data)
        yield kind, data
        place += 12 + length


def frame(**spots: int) -> np.ndarray:
    found = np.full((4, 6), 0xFFFFFFFF, np.uint32)
    for spot, colour in spots.items():
        found[int(spot[1]), int(spot[2])] = colour
    return found


RED, BLUE = 0xFF0000FF, 0xFFFF0000  # bytes: red, green, blue, opaque


def test_picture_that_is_still_has_no_frames() -> None:
    found = dict(chunks(picture([frame(p12=RED)])))
    assert struct.unpack(">II", found[b"IHDR"][:8]) == (6, 4)
    assert b"acTL" not in found
    rows = np.frombuffer(zlib.decompress(found[b"IDAT"]), np.uint8).reshape(4, 7)
    assert not rows[:, 0].any()  # filter type 0
    colour = rows[1, 3] * 3
    assert found[b"PLTE"][colour : colour + 3] == b"\xff\x00\x00"


def test_picture_that_moves_has_only_changes() -> None:
    png = picture([frame(), frame(), frame(p12=RED), frame(p12=RED, p24=BLUE)])
    found = list(chunks(png))
    assert [data for kind, data in found if kind == b"acTL"] == [struct.pack(">II", 3, 0)]
    controls = [struct.unpack(">IIIIIHHBB", data) for kind, data in found if kind == b"fcTL"]
    assert [(wide, high, left, top) for _, wide, high, left, top, *_ in controls] == [
        (6, 4, 0, 0),
        (1, 1, 2, 1),
        (1, 1, 4, 2),
    ]
    serials = [struct.unpack(">I", data[:4])[0] for kind, data in found if kind in (b"fcTL", b"fdAT")]
    assert serials == list(range(5))
    assert controls[-1][5] > controls[0][5]  # the last frame is shown for longer


def test_animation_unchanged_pixels_are_transparent() -> None:
    before, after = frame(p11=RED), frame(p11=RED, p00=BLUE, p22=BLUE)
    colours = palette([before, after])
    (_, (top, left, part)) = changes([indexed(before, colours), indexed(after, colours)])
    assert (top, left, part.shape) == (0, 0, (3, 3))
    assert part[1, 1] == MAX_COLOURS
    assert colours[part[0, 0]] == BLUE


def test_indexed_maps_extra_colours_to_the_nearest() -> None:
    few = np.array([0xFF000000, 0xFFFFFFFF], np.uint32)
    assert indexed(np.array([[0xFF101010, 0xFFE0E0E0]], np.uint32), few).tolist() == [[0, 1]]


@pytest.mark.parametrize("name", DRAWN_FROM)
def test_picture_is_of_todays_page(name: str) -> None:
    known = json.loads(HASHES.read_text())
    assert known.get(name) == drawn_from(name), f"the picture is old; run `python tools/pictures.py {name}`"


def copy_sources(name: str, root: Path) -> None:
    """Copy the sources of a picture into an empty folder."""
    for place in DRAWN_FROM[name]:
        target = root / place
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / place).is_dir() else shutil.copy)(ROOT / place, target)


@pytest.mark.parametrize("name", DRAWN_FROM)
def test_drawn_from_changes_with_the_style_sheet(name: str, tmp_path: Path) -> None:
    sheet = "workbench/lab/figures/js/design.css"
    copy_sources(name, tmp_path)
    before = drawn_from(name, tmp_path)
    (tmp_path / sheet).write_text((ROOT / sheet).read_text() + ".wb { color: red; }")
    assert drawn_from(name, tmp_path) != before


def test_drawn_from_changes_with_labels_and_not_with_comments(tmp_path: Path) -> None:
    copy_sources("lecture", tmp_path)
    before = drawn_from("lecture", tmp_path)
    module = tmp_path / "notebooks/lecture/workbench_lectures/bandwidth.py"
    module.write_text(module.read_text() + "# a comment\n")
    assert drawn_from("lecture", tmp_path) == before
    module.write_text(module.read_text() + "LABEL = 'another word'\n")
    assert drawn_from("lecture", tmp_path) != before
