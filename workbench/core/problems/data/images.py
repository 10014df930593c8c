"""Images: CIFAR's binary files, folders and archives of arrays, and a drawn stand-in for photographs.

An image becomes a row of numbers: channel after channel, row after row, as PyTorch expects it. Bytes 0 to 255 become 0
to 1. Files in .bin and .npy are mapped into memory, so that only used rows are read. Nothing is unpickled.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.reading import map_bytes, names_in, read_npy, read_npz
from workbench.core.base.settings import SettingError
from workbench.core.base.tables import ending
from workbench.core.contract.delays import CounterRNG

from .options import DataError, Options
from .table import Floats, Indices, Raw, Table

Shape = tuple[int, int, int]  # channels, rows and columns of an image
SHAPE: Shape = (3, 32, 32)  # shape of CIFAR's images, and of the stand-in
PIXELS = int(np.prod(SHAPE))
# number of labels of an image, and number of classes of its last label; a record has the labels, then the pixels, as
# bytes
CIFAR = {"CIFAR-10": (1, 10), "CIFAR-100": (2, 100)}
TRAINING_FILES = ("data_batch_*.bin", "train.bin")  # names of CIFAR's training files in a folder
IMAGES, LABELS = "images", "labels"  # names of the arrays in an archive

CLASSES = 10
STAND_IN_STREAM = 12  # random stream of the stand-in, for a data seed; `contract.delays.base` lists all
IMAGES_PER_BLOCK = 256  # number of images that are drawn together
WAVES = 6  # number of waves of a texture
MAX_FREQUENCY = 5  # periods of a wave along a side
DISTRACTION = 0.6  # max contrast of another class's texture that is mixed into an image
NOISE = 0.15  # standard deviation of a pixel's noise
NOTE = (
    "Synthetic images: ten random textures, shifted, recoloured, mixed and noisy, of 3 x 32 x 32: a stand-in, not"
    " photographs."
)


@dataclass(frozen=True)
class Piece:
    """Images of one file: `pixels` (images, rows, columns[, channels]), or (images, channels, rows, columns).

    The second shape is that of CIFAR. `labels`: (images,), numbers or text. `file`: its name.
    """

    pixels: NDArray[Any]
    labels: NDArray[Any]
    file: str
    channels_first: bool = False

    @property
    def shape(self) -> Shape:
        """Channels, rows and columns of an image."""
        one = self.pixels.shape[1:]
        return one if self.channels_first else (one[2] if len(one) == 3 else 1, one[0], one[1])

    def rows(self, wanted: Indices) -> Floats:
        """Return some images as rows of numbers, (wanted, values)."""
        found = np.asarray(self.pixels[wanted])
        if found.ndim == 4 and not self.channels_first:
            found = found.transpose(0, 3, 1, 2)
        values = found.reshape(len(wanted), -1).astype(np.float64)
        return values / 255 if self.pixels.dtype == np.uint8 else values


def files_of(path: Path) -> list[Path]:
    """Return the files of images at a path: the file itself, or those of a folder, in the order of their names.

    Raises `DataError` for a folder without any.
    """
    if not path.is_dir():
        return [path]
    for pattern in TRAINING_FILES:
        if found := sorted(path.glob(pattern)):
            return found
    if found := sorted([*path.glob("*.npy"), *path.glob("*.npz")]):
        return found
    raise DataError(
        f"source: the folder {str(path)!r} has neither {' nor '.join(TRAINING_FILES)} nor .npy or .npz files; give a"
        " folder with some, or one file"
    )


def read_images(path: Path) -> Raw:
    """Read CIFAR's binary files, a folder of arrays, or an archive with the arrays `images` and `labels`.

    A folder has images.npy and labels.npy, or archives (.npz), or one .npy for each class, whose name is the class.
    Raises `DataError` with the file.
    """
    files = files_of(path)
    by_ending = {kind: [file for file in files if ending(file) == kind] for kind in (".bin", ".npz", ".npy")}
    if by_ending[".npz"] and by_ending[".npy"]:
        one, other = by_ending[".npz"][0].name, by_ending[".npy"][0].name
        why = f"holds {one!r} and {other!r}; keep either archives (.npz) or arrays (.npy)"
        raise DataError(f"source: the folder {str(path)!r} {why}")
    pieces = [
        *(_cifar(file) for file in by_ending[".bin"]),
        *(_archive(file) for file in by_ending[".npz"]),
        *(_arrays(by_ending[".npy"]) if by_ending[".npy"] else ()),
    ]
    note = f"Images of the {'folder' if path.is_dir() else 'file'} {path.name}."
    return raw_of(pieces, note)


def raw_of(pieces: Sequence[Piece], note: str) -> Raw:
    """Return the images of several files as one source. Raise `DataError` if their sizes or kinds of labels differ."""
    first = pieces[0]
    for piece in pieces[1:]:
        if piece.shape != first.shape:
            sizes = [" x ".join(map(str, each.shape)) for each in (piece, first)]
            why = f"are {sizes[0]} (channels, rows, columns) and those of {first.file!r} {sizes[1]}"
            raise DataError(f"source: images of {piece.file!r} {why}; give images of one size")
        if piece.labels.dtype.kind != first.labels.dtype.kind:
            why = (
                f"are {piece.labels.dtype} and those of {first.file!r} {first.labels.dtype}; write them alike"
            )
            raise DataError(f"source: labels of {piece.file!r} {why}")
    ends = np.cumsum([len(piece.labels) for piece in pieces])

    def take(rows: Indices, width: int) -> Floats:
        found = np.empty((len(rows), width))
        of = np.searchsorted(ends, rows, side="right")
        for number in np.unique(of).tolist():
            here, begin = of == number, int(ends[number]) - len(pieces[number].labels)
            found[here] = pieces[number].rows(rows[here] - begin)[:, :width]
        return found

    labels = np.concatenate([piece.labels for piece in pieces])
    return Raw(take, int(np.prod(first.shape)), labels, note, image=first.shape)


def _cifar(file: Path) -> Piece:
    """Map one of CIFAR's binary files. Raise `DataError` if it is truncated or has impossible labels."""
    data = map_bytes(file)
    sizes = {name: labels + PIXELS for name, (labels, _) in CIFAR.items()}
    fitting = [name for name, size in sizes.items() if len(data) and len(data) % size == 0]
    if not fitting:
        known = " or ".join(f"{size} ({name})" for name, size in sizes.items())
        why = f"has {len(data)} bytes, which is not a multiple of a record's {known}; download it again"
        raise DataError(f"source: {file.name!r} {why}")
    for name in fitting:
        count, classes = CIFAR[name]
        records = data.reshape(-1, sizes[name])
        labels = np.array(records[:, count - 1])
        wrong = np.flatnonzero(labels >= classes)
        if not len(wrong):
            return Piece(records[:, count:].reshape(-1, *SHAPE), labels, file.name, channels_first=True)
    at = int(wrong[0])
    why = f"has label {labels[at]} in record {at} (counted from 0), and {name} has 0 to {classes - 1}"
    raise DataError(f"source: {file.name!r} {why}; download it again")


