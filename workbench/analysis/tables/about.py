"""User's notes on a run: its name, a note, tags, and whether it is archived. They are kept only in its folder."""

import re
import shutil
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from workbench.analysis.tables.status import remains, taken
from workbench.core.base.files import temporary_name, write_json
from workbench.core.base.settings import SettingError, path_of
from workbench.core.base.text import read_json
from workbench.core.trace.layout import ABOUT, STATUS
from workbench.core.trace.trace import Trace


@dataclass(frozen=True)
class RunNotes:
    """Notes on a run; `when`: ISO 8601, local time."""

    name: str = ""
    note: str = ""
    tags: tuple[str, ...] = ()
    when: str = ""
    archived: bool = False

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the notes in a run folder. Missing or invalid ones are left out, so that the run is shown anyway."""
        try:
            found = read_json(folder / ABOUT)
        except (OSError, SettingError):
            return cls()
        texts = {name: str(found.get(name) or "") for name in ("name", "note", "when")}
        tags = found.get("tags")
        listed = tuple(str(tag) for tag in tags) if isinstance(tags, list) else ()
        return cls(**texts, tags=listed, archived=found.get("archived") is True)


def describe(folder: Path, **fields: Any) -> RunNotes:
    """Write notes on a run atomically. Omitted notes do not change, and neither does the name of the folder.

    Raises `SettingError` for an invalid name, and if the folder does not exist.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = describe(folder, name="First", tags=["tree "])
    >>> describe(folder, note="good", archived=True)
    RunNotes(name='First', note='good', tags=('tree',), when='', archived=True)
    """
    if not folder.is_dir():
        raise SettingError(f"folder = {str(folder)!r}: no longer exists; read the table again")
    if "name" in fields:
        slug(fields["name"])
    made: dict[str, Any] = {k: v.strip() if isinstance(v, str) else v for k, v in fields.items()}
    made |= {"tags": tidy(fields["tags"])} if "tags" in fields else {}
    found = replace(RunNotes.read(folder), **made)
    write_json(folder / ABOUT, asdict(found), indent=2)
    return found


def tidy(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the tags without blanks around them, each once. A comma separates tags.

    >>> tidy(["tree ", "", "x, y", "x"])
    ('tree', 'x', 'y')
    """
    return tuple(dict.fromkeys(word.strip() for tag in tags for word in tag.split(",") if word.strip()))


def keep(trace: Trace, root: str | Path, name: str, note: str = "", tags: Sequence[str] = ()) -> Path:
    """Write a run folder below `root`. Its folder name is made from `name`.

    Raises `SettingError` if the name is empty or a run of that name exists.

    >>> import tempfile, workbench as wb
    >>> root = tempfile.mkdtemp()
    >>> keep(wb.run(wb.Experiment(rounds=3)), root, "First try", tags=["tree"]).name
    'first-try'
    >>> wb.runs(root).table[["name", "tags"]].values.tolist()
    [['First try', 'tree']]
    """
    folder = path_of(root, "folder") / slug(name)
    if folder.exists():
        raise SettingError(f"name = {name!r}: there is a run of that name already; choose another")
    trace.save(folder)
    now = datetime.now().isoformat(timespec="seconds")
    describe(folder, name=name, note=note, tags=tags, when=now)
    return folder


def slug(name: str) -> str:
    """Return a folder name, in letters of any script, at most 80 bytes. Raise `SettingError` if nothing is left.

    >>> slug("Größe: 2 Bäume"), slug("木 2")
    ('grosse-2-baume', '木-2')
    """
    apart = unicodedata.normalize("NFKD", name.casefold())  # accents become separate characters
    letters = "".join(c for c in apart if not unicodedata.combining(c))
    found = re.sub(r"[\W_]+", "-", letters).strip("-")
    if not found:
        raise SettingError(f"name = {name!r}: has no letter or digit; give the run a name")
    return found.encode()[:80].decode(errors="ignore")


def delete(folder: Path) -> None:
    """Remove a run folder, or what is left of one, permanently and atomically.

    Raises `SettingError` if it is not a run folder, if the run is in use, or if a sweep would run it again.
    """
    if (folder / STATUS).exists() or (folder.parent / STATUS).exists():
        why = "belongs to a sweep, which would run it again; delete the sweep's folder"
        raise SettingError(f"run = {folder.name!r}: {why}")
    if not (folder.is_dir() and remains(folder, [path.name for path in folder.iterdir()])):
        raise SettingError(f"folder = {str(folder)!r}: is no longer a run folder; nothing was deleted")
    if taken(folder):
        raise SettingError(f"folder = {str(folder)!r}: this run is in use; stop it first")
    if folder.is_symlink():
        why = f"is a link to {folder.resolve()}, where others may look for it; delete the link, or the folder there"
        raise SettingError(f"folder = {str(folder)!r}: {why}")
    doomed = temporary_name(folder)
    # so that the run disappears at once, even if removing the files is slow or interrupted
    folder.rename(doomed)
    shutil.rmtree(doomed)
