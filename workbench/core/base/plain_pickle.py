"""Read pickles of plain data without executing them: containers, numbers, text and bytes.

The standard reader of pickles calls any function that a file names. Here, only the instructions that make plain data
are applied. Instructions that name, build or call an object raise an error, as do the text instructions of protocols 0
and 1. A file cannot take more memory than its values. Keys are text, numbers, bytes or None, because hashing deeply
nested keys would exceed the stack.
"""

import pickle
import pickletools
import struct
from collections.abc import Callable
from typing import Any

_BYTE, _SHORT, _SIGNED, _LENGTH, _LONG_LENGTH, _DOUBLE = map(
    struct.Struct, ("<B", "<H", "<i", "<I", "<Q", ">d")
)

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
    reader = _Reader(content)
    try:
        return reader.read()
    except (IndexError, KeyError, TypeError, struct.error):
        why = "is cut off" if reader.place >= len(content) else "is not a complete pickle"
        raise ValueError(f"{why} (byte {min(reader.place, len(content))})") from None


class _Reader:
    """State of the reader: position in the pickle, stack of values, positions of marks in the stack, and memo."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def read(self) -> Any:
        """Apply the instructions up to the end, and return the last value."""
        while (code := self.content[self.place]) != _STOP:
            self.place += 1
            handler = _HANDLERS.get(code)
            if handler is None:
                raise ValueError(self._refusal(code))
            handler(self)
        return self.pop()

    def _refusal(self, code: int) -> str:
        known = next((each for each in pickletools.opcodes if each.code == chr(code)), None)
        if known is None:
            return f"is not a complete pickle (byte {self.place - 1})"
        why = "only plain data are read, and nothing is executed"
        return f"has the instruction {known.name} at byte {self.place - 1}; {why}"

    def take(self, size: int) -> bytes:
        """Return the next bytes. Raises IndexError if the file ends before."""
        end = self.place + size
        if end > len(self.content) or size < 0:
            self.place = len(self.content)
            raise IndexError
        part = self.content[self.place : end]
        self.place = end
        return part

    def number(self, form: struct.Struct) -> Any:
        """Return the next number. `form`: its format, as in `struct`."""
        (found,) = form.unpack_from(self.content, self.place)
        self.place += form.size
        return found

    def pop(self) -> Any:
        """Remove and return the last value above the last mark."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise IndexError
        return self.stack.pop()

    def top(self, kind: type = object) -> Any:
        """Return the last value. Raises TypeError if it is not of this type."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0) or not isinstance(self.stack[-1], kind):
            raise TypeError
        return self.stack[-1]

    def items(self) -> list[Any]:
        """Remove and return the values above the last mark, and the mark."""
        place = self.marks.pop()
        items = self.stack[place:]
        del self.stack[place:]
        return items


def _pairs(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise IndexError
    return dict(zip(_keys(items[::2]), items[1::2], strict=True))


def _keys(items: list[Any]) -> list[Any]:
    """Return the items. Raises TypeError if one is not a number, text, bytes or None."""
    if not all(isinstance(item, _KEYS) for item in items):
        raise TypeError
    return items


def _push(value: Callable[[_Reader], Any]) -> Callable[[_Reader], None]:
    """Return the handler of an instruction that adds a value to the stack."""

    def handler(reader: _Reader) -> None:
        reader.stack.append(value(reader))

    return handler


def _text(form: struct.Struct) -> Callable[[_Reader], None]:
    return _push(lambda reader: str(reader.take(reader.number(form)), "utf-8", "surrogatepass"))


def _bytes(form: struct.Struct, kind: type = bytes) -> Callable[[_Reader], None]:
    return _push(lambda reader: kind(reader.take(reader.number(form))))


def _whole(form: struct.Struct) -> Callable[[_Reader], None]:
    return _push(lambda reader: int.from_bytes(reader.take(reader.number(form)), "little", signed=True))


def _tuple(size: int) -> Callable[[_Reader], None]:
    return _push(lambda reader: tuple([reader.pop() for _ in range(size)][::-1]))


def _skip(form: struct.Struct) -> Callable[[_Reader], None]:
    def handler(reader: _Reader) -> None:
        reader.number(form)

    return handler


def _remember(index: Callable[[_Reader], int]) -> Callable[[_Reader], None]:
    def handler(reader: _Reader) -> None:
        reader.memo[index(reader)] = reader.top()

    return handler


def _fill(kind: type, add: Callable[[Any, list[Any]], Any], size: int = 0) -> Callable[[_Reader], None]:
    """Return the handler of an instruction that fills a container with values above the mark, or with `size` values."""

    def handler(reader: _Reader) -> None:
        items = [reader.pop() for _ in range(size)][::-1] if size else reader.items()
        add(reader.top(kind), items)

    return handler


def _mark(reader: _Reader) -> None:
    reader.marks.append(len(reader.stack))


_STOP = pickle.STOP[0]
_HANDLERS: dict[int, Callable[[_Reader], None]] = {
    code[0]: handler
    for code, handler in {
        pickle.PROTO: _skip(_BYTE),
        pickle.FRAME: _skip(_LONG_LENGTH),
        pickle.NONE: _push(lambda _: None),
        pickle.NEWTRUE: _push(lambda _: True),
        pickle.NEWFALSE: _push(lambda _: False),
        pickle.BININT: _push(lambda reader: reader.number(_SIGNED)),
        pickle.BININT1: _push(lambda reader: reader.number(_BYTE)),
        pickle.BININT2: _push(lambda reader: reader.number(_SHORT)),
        pickle.LONG1: _whole(_BYTE),
        pickle.LONG4: _whole(_SIGNED),
        pickle.BINFLOAT: _push(lambda reader: reader.number(_DOUBLE)),
        pickle.BINUNICODE: _text(_LENGTH),
        pickle.SHORT_BINUNICODE: _text(_BYTE),
        pickle.BINUNICODE8: _text(_LONG_LENGTH),
        pickle.BINBYTES: _bytes(_LENGTH),
        pickle.SHORT_BINBYTES: _bytes(_BYTE),
        pickle.BINBYTES8: _bytes(_LONG_LENGTH),
        pickle.BYTEARRAY8: _bytes(_LONG_LENGTH, bytearray),
        pickle.EMPTY_DICT: _push(lambda _: {}),
        pickle.EMPTY_LIST: _push(lambda _: []),
        pickle.EMPTY_TUPLE: _push(lambda _: ()),
        pickle.EMPTY_SET: _push(lambda _: set()),
        pickle.MARK: _mark,
        pickle.TUPLE: _push(lambda reader: tuple(reader.items())),
        pickle.TUPLE1: _tuple(1),
        pickle.TUPLE2: _tuple(2),
        pickle.TUPLE3: _tuple(3),
        pickle.LIST: _push(_Reader.items),
        pickle.DICT: _push(lambda reader: _pairs(reader.items())),
        pickle.FROZENSET: _push(lambda reader: frozenset(_keys(reader.items()))),
        pickle.APPEND: _fill(list, list.extend, 1),
        pickle.APPENDS: _fill(list, list.extend),
        pickle.ADDITEMS: _fill(set, lambda found, items: found.update(_keys(items))),
        pickle.SETITEM: _fill(dict, lambda found, items: found.update(_pairs(items)), 2),
        pickle.SETITEMS: _fill(dict, lambda found, items: found.update(_pairs(items))),
        pickle.BINPUT: _remember(lambda reader: int(reader.number(_BYTE))),
        pickle.LONG_BINPUT: _remember(lambda reader: int(reader.number(_LENGTH))),
        pickle.MEMOIZE: _remember(lambda reader: len(reader.memo)),
        pickle.BINGET: _push(lambda reader: reader.memo[reader.number(_BYTE)]),
        pickle.LONG_BINGET: _push(lambda reader: reader.memo[reader.number(_LENGTH)]),
        pickle.POP: _Reader.pop,
        pickle.POP_MARK: _Reader.items,
        pickle.DUP: _push(_Reader.top),
    }.items()
}
