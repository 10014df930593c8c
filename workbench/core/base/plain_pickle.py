"""Read pickles of plain data without executing them: containers, numbers, text and bytes.

The standard reader of pickles calls any function that a file names. Here, only the instructions that make plain data
are applied. Instructions that name, build or call an object raise an error, as do the text instructions of protocols 0
and 1. A file cannot take more memory than its values. Keys are text, numbers, bytes or None, because hashing deeply
nested keys would exceed the stack.
"""

import pickletools
from collections.abc import Callable
from typing import Any

_KEYS = (str, int, float, bytes, type(None))  # types of keys, and of members of sets


def parse_pickle(content: bytes) -> Any:
    """Return the plain data of a pickle. Raises ValueError with the reason, and the byte, for anything else.

    >>> import pickle
    >>> parse_pickle(pickle.dumps({"ranks": [0, 1], "state": ("done", None)}))
    {'ranks': [0, 1], 'state': ('done', None)}
    >>> parse_pickle(pickle.dumps(print))
    Traceback (most recent call last):
    ...
    ValueError: has the instruction STACK_GLOBAL at byte 30; only plain data are read, and nothing is executed
    """
    reader, place = _Reader(), 0
    try:
        for instruction, value, at in pickletools.genops(content):
            place = at or 0
            if instruction.name not in _HANDLERS:
                break
            _HANDLERS[instruction.name](reader, value)
        else:
            return reader.last(1)[0]
    except (IndexError, KeyError, TypeError, ValueError):
        raise ValueError(f"is not a complete pickle (byte {place})") from None
    why = "only plain data are read, and nothing is executed"
    raise ValueError(f"has the instruction {instruction.name} at byte {place}; {why}")


class _Reader:
    """State of the reader: stack of values, positions of marks in the stack, and memo."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def last(self, count: int) -> list[Any]:
        """Remove and return the last values. Raises IndexError if there are fewer above the last mark."""
        place = len(self.stack) - count
        if place < (self.marks[-1] if self.marks else 0):
            raise IndexError
        items = self.stack[place:]
        del self.stack[place:]
        return items

    def items(self) -> list[Any]:
        """Remove and return the values above the last mark, and the mark."""
        return self.last(len(self.stack) - self.marks.pop())

    def top(self, kind: type = object) -> Any:
        """Return the last value. Raises TypeError if it is not of this type."""
        if not isinstance(found := self.last(1)[0], kind):
            raise TypeError
        self.stack.append(found)
        return found


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(_keys(items[::2]), items[1::2], strict=True))


def _keys(items: list[Any]) -> list[Any]:
    """Return the items. Raises TypeError if one is not a number, text, bytes or None."""
    if not all(isinstance(item, _KEYS) for item in items):
        raise TypeError
    return items


_PLAIN = "BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES"
_HANDLERS: dict[str, Callable[[_Reader, Any], Any]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda reader, value: None),
    **dict.fromkeys(
        (*_PLAIN.split(), "BINBYTES8", "BYTEARRAY8"), lambda reader, value: reader.stack.append(value)
    ),
    "NONE": lambda reader, _: reader.stack.append(None),
    "NEWTRUE": lambda reader, _: reader.stack.append(True),
    "NEWFALSE": lambda reader, _: reader.stack.append(False),
    "EMPTY_DICT": lambda reader, _: reader.stack.append({}),
    "EMPTY_LIST": lambda reader, _: reader.stack.append([]),
    "EMPTY_TUPLE": lambda reader, _: reader.stack.append(()),
    "EMPTY_SET": lambda reader, _: reader.stack.append(set()),
    "MARK": lambda reader, _: reader.marks.append(len(reader.stack)),
    "TUPLE": lambda reader, _: reader.stack.append(tuple(reader.items())),
    "TUPLE1": lambda reader, _: reader.stack.append(tuple(reader.last(1))),
    "TUPLE2": lambda reader, _: reader.stack.append(tuple(reader.last(2))),
    "TUPLE3": lambda reader, _: reader.stack.append(tuple(reader.last(3))),
    "LIST": lambda reader, _: reader.stack.append(reader.items()),
    "DICT": lambda reader, _: reader.stack.append(_pairs(reader.items())),
    "FROZENSET": lambda reader, _: reader.stack.append(frozenset(_keys(reader.items()))),
    # arguments are evaluated before the container that they fill is the last value
    "APPEND": lambda reader, _: _fill(reader, list, list.extend, reader.last(1)),
    "APPENDS": lambda reader, _: _fill(reader, list, list.extend, reader.items()),
    "ADDITEMS": lambda reader, _: _fill(reader, set, set.update, _keys(reader.items())),
    "SETITEM": lambda reader, _: _fill(reader, dict, dict.update, _pairs(reader.last(2))),
    "SETITEMS": lambda reader, _: _fill(reader, dict, dict.update, _pairs(reader.items())),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), lambda reader, at: reader.memo.update({at: reader.top()})),
    "MEMOIZE": lambda reader, _: reader.memo.update({len(reader.memo): reader.top()}),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda reader, at: reader.stack.append(reader.memo[at])),
    "POP": lambda reader, _: reader.last(1),
    "POP_MARK": lambda reader, _: reader.items(),
    "DUP": lambda reader, _: reader.stack.append(reader.top()),
}


def _fill(reader: _Reader, kind: type, add: Callable[[Any, Any], None], items: Any) -> None:
    """Add items to the container that is the last value."""
    add(reader.top(kind), items)
