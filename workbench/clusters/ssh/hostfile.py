"""Host files as Open MPI has them: a name a line, with ``slots=4`` or ``slots 4`` behind it; ``#`` begins a comment."""

import re
from pathlib import Path

from workbench.base.settings import SettingError

_LINE = re.compile(r"(?P<host>\S+)(?:\s+slots\s*=?\s*(?P<slots>\d+))?")


def read(path: Path) -> list[dict[str, str | int]]:
    r"""Hosts and slots of a file; a host that stands there several times has as many slots.

    Raises `SettingError` for a file that cannot be read, or a line that is none of these.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "hosts"
    >>> _ = file.write_text("# mine\nnode1 slots=4\nnode2\nnode2\n")
    >>> read(file)
    [{'host': 'node1', 'slots': 4}, {'host': 'node2', 'slots': 2}]
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"hostfile = {str(path)!r}: cannot be read ({error})") from None
    slots: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        if (match := _LINE.fullmatch(text)) is None:
            raise SettingError(
                f"hostfile = {str(path)!r}: line {number} is {text!r}; write a name, perhaps with slots=4 behind it"
            )
        slots[match["host"]] = slots.get(match["host"], 0) + int(match["slots"] or 1)
    return [{"host": host, "slots": count} for host, count in slots.items()]
