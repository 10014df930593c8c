"""From the name of a source to its content."""

import difflib
from collections.abc import Callable
from pathlib import Path

from . import openml
from .files import READERS, check_file, content, read_file
from .frames import Columns
from .options import DataError, Options, unsuited
from .sources import BUNDLED, SYNTHETIC, SourceInfo, bundled_table, synthetic_table
from .table import Table, select


def catalogue() -> dict[str, SourceInfo]:
    """List the sources that have a name, for menus: bundled ones first, then those to download.

    >>> [name for name, info in catalogue().items() if "regression" in info.tasks and info.bundled]
    ['synthetic', 'diabetes', 'digits']
    """
    return {SYNTHETIC.name: SYNTHETIC, **BUNDLED, **openml.INFO}


def locate(options: Options) -> tuple[str, Callable[[], Table]]:
    """Say what the source's content is, without reading more than needed, and how to get its table."""
    source = options.source
    if options.target is not None and not isinstance(options.target, str):
        raise DataError(f"target: {options.target!r} is no text; give the name of a column")
    if options.target is not None and source in (SYNTHETIC.name, *BUNDLED):
        why = f"{options.target!r} names a column, and {source!r} has its own target; leave it empty"
        raise DataError(f"target: {why}")
    if source == SYNTHETIC.name:
        return source, lambda: synthetic_table(options)
    if source in BUNDLED:
        _check_suits(options)
        return source, lambda: bundled_table(options)
    if source.startswith(openml.PREFIX):
        entry = openml.find(source)
        file = openml.placed_file(entry)
        placed = f":{content(file, options.target)}" if file else ""
        return f"openml:{entry.name}{placed}", lambda: select(openml.read(entry, options.target), options)
    return _locate_file(options)


def _locate_file(options: Options) -> tuple[str, Callable[[], Table]]:
    if "://" in options.source:
        raise DataError(f"source: {options.source!r} is an address; download it and give the file's path")
    try:
        path = Path(options.source).expanduser()
    except RuntimeError:  # ~name of nobody
        why = f"{options.source!r} begins with no user's home folder; give a path"
        raise DataError(f"source: {why}") from None
    if path.suffix.lower() not in READERS and not path.exists():
        raise DataError(_unknown(options.source))
    check_file(path)
    columns = Columns(target=options.target)
    return f"file:{path.name}:{content(path, options.target)}", lambda: select(
        read_file(path, columns), options
    )


def _unknown(source: str) -> str:
    close = difflib.get_close_matches(source, catalogue(), n=1)
    hint = f"{close[0]!r} (the closest name), " if close else ""
    return (
        f"source: {source!r} is unknown; use {hint}one of {', '.join(catalogue())}, openml:NAME, "
        f"or the path of a file in {', '.join(READERS)}"
    )


def _check_suits(options: Options) -> None:
    """Refuse a bundled set for a task that its target does not suit, before anything is read."""
    info = BUNDLED[options.source]
    if options.task not in info.tasks:
        why = f"has {info.classes} classes" if info.classes else "is a quantity"
        raise DataError(unsuited(options, why, *info.tasks))
