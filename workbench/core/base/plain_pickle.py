"""Read pickles of plain data without executing them: containers, numbers, text and bytes.

The standard reader of pickles calls whatever a file names. Here, each instruction of the file is decoded by
`pickletools.genops` and applied to a list of values. Instructions that name, build or call an object raise an error.
"""

import pickletools
from collections.abc import Callable, Iterator
from typing import Any

_MARK = object()  # begins the items of a container on the stack
_LITERALS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": set,
}
_VALUES = {  # instructions whose argument is a value
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
_SIZES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_IGNORED = frozenset({"PROTO", "FRAME"})


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
    machine = _Machine()
    try:
        for instruction, argument, place in _instructions(content):
            if instruction == "STOP":
                return machine.pop()
            machine.apply(instruction, argument, place or 0)
    except (IndexError, KeyError, TypeError, AttributeError):
        raise ValueError("is not a complete pickle: it uses values that are not in it") from None
    raise ValueError("is cut off: it has no end")


def _instructions(content: bytes) -> Iterator[tuple[str, Any, int | None]]:
    try:
        for instruction, argument, place in pickletools.genops(content):
            yield instruction.name, argument, place
    except ValueError as error:
        raise ValueError(f"is not a complete pickle ({error})") from None


class _Machine:
    """Stack and memo of a pickle that is being read."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def pop(self) -> Any:
        if (value := self._stack.pop()) is _MARK:
            raise IndexError
        return value

    def apply(self, instruction: str, argument: Any, place: int) -> None:
        """Apply one instruction. Raises ValueError if it does more than to make plain data."""
        if instruction in _VALUES:
            self._stack.append(argument)
        elif instruction in _LITERALS:
            self._stack.append(_LITERALS[instruction])
        elif instruction in _EMPTY:
            self._stack.append(_EMPTY[instruction]())
        elif instruction in _SIZES:
            self._stack.append(tuple(reversed([self.pop() for _ in range(_SIZES[instruction])])))
        elif instruction == "MARK":
            self._stack.append(_MARK)
        elif instruction not in _IGNORED and not (
            self._contained(instruction) or self._kept(instruction, argument)
        ):
            why = "only plain data are read, and nothing is executed"
            raise ValueError(f"has the instruction {instruction} at byte {place}; {why}")

    def _contained(self, instruction: str) -> bool:
        """Apply an instruction that fills a container; return whether it is one."""
        match instruction:
            case "TUPLE" | "LIST" | "FROZENSET":
                kinds = {"TUPLE": tuple, "LIST": list, "FROZENSET": frozenset}
                self._stack.append(kinds[instruction](self._items()))
            case "DICT":
                self._stack.append(_pairs(self._items()))
            case "APPEND":
                value = self.pop()
                self._top(list).append(value)
            case "APPENDS":
                items = self._items()
                self._top(list).extend(items)
            case "ADDITEMS":
                items = self._items()
                self._top(set).update(items)
            case "SETITEM":
                value, key = self.pop(), self.pop()
                self._top(dict)[key] = value
            case "SETITEMS":
                items = self._items()
                self._top(dict).update(_pairs(items))
            case _:
                return False
        return True

    def _kept(self, instruction: str, argument: Any) -> bool:
        """Apply an instruction of the memo or the stack; return whether it is one."""
        match instruction:
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                self._memo[argument] = self._top()
            case "MEMOIZE":
                self._memo[len(self._memo)] = self._top()
            case "GET" | "BINGET" | "LONG_BINGET":
                self._stack.append(self._memo[argument])
            case "POP":
                self._stack.pop()
            case "POP_MARK":
                self._items()
            case "DUP":
                self._stack.append(self._top())
            case _:
                return False
        return True

    def _top(self, kind: type = object) -> Any:
        value = self._stack[-1]
        if value is _MARK or not isinstance(value, kind):
            raise TypeError
        return value

    def _items(self) -> list[Any]:
        """Remove and return the values above the last mark, and the mark."""
        place = next((i for i in range(len(self._stack) - 1, -1, -1) if self._stack[i] is _MARK), None)
        if place is None:
            raise IndexError
        items = self._stack[place + 1 :]
        del self._stack[place:]
        return items


def _pairs(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise IndexError
    return dict(zip(items[::2], items[1::2], strict=True))
