"""Checks of the fields of an object in a file, such as JSON. Errors name the file, the field and its value."""

import re
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.core.base.reading import parse_json
from workbench.core.base.settings import SettingError

MAX_QUOTED = 60  # max number of characters of a value in an error
_WHOLE = re.compile(r"\s*(-?[0-9]{1,20})(?:\.0*)?\s*")


class Fields:
    """Checks of the fields of one file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def json(self, content: str | bytes, line: int = 0) -> Any:
        """Parse JSON. Raises `SettingError` if it is damaged or too large. `line`: its line in the file."""
        try:
            return parse_json(content, self.file)
        except SettingError:
            raise
        except ValueError as error:
            raise self.fault(f"is not JSON ({error})", line) from None

    def object(self, value: Any, where: str) -> Mapping[Any, Any]:
        """Return the value of the field `where`, which must be an object."""
        if not isinstance(value, dict):
            raise self.wrong(where, value, "is not an object with fields")
        return value

    def whole(self, where: str, value: Any, least: int = 0) -> int:
        """Return the value of a field, a whole number from `least`, which may be written as text or as 3.0."""
        found = _WHOLE.fullmatch(str(value)[:MAX_QUOTED]) if isinstance(value, int | float | str) else None
        if found is None or int(found[1]) < least:
            raise self.wrong(where, value, f"is not a whole number from {least}")
        return int(found[1])

    def fault(self, why: str, line: int = 0) -> SettingError:
        """Return an error with the file, and with a line if it is given."""
        return SettingError(f"path = {str(self.file)!r}{f', line {line}' * bool(line)}: {why}")

    def wrong(self, where: str, value: Any, why: str) -> SettingError:
        """Return an error with the file, the field and its value."""
        return SettingError(f"path = {str(self.file)!r}, {where} = {shown(value)}: {why}")


def shown(value: Any) -> str:
    """Return a value as text for an error. A file may nest its values deeply, or use one value in many places."""
    return reprlib.repr(value)[:MAX_QUOTED]
