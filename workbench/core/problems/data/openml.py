"""Data sets of OpenML, downloaded by scikit-learn or placed by hand."""

import re
import warnings
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any

from workbench.core.base.tables import ending

from . import cache
from .files import READERS, read_file
from .frames import TARGET_NAMES, Columns, features_raw
from .options import DataError
from .sources import BINARY, NUMBERED, SourceInfo
from .table import Raw

PREFIX = "openml:"


_ENCODED = Columns(encode=True)
_BOSTON = Columns(targets=(*TARGET_NAMES, "medv"), encode=True)
# features of the set amazon are numbers of departments and roles; its original file calls the target ACTION
_AMAZON = Columns(targets=("target", "action"), encode=True, categorical=True)


@dataclass(frozen=True)
class OpenMLSet:
    """Data set as it is listed on OpenML.

    `version`: None for the oldest active one. `number`: whether the set is identified by a number and not by a name.
    `plain`: whether a column's values decide if it is read as numbers, and not OpenML's type of the column.
    """

    name: str
    version: int | None = None
    aliases: tuple[str, ...] = ()
    columns: Columns = _ENCODED
    number: int | None = None
    plain: bool = False


KNOWN_SETS = (
    OpenMLSet("gisette", 1, plain=True),
    OpenMLSet("mnist_784", 1, ("mnist",), plain=True),
    OpenMLSet("Amazon_employee_access", 1, ("amazon", "amazon_employee"), _AMAZON, plain=True),
    OpenMLSet("CIFAR_10", 1, ("cifar10", "cifar-10", "cifar"), plain=True),
    OpenMLSet("boston", 1, ("boston_housing",), _BOSTON, plain=True),
)

IMAGES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}  # channels, rows and columns
SOURCE_INFO = {
    f"openml:{name}": SourceInfo(
        f"openml:{name}", samples, features, tasks, classes, note, bundled=False, image=IMAGES.get(name)
    )
    for name, samples, features, tasks, classes, note in (
        ("gisette", 7000, 5000, BINARY, 2, "GISETTE: the digits 4 and 9 with probe features (NIPS 2003)."),
        ("mnist", 70000, 784, NUMBERED, 10, "MNIST: handwritten digits of 28 x 28 pixels."),
        ("amazon", 32769, 9, BINARY, 2, "Amazon Employee Access: 9 categories, some 15 600 0/1 columns."),
        ("cifar10", 60000, 3072, NUMBERED, 10, "CIFAR-10: colour photographs of 32 x 32 pixels."),
        ("boston", 506, 13, ("regression",), 0, "Boston house prices of 1978, in $1000."),
    )
}


def find(source: str) -> OpenMLSet:
    """Parse "openml:NAME" or "openml:NUMBER".

    Raises `DataError` if there is no name, or an impossible one.
    """
    name = source.removeprefix(PREFIX).strip()
    if not re.fullmatch(r"[\w.,()-]+", name, flags=re.ASCII):
        raise DataError(
            f"source: {source!r} is not the name of an OpenML data set; write for example 'openml:gisette'"
        )
    if name.isdecimal():
        return OpenMLSet(name, number=int(name))
    known = (entry for entry in KNOWN_SETS if name.lower() in (entry.name.lower(), *entry.aliases))
    return next(known, OpenMLSet(name))


def placed_file(entry: OpenMLSet) -> Path | None:
    """Return the file that the user has placed by hand, or None. With several, the first ending in `READERS` counts."""
    wanted = (entry.name.lower(), *entry.aliases)
    folder = cache.root() / "openml"
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    fitting = [
        file
        for file in files
        if (kind := ending(file)) in READERS and file.name.lower().removesuffix(kind) in wanted
    ]
    return min(fitting, key=lambda file: list(READERS).index(ending(file)), default=None)


def read(entry: OpenMLSet, target: str | None = None) -> Raw:
    """Read the placed file, or else the data set that scikit-learn downloads into the cache of this package.

    `target` is the column of a placed file; OpenML's own files have a fixed target. Raises `DataError` without a file
    and a network, for an unknown data set, or for another target.
    """
    file = placed_file(entry)
    if file is None and target is not None:
        why = f"{target!r} names a column, and 'openml:{entry.name}' has its own target; leave it empty"
        raise DataError(f"target: {why}")
    return read_file(file, replace(entry.columns, target=target)) if file else _raw(_fetch(entry), entry)


def _fetch(entry: OpenMLSet) -> Any:
    """Download, or read from scikit-learn's cache inside ours. Errors contain what the user can do."""
    try:
        with warnings.catch_warnings():
            # the error of this module has more details
            warnings.filterwarnings("ignore", message="A network error occurred")
            warnings.filterwarnings("ignore", message="Invalid cache, redownloading")  # see _parsed
            return _parsed(entry)
    except (OSError, HTTPException) as error:
        raise DataError(_by_hand(entry, f"could not be downloaded ({error})")) from error
    except ValueError as error:
        raise DataError(_by_hand(entry, f"was not found or not understood ({error})")) from error


def _parsed(entry: OpenMLSet) -> Any:
    from sklearn.datasets import fetch_openml

    common = {"data_home": cache.root(), "n_retries": 1, "delay": 0.2}
    if entry.number is not None:
        common["data_id"] = entry.number
    else:
        common |= {"name": entry.name, "version": entry.version or "active"}
    if entry.plain:
        return fetch_openml(**common, read_csv_kwargs={"dtype": None})
    try:
        return fetch_openml(**common)
    except TypeError:
        # With pandas 3.1, scikit-learn up to 1.9.1 fails on categories that look like numbers. Its older parser is
        # slower and does not.
        return fetch_openml(**common, parser="liac-arff")


def _by_hand(entry: OpenMLSet, why: str) -> str:
    place = cache.root() / "openml" / entry.name
    others = ", ".join(ending for ending in READERS if ending != ".csv")
    *names, last = entry.columns.targets
    targets = f"{', '.join(names)} or {last}" if names else last
    return (
        f"source: 'openml:{entry.name}' {why}; place it by hand as {place}.csv (or {others}), "
        f"the target in a column called {targets}"
    )


def _raw(bunch: Any, entry: OpenMLSet) -> Raw:
    """Convert the result of scikit-learn: a frame, or a sparse matrix."""
    import pandas as pd

    note = f"OpenML data set {bunch.details['name']}, version {bunch.details['version']}."
    X, y = bunch.data, bunch.target
    if y is None or getattr(y, "ndim", 1) != 1:
        raise DataError(_by_hand(entry, "has no single target column"))
    if isinstance(X, pd.DataFrame):
        return features_raw(X, y, entry.name, note, entry.columns)
    return Raw(lambda rows, width: X[rows][:, :width].toarray(), X.shape[1], y, note)
