"""Load a data set by the name of its source, as prepared, memory-mapped arrays."""

import difflib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from workbench.core.base.settings import SettingError, path_of
from workbench.core.base.tables import ending

from . import cache, openml
from .files import READERS, SPARSE, check_file, content, read_file
from .frames import Columns
from .options import DataError, Options, check_test, known_task, unsuited, whole
from .prepare import prepare
from .sources import BUNDLED, DRAWN, SYNTHETIC, SourceInfo, bundled_raw, check_drawn, drawn_table
from .table import Floats, Indices, Raw, Table, select

# prefix of the source of data in this host's cache; the name of a folder follows
PREPARED_PREFIX = "prepared:"


@dataclass(frozen=True, eq=False)  # compare digests instead, because == of arrays is elementwise
class DataSet:
    """Prepared samples, which runs cut into parts.

    `truth` is the true model of a synthetic set in the columns of X, else None. Regression: y = X @ truth + N(0, 1).
    Binary: P(y = 1) = sigmoid(X @ truth).

    >>> data = load("iris", "multiclass")
    >>> data.X.shape, data.classes, data.truth
    ((150, 4), 3, None)
    """

    name: str  # the source as the user typed it, such as "digits", "synthetic", "openml:gisette"
    X: Floats  # (samples, features) in C order, a read-only memory map; with `intercept` its last column is 1
    y: Floats  # (samples,): the regression target, 0 or 1 for two classes, 0 ... K-1 for K
    classes: int  # number of classes: 0 for regression, 2 for binary, K for multi-class
    truth: Floats | None  # (features,)
    # folder of the prepared arrays: other processes of this machine map them from there (`reopen`)
    folder: Path
    digest: str  # hash of the prepared content: equal digests mean equal X, y and truth
    note: str  # one sentence that describes the data, and mentions a stand-in
    X_test: Floats | None = None  # held-out samples, with the columns of X; None: there are none
    y_test: Floats | None = None
    image: tuple[int, int, int] | None = None  # channels, rows and columns, if a sample is an image

    @property
    def held_out(self) -> "DataSet":
        """Held-out samples as a data set."""
        assert self.X_test is not None
        assert self.y_test is not None
        return replace(self, X=self.X_test, y=self.y_test)


def load(
    source: str | os.PathLike[str],
    task: str,
    *,
    samples: int | None = None,
    features: int | None = None,
    intercept: bool = False,
    scale: bool | None = None,
    seed: int = 0,
    target: str | None = None,
    test: float | str | None = None,
) -> DataSet:
    """Prepare a data set once, and map it into memory in all later calls.

    Raises `DataError` for arguments that do not fit. Warns if prepared data were damaged and were built again.

    Parameters
    ----------
    source
        A name: "synthetic", "synthetic_images", a set that scikit-learn ships ("digits", see `catalogue`),
        "openml:NAME" or "openml:NUMBER". Or the path of a folder of images, or of a file (.npy, .npz, .csv, .tsv,
        .csv.gz, .tsv.gz, .parquet, .svmlight, .libsvm, .svm, .bin). "prepared:KEY" is a folder of the cache, which
        ignores the other arguments. OpenML's categories become 0/1 columns after the numbers, most frequent first.
    task
        "regression", "binary" or "multiclass".
    samples, features
        Number of rows (the first of the shuffled ones) and of columns. Default: all; synthetic 1000 and 20.
    intercept, scale
        Append a column of ones; standardise the columns (a constant one becomes 0). Default of `scale`: not synthetic.
    seed
        Seed that shuffles the rows, and draws the synthetic and the held-out samples.
    target
        Column of a .csv, .tsv or .parquet to learn. Default: the only one called target, label, class or y.
    test
        Samples to hold out: a share, a number of at least 2 (both stratified by class), or a file. Default: none.

    >>> data = load("synthetic", "regression", samples=100, features=5, intercept=True)
    >>> data.X.shape, data.y.shape, data.truth.shape
    ((100, 6), (100,), (6,))
    >>> float(abs(data.y - data.X @ data.truth).mean().round())
    1.0
    """
    source = os.fspath(source)
    if source.startswith(PREPARED_PREFIX):  # a prepared folder ignores all other options
        return reopen(cache.root() / "data" / Path(source.removeprefix(PREPARED_PREFIX)).name)
    drawn = DRAWN.get(source)
    options = Options(
        source=source,
        task=known_task(task),
        samples=_size("samples", samples, drawn.samples if drawn else None),
        features=_size("features", features, drawn.features if drawn else None),
        intercept=bool(intercept),
        scale=source != SYNTHETIC.name if scale is None else bool(scale),
        seed=whole("seed", seed, 0),
        target=target,
        test=_test(test),
    )
    identity, table = locate(options)
    folder = cache.folder_for(options, identity)
    return _dataset(source, folder, cache.ensure(folder, lambda target: prepare(table(), options, target)))


def _size(field: str, wanted: int | None, default: int | None) -> int | None:
    return default if wanted is None else whole(field, wanted, 1)


def _test(value: object) -> float | str | None:
    """Check the option `test`, as far as possible without data."""
    if value is None or isinstance(value, str):
        return value
    check_test(value)
    return float(value)  # type: ignore[arg-type]