def _array(file: Path) -> NDArray[Any]:
    with _naming(file):
        return read_npy(file, mapped=True)


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Name the file in errors about its format."""
    try:
        yield
    except (OSError, ValueError, BadZipFile, zlib.error) as error:
        if isinstance(error, DataError | SettingError):
            raise
        why = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"source: {file.name!r} cannot be read ({why}); write it with numpy.save or numpy.savez"
        ) from None


def _archive(file: Path) -> Piece:
    with _naming(file):
        arrays = read_npz(file, (IMAGES, LABELS))
    if not {IMAGES, LABELS} <= set(arrays):
        names = ", ".join(names_in(file)) or "none"
        raise DataError(f"source: {file.name!r} holds the arrays {names}; it must hold {IMAGES} and {LABELS}")
    return _labelled(arrays[IMAGES], arrays[LABELS], file.name, file.name)


def _arrays(files: Sequence[Path]) -> Iterator[Piece]:
    """Yield images.npy with labels.npy, or the arrays of the classes."""
    by_name = {file.stem: file for file in files}
    if IMAGES not in by_name and LABELS not in by_name:
        for name, file in by_name.items():
            pixels = _pixels(_array(file), file.name)
            yield Piece(pixels, np.full(len(pixels), name), file.name)
        return
    for missing, other in ((IMAGES, LABELS), (LABELS, IMAGES)):
        if missing not in by_name:
            why = f"{other}.npy is there and {missing}.npy is not; add it, or write an array for each class"
            raise DataError(f"source: the folder {str(files[0].parent)!r}: {why}")
    if more := sorted(set(by_name) - {IMAGES, LABELS}):
        why = f"{more[0]}.npy is beside {IMAGES}.npy and {LABELS}.npy; move it away"
        raise DataError(f"source: the folder {str(files[0].parent)!r}: {why}")
    arrays = [_array(by_name[name]) for name in (IMAGES, LABELS)]
    yield _labelled(arrays[0], arrays[1], by_name[IMAGES].name, by_name[LABELS].name)


def _labelled(pixels: NDArray[Any], labels: NDArray[Any], file: str, label_file: str) -> Piece:
    pixels = _pixels(pixels, file)
    if labels.shape != pixels.shape[:1]:
        why = f"have shape {labels.shape} and there are {len(pixels)} images; give one label per image"
        raise DataError(f"source: labels of {label_file!r} {why}")
    if labels.dtype.kind not in "iubUS":
        why = f"are of type {labels.dtype}; give whole numbers or text"
        raise DataError(f"source: labels of {label_file!r} {why}")
    return Piece(pixels, np.array(labels), file)


def _pixels(array: NDArray[Any], file: str) -> NDArray[Any]:
    """Return an array of images unchanged. Raise `DataError` if it is not an array of images."""
    if array.dtype != np.uint8 and array.dtype.kind != "f":
        why = f"are of type {array.dtype}; write them as bytes (uint8, 0 to 255) or as floats"
        raise DataError(f"source: images of {file!r} {why}")
    if array.ndim not in (3, 4) or 0 in array.shape:
        why = f"have shape {array.shape}; it must be (images, rows, columns) or (images, rows, columns, channels)"
        raise DataError(f"source: images of {file!r} {why}")
    return array


def stand_in(options: Options, samples: int) -> Table:
    """Draw images of ten random textures. An image depends on the seed and its number alone.

    A texture is a sum of `WAVES` coloured waves that is periodic over the image. An image is its class's texture,
    shifted at random, with the contrast of each channel changed. Another class's texture is mixed in, weaker, and
    noise is added. As shifts are uniform, all classes have the same mean image, so a linear model learns little.
    """
    random = CounterRNG(options.seed, STAND_IN_STREAM)
    textures = _textures(random.rng(-1))

    def blocks() -> Iterator[tuple[Floats, Floats]]:
        for number, begin in enumerate(range(0, samples, IMAGES_PER_BLOCK)):
            images, labels = _drawn(textures, random.rng(number))
            count = min(IMAGES_PER_BLOCK, samples - begin)
            yield images.reshape(IMAGES_PER_BLOCK, PIXELS)[:count], labels[:count].astype(np.float64)

    return Table(samples, PIXELS, CLASSES, NOTE, blocks, trusted=True, image=SHAPE)


def _textures(random: np.random.Generator) -> Floats:
    """Return the textures, (classes, channels, rows, columns), each channel of variance 1 and mean 0."""
    channels, height, width = SHAPE
    size = (CLASSES, WAVES)
    y, x = np.meshgrid(np.arange(height) / height, np.arange(width) / width, indexing="ij")
    down, across = random.integers(-MAX_FREQUENCY, MAX_FREQUENCY + 1, (2, *size))
    down[(down == 0) & (across == 0)] = 1  # a wave of frequency 0 would be a constant
    phase = 2 * np.pi * random.random((*size, channels))
    colour = random.standard_normal((*size, channels))
    angle = 2 * np.pi * (down[..., None, None] * y + across[..., None, None] * x)
    waves = colour[..., None, None] * np.cos(angle[:, :, None] + phase[..., None, None])
    found = waves.sum(axis=1)
    return np.asarray(found / found.std(axis=(2, 3), keepdims=True))


def _drawn(textures: Floats, random: np.random.Generator) -> tuple[Floats, NDArray[np.int64]]:
    """Return a block of images, with values around 0.5, and their labels."""
    channels, height, width = SHAPE
    count = IMAGES_PER_BLOCK
    labels = random.integers(0, CLASSES, count)
    others = (labels + random.integers(1, CLASSES, count)) % CLASSES
    contrast = random.uniform(0.5, 1.0, (count, channels, 1, 1))
    weaker = DISTRACTION * random.random((count, 1, 1, 1))
    image = _shifted(textures[labels], random) + weaker * _shifted(textures[others], random)
    noise = NOISE * random.standard_normal((count, channels, height, width))
    return np.clip(0.5 + 0.2 * contrast * image + noise, 0.0, 1.0), labels


def _shifted(images: Floats, random: np.random.Generator) -> Floats:
    """Return each image shifted by a random number of pixels, periodically."""
    count, _, height, width = images.shape
    down = (np.arange(height) + random.integers(0, height, (count, 1))) % height
    across = (np.arange(width) + random.integers(0, width, (count, 1))) % width
    place = np.arange(count)[:, None, None]
    return images[place, :, down[:, :, None], across[:, None, :]].transpose(0, 3, 1, 2)
