"""Images: CIFAR's binary files, folders and archives of arrays, their errors, and synthetic images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import workbench as wb
from workbench.core.base.settings import SettingError
from workbench.core.problems.data import DataError, load
from workbench.core.problems.data.images import IMAGES_PER_BLOCK, Piece, files_of, raw_of, read_images

RNG = np.random.default_rng(0)


def cifar(path: Path, count: int, classes: int = 10, coarse: bool = False) -> tuple[Any, Any]:
    """Write a file of CIFAR-10, or of CIFAR-100 if `coarse`. Return its images (count, 3072) and labels."""
    pixels, labels = RNG.integers(0, 256, (count, 3072)), np.arange(count) % classes
    columns = [labels % 20, labels] if coarse else [labels]
    np.column_stack([*columns, pixels]).astype(np.uint8).tofile(path)
    return pixels, labels


def rows_of(data: wb.problems.OnData | Any, pixels: Any) -> list[int]:
    """Return the index of the image of each prepared row, found by its values."""
    return [int(np.abs(pixels / 255 - row).sum(axis=1).argmin()) for row in data.X]


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("coarse", [False, True])
def test_cifar_file_is_read_as_its_images_and_fine_labels(tmp_path: Path, coarse: bool) -> None:
    file = tmp_path / ("train.bin" if coarse else "data_batch_1.bin")
    pixels, labels = cifar(file, 40, 40 if coarse else 10, coarse)
    data = load(str(file), "multiclass", scale=False)
    assert (data.X.shape, data.classes, data.image) == ((40, 3072), 40 if coarse else 10, (3, 32, 32))
    order = rows_of(data, pixels)
    np.testing.assert_array_equal(data.X, pixels[order] / 255)
    np.testing.assert_array_equal(data.y, labels[order])
    assert "train.bin" in data.note or "data_batch_1.bin" in data.note


@pytest.mark.usefixtures("cache")
def test_cifar_folder_is_its_training_files_and_test_file_is_held_out(tmp_path: Path) -> None:
    parts = [cifar(tmp_path / f"data_batch_{k}.bin", 20) for k in (1, 2, 3)]
    held, labels = cifar(tmp_path / "test_batch.bin", 30)
    data = load(tmp_path, "multiclass", scale=False, test=str(tmp_path / "test_batch.bin"))
    pixels = np.concatenate([part for part, _ in parts])
    assert sorted(rows_of(data, pixels)) == list(range(60))
    assert data.y_test is not None
    np.testing.assert_array_equal(data.X_test, held / 255)
    np.testing.assert_array_equal(data.y_test, labels)
    cifar(tmp_path / "data_batch_3.bin", 20)  # other content gives other data
    assert load(tmp_path, "multiclass", scale=False).digest != load(tmp_path, "multiclass").digest


@pytest.mark.usefixtures("cache")
def test_images_are_standardised_by_channel(tmp_path: Path) -> None:
    cifar(tmp_path / "data_batch_1.bin", 50)
    channels = load(tmp_path, "multiclass").X.reshape(50, 3, -1)
    np.testing.assert_allclose(channels.mean(axis=(0, 2)), 0, atol=1e-12)
    np.testing.assert_allclose(channels.std(axis=(0, 2)), 1)
    assert np.abs(channels.mean(axis=0)).max() > 0.01  # not by pixel


STORED: dict[str, Callable[[Path, Any, Any], Any]] = {
    "two arrays": lambda path, x, y: (np.save(path / "images.npy", x), np.save(path / "labels.npy", y)),
    "an archive": lambda path, x, y: np.savez(path / "all.npz", images=x, labels=y),
    "two archives": lambda path, x, y: [
        np.savez(path / f"{k}.npz", images=x[k::2], labels=y[k::2]) for k in (0, 1)
    ],
    "an array per class": lambda path, x, y: [np.save(path / f"c{k}.npy", x[y == k]) for k in range(3)],
}


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 3)])
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_arrays_in_a_folder_are_images(tmp_path: Path, stored: str, shape: Any, kind: Any) -> None:
    x, y = RNG.integers(0, 256, (12, *shape)).astype(kind), np.arange(12) % 3
    STORED[stored](tmp_path, x, y)
    source = tmp_path / "all.npz" if stored == "an archive" else tmp_path
    data = load(source, "multiclass", scale=False)
    channels = 3 if len(shape) == 3 else 1
    assert (data.image, data.classes) == ((channels, 4, 6), 3)
    rows = (x if channels == 1 else x.transpose(0, 3, 1, 2)).reshape(12, -1) / (
        255 if kind == np.uint8 else 1
    )
    found = sorted((tuple(row), int(label)) for row, label in zip(data.X, data.y, strict=True))
    assert found == sorted((tuple(row), int(label)) for row, label in zip(rows.astype(float), y, strict=True))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_rows_of_several_files_are_in_order(sizes: list[int], data: st.DataObject) -> None:
    pieces = [
        Piece(data.draw(arrays(np.uint8, (n, 2, 3, 2))), np.arange(n), f"{i}") for i, n in enumerate(sizes)
    ]
    raw, count = raw_of(pieces, "note"), sum(sizes)
    wanted = np.concatenate([piece.rows(np.arange(len(piece.labels))) for piece in pieces])
    rows = np.array(data.draw(st.lists(st.integers(0, count - 1), max_size=9)), dtype=np.intp)
    np.testing.assert_array_equal(raw.take(rows, 12), wanted[rows])
    np.testing.assert_array_equal(raw.take(rows, 5), wanted[rows, :5])


# ------------------------------------------------------------------------------------------------ invalid files


def truncated(path: Path) -> None:
    (path / "data_batch_1.bin").write_bytes(b"\0" * (3 * 3073 - 1))


def impossible_label(path: Path) -> None:
    records = np.zeros((5, 3073), np.uint8)
    records[3, 0] = 17
    records.tofile(path / "data_batch_1.bin")


def empty(path: Path) -> None:
    (path / "data_batch_1.bin").touch()


def both(path: Path) -> None:
    np.save(path / "a.npy", np.zeros((2, 4, 4)))
    np.savez(path / "b.npz", images=np.zeros((2, 4, 4)), labels=[0, 1])


def sizes(path: Path) -> None:
    np.save(path / "a.npy", np.zeros((2, 4, 4)))
    np.save(path / "b.npy", np.zeros((2, 4, 5)))


def no_labels(path: Path) -> None:
    np.save(path / "images.npy", np.zeros((2, 4, 4)))


def no_images(path: Path) -> None:
    np.save(path / "labels.npy", np.zeros(2))


def third(path: Path) -> None:
    no_labels(path)
    np.save(path / "labels.npy", np.arange(2))
    np.save(path / "more.npy", np.zeros((2, 4, 4)))


def few_labels(path: Path) -> None:
    no_labels(path)
    np.save(path / "labels.npy", np.arange(3))


def real_labels(path: Path) -> None:
    np.savez(path / "all.npz", images=np.zeros((2, 4, 4)), labels=[0.5, 1.0])


def other_labels(path: Path) -> None:
    np.savez(path / "a.npz", images=np.zeros((2, 4, 4)), labels=[0, 1])
    np.savez(path / "b.npz", images=np.zeros((2, 4, 4)), labels=["0", "1"])


def objects(path: Path) -> None:
    np.save(path / "cats.npy", np.array([{}], dtype=object), allow_pickle=True)


def integers(path: Path) -> None:
    np.save(path / "cats.npy", np.zeros((2, 4, 4), dtype=np.int64))


def flat(path: Path) -> None:
    np.save(path / "cats.npy", np.zeros((2, 16)))


def other_arrays(path: Path) -> None:
    np.savez(path / "all.npz", images=np.zeros((2, 4, 4)), y=[0, 1])


def nothing(path: Path) -> None:
    (path / "photo.jpg").touch()


def one_class(path: Path) -> None:
    np.save(path / "cats.npy", np.zeros((2, 4, 4)))


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (
            truncated,
            "'data_batch_1.bin' has 9218 bytes, which is not a multiple of a record's 3073 .CIFAR-10. or",
        ),
        (empty, "'data_batch_1.bin' has 0 bytes"),
        (
            impossible_label,
            "label 17 in record 3 .counted from 0., and CIFAR-10 has 0 to 9; download it again",
        ),
        (both, r"holds 'b.npz' and 'a.npy'; keep either archives"),
        (sizes, r"images of 'b.npy' are 1 x 4 x 5 .* those of 'a.npy' 1 x 4 x 4; give images of one size"),
        (no_labels, r"images.npy is there and labels.npy is not; add it"),
        (no_images, r"labels.npy is there and images.npy is not; add it"),
        (third, r"more.npy is beside images.npy and labels.npy; move it away"),
        (few_labels, r"labels of 'labels.npy' have shape \(3,\) and there are 2 images"),
        (real_labels, r"labels of 'all.npz' are of type float64; give whole numbers or text"),
        (other_labels, r"labels of 'b.npz' are <U1 and those of 'a.npz' int64"),
        (objects, r"'cats.npy' .*holds objects of Python, which are not read"),
        (integers, r"images of 'cats.npy' are of type int64; write them as bytes"),
        (flat, r"images of 'cats.npy' have shape \(2, 16\); it must be \(images, rows, columns\)"),
        (other_arrays, r"'all.npz' holds the arrays images, y; it must hold images and labels"),
        (nothing, r"has neither data_batch_\*.bin nor train.bin nor .npy or .npz files"),
        (one_class, "has only one value"),
    ],
)
def test_wrong_images_are_refused_with_their_file(tmp_path: Path, write: Any, sentence: str) -> None:
    write(tmp_path)
    with pytest.raises(DataError, match=sentence) as caught:
        load(tmp_path, "multiclass")
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("cache")
def test_wrong_images_name_the_field_of_an_experiment(tmp_path: Path) -> None:
    def on(**args: Any) -> wb.Experiment:
        return wb.Experiment(problem="resnet18", problem_args={name: str(at) for name, at in args.items()})

    truncated(tmp_path)
    with pytest.raises(DataError, match=r"^problem_args.data: 'data_batch_1.bin' has 9218 bytes"):
        on(data=tmp_path).shape()
    cifar(tmp_path / "data_batch_1.bin", 20)
    np.savez(tmp_path / "small.npz", images=np.zeros((4, 8, 8, 3), np.uint8), labels=np.arange(4))
    with pytest.raises(DataError, match=r"^problem_args.test: .*small.npz' has 192 columns"):
        on(data=tmp_path / "data_batch_1.bin", test=tmp_path / "small.npz").shape()


def test_pixels_of_files_are_mapped_and_not_read(tmp_path: Path) -> None:
    cifar(tmp_path / "data_batch_1.bin", 20)
    np.savez(tmp_path / "x.npz", images=np.zeros((2, 4, 4)), labels=[0, 1])
    assert files_of(tmp_path) == [tmp_path / "data_batch_1.bin"]
    from workbench.core.problems.data.images import _arrays, _cifar

    assert isinstance(_cifar(tmp_path / "data_batch_1.bin").pixels.base, np.memmap)
    np.save(tmp_path / "cats.npy", np.zeros((2, 4, 4)))
    (piece,) = _arrays([tmp_path / "cats.npy"])
    assert isinstance(piece.pixels, np.memmap)


def test_files_beyond_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(
        tmp_path / "x.npz", images=np.zeros((200, 32, 32), np.uint8), labels=np.arange(200) % 2
    )
    monkeypatch.setenv("WORKBENCH_MAX_FILE_BYTES", "1e5")
    with pytest.raises(SettingError, match=r"x.npz: takes 206400 bytes|x.npz: takes .* of memory unpacked"):
        read_images(tmp_path / "x.npz")


# ------------------------------------------------------------------------------------------------ synthetic images


@pytest.mark.usefixtures("cache")
def test_synthetic_images_depend_on_the_seed_and_are_marked() -> None:
    few, many = (load("synthetic_images", "multiclass", samples=n, scale=False) for n in (30, 300))
    assert few.X.shape == (30, 3072)
    np.testing.assert_array_equal(few.X, many.X[:30])
    assert 0 <= many.X.min() < many.X.max() <= 1
    assert (many.classes, many.image) == (10, (3, 32, 32))
    assert np.bincount(many.y.astype(int)).min() > 10
    other = load("synthetic_images", "multiclass", samples=30, scale=False, seed=1)
    assert np.abs(other.X - few.X).max() > 0.1
    assert "stand-in, not photographs" in few.note
    assert IMAGES_PER_BLOCK < 300


@pytest.mark.usefixtures("cache")
def test_synthetic_images_are_not_learned_by_a_linear_model() -> None:
    """Images are shifted uniformly, so no pixel depends on the class.

    The accuracy is far below that of a convolutional network.
    """
    args = {"data": "synthetic_images", "samples": 1200, "test": 200}
    e = wb.Experiment(scheme="UMW", problem="softmax", problem_args=args, rounds=30, optimiser="adam")
    assert wb.run(e).rounds["test_accuracy"].iloc[-1] < 0.3


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"features": 100}, "features: 100 does not fit 'synthetic_images'; take 3072"),
        ({"test": "a.bin"}, "test: 'a.bin' is a file; 'synthetic_images' is drawn"),
        ({"target": "x"}, "target: 'x' names a column"),
        ({"task": "binary"}, "task: 'binary' does not suit 'synthetic_images'"),
    ],
)
def test_synthetic_images_refuse_unsuitable_options(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        load("synthetic_images", **{"task": "multiclass", **options})
