"""Undo and redo of settings, and reset to the initial ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# s within which changes of the same fields, such as those of a moving slider, count as one change
MERGED_S = 2.0
MAX_STEPS = 200


@dataclass(frozen=True)
class State:
    """Texts of all fields of the settings: of the schemes in order, and of the other forms by name."""

    schemes: tuple[tuple[str, dict[str, str]], ...]
    forms: dict[str, dict[str, str]]


class Steps:
    """History of the settings. `read` returns the current state, and `write` restores one."""

    def __init__(self, read: Callable[[], State], write: Callable[[State], None]) -> None:
        self._read, self._write = read, write
        self._past: list[State] = []
        self._future: list[State] = []
        self._first = self._now = read()
        self._changed: frozenset[str] = frozenset()
        self._when = -MERGED_S

    def record(self) -> None:
        """Add the current state to the history, unless nothing has changed."""
        now, when = self._read(), time.monotonic()
        if now == self._now:
            return
        changed = frozenset(_names(self._now, now))
        if changed != self._changed or when - self._when > MERGED_S or self._future or not self._past:
            self._past = [*self._past, self._now][-MAX_STEPS:]
        self._now, self._changed, self._when = now, changed, when
        self._future.clear()

    def undo(self) -> None:
        """Restore the state before the last change."""
        self._go(self._past, self._future)

    def redo(self) -> None:
        """Restore the state that the last undo left."""
        self._go(self._future, self._past)

    def reset(self) -> None:
        """Restore the initial state, as a change that can be undone."""
        self.restore(self._first)

    def restore(self, state: State) -> None:
        """Restore a state, as a change that can be undone."""
        self._write(state)
        self._changed = frozenset()
        self.record()

    def last(self, wanted: Callable[[State], bool]) -> State | None:
        """Return the newest earlier state for which `wanted` is true, or None."""
        return next((state for state in reversed(self._past) if wanted(state)), None)

    @property
    def undoes(self) -> str:
        """Text about the change of an undo, or "" if there is nothing to undo."""
        return _difference(self._now, self._past[-1]) if self._past else ""

    @property
    def redoes(self) -> str:
        """Text about the change of a redo, or "" if there is nothing to redo."""
        return _difference(self._now, self._future[-1]) if self._future else ""

    def _go(self, to: list[State], back: list[State]) -> None:
        if to:
            back.append(self._now)
            self._now, self._changed = to.pop(), frozenset()
            self._write(self._now)


def _flat(state: State) -> dict[str, str]:
    shared = {f"{form} {name}": text for form, texts in state.forms.items() for name, text in texts.items()}
    own = {
        f"{scheme} {name}": text
        for i, (scheme, texts) in enumerate(state.schemes)
        for name, text in {**texts, f"({i})": scheme}.items()
    }
    return shared | own


def _names(a: State, b: State) -> Iterator[str]:
    """Return the fields in which two states differ, those of shared forms first."""
    one, other = _flat(a), _flat(b)
    return (name for name in {**one, **other} if one.get(name) != other.get(name))


def _difference(a: State, b: State) -> str:
    """Return how two states differ, as text: one field with both values, or the kind of the change."""
    one, other = _flat(a), _flat(b)
    if [name for name, _ in a.schemes] != [name for name, _ in b.schemes]:
        return (
            f"{len(a.schemes)} to {len(b.schemes)} schemes" if len(a.schemes) != len(b.schemes) else "schemes"
        )
    names = list(_names(a, b))
    if not names:
        return "nothing"
    if any(name.startswith("preset ") for name in names) and len(names) > 1:
        return f"preset {other['preset preset'] or 'left'}"
    name = names[0]
    return f"{name.partition(' ')[2].replace('_', ' ')} {one.get(name, '')} to {other.get(name, '')}"