def reopen(folder: Path) -> DataSet:
    """Map a data set from the folder in which `load` prepared it, for other processes of the machine.

    Raises `DataError` if the folder is missing or damaged.

    >>> data = load("wine", "multiclass")
    >>> reopen(data.folder).digest == data.digest
    True
    """
    try:
        prepared = cache.open_folder(Path(folder))
    except cache.DamagedError as error:
        raise DataError(f"folder: {folder} is not an intact data set ({error}); call load again") from error
    return _dataset(prepared.meta["options"]["source"], Path(folder), prepared)


def _dataset(name: str, folder: Path, prepared: cache.Prepared) -> DataSet:
    meta, arrays = prepared.meta, prepared.arrays
    truth = arrays.get("truth")
    known = (meta["classes"], truth, folder, meta["digest"], meta["note"])
    info, image = catalogue().get(name), meta.get("image")
    if image is None and info is not None and arrays["X"].shape[1] == info.features:
        image = info.image
    held_out = (arrays.get("X_test"), arrays.get("y_test"))
    return DataSet(name, arrays["X"], arrays["y"], *known, *held_out, None if image is None else tuple(image))


def catalogue() -> dict[str, SourceInfo]:
    """List the sources that have a name, for menus: bundled ones first, then those to download.

    >>> [name for name, info in catalogue().items() if "regression" in info.tasks and info.bundled]
    ['synthetic', 'diabetes', 'digits']
    """
    return {**DRAWN, **BUNDLED, **openml.SOURCE_INFO}


def locate(options: Options) -> tuple[str, Callable[[], Table]]:
    """Return the identity of the source's content, and a function that reads its table."""
    source = options.source
    if options.target is not None and not isinstance(options.target, str):
        raise DataError(f"target: {options.target!r} is not text; give the name of a column")
    if options.target is not None and source in (*DRAWN, *BUNDLED):
        why = f"{options.target!r} names a column, and {source!r} has its own target; leave it empty"
        raise DataError(f"target: {why}")
    if source in DRAWN:
        _check_suits(options)
        check_drawn(options)
        return source, lambda: drawn_table(options)
    if source in BUNDLED:
        _check_suits(options)
        identity, read = source, partial(bundled_raw, source)
    elif source.startswith(openml.PREFIX):
        entry = openml.find(source)
        file = openml.placed_file(entry)
        placed = f":{content(file, options.target)}" if file else ""
        identity, read = f"openml:{entry.name}{placed}", partial(openml.read, entry, options.target)
    else:
        identity, read = _locate_file(source, options.target)
    if not isinstance(options.test, str):
        return identity, lambda: select(read(), options)
    with _of_test():
        also, read_test = _locate_file(options.test, options.target)
    return f"{identity}:test={also}", lambda: _with_test(read(), read_test, options)


@contextmanager
def _of_test() -> Iterator[None]:
    """Prefix errors about the held-out file with the field `test`."""
    try:
        yield
    except DataError as error:
        raise DataError("test: " + str(error).removeprefix("source: ")) from error


def _with_test(raw: Raw, read_test: Callable[[], Raw], options: Options) -> Table:
    """Read the held-out samples.

    A sparse file ends with its last used column, so missing columns of zeros are added.
    """
    with _of_test():
        test = read_test()
    narrow, take = test.features, test.take
    if ending(Path(str(options.test))) in SPARSE and narrow < raw.features:

        def padded(rows: Indices, width: int) -> Floats:
            found = take(rows, min(width, narrow))
            return np.pad(found, ((0, 0), (0, width - found.shape[1])))

        test = replace(test, take=padded, features=raw.features)
    return select(raw, options, test)


def _locate_file(source: str, target: str | None) -> tuple[str, partial[Raw]]:
    if "://" in source:
        raise DataError(f"source: {source!r} is an address; download it and give the file's path")
    try:
        path = path_of(source, "source").expanduser()
    except RuntimeError:  # for example, ~name without a user of that name
        why = f"{source!r} begins with no user's home folder; give a path"
        raise DataError(f"source: {why}") from None
    except SettingError as error:  # the path cannot be a file name
        raise DataError(str(error).replace("source = ", "source: there is no file ", 1)) from None
    if ending(path) not in READERS and not (source and path.exists()):
        raise DataError(_unknown(source))
    check_file(path)
    columns = Columns(target=target)
    return f"file:{path.name}:{content(path, target)}", partial(read_file, path, columns)


def _unknown(source: str) -> str:
    close = difflib.get_close_matches(source, catalogue(), n=1)
    hint = f"{close[0]!r} (the closest name), " if close else ""
    return (
        f"source: {source!r} is unknown; use {hint}one of {', '.join(catalogue())}, openml:NAME, "
        f"or the path of a file in {', '.join(READERS)}"
    )


def _check_suits(options: Options) -> None:
    """Raise `DataError` for a task that does not suit the target of a drawn or bundled set, before reading it."""
    info = catalogue()[options.source]
    if options.task not in info.tasks:
        why = f"has {info.classes} classes" if info.classes else "is a quantity"
        raise DataError(unsuited(options, why, *info.tasks))
