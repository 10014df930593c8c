"""A progress bar with the time left, which shows itself only after a second."""

from __future__ import annotations

import sys
import time
from typing import Any


class Bar:
    """Counts up to `total`; one that is not `wanted` costs nothing. None: wanted where somebody sees it.

    `done`: how many are done before it begins. `leave`: what it said last stays when it is over. `form`: as tqdm's
    `bar_format`.

    >>> with Bar("reading", "file", 3, wanted=False) as bar:
    ...     bar.update(1)
    """

    def __init__(
        self,
        what: str,
        unit: str,
        total: float,
        wanted: bool | None,
        done: int = 0,
        leave: bool = True,
        form: str | None = None,
    ) -> None:
        self.bar: Any = None
        notebook = _in_notebook()
        if wanted or (wanted is None and (notebook or sys.stderr.isatty())):
            from tqdm import tqdm

            where: dict[str, Any] = {"file": _Output(), "ncols": 90, "ascii": False} if notebook else {}
            options: dict[str, Any] = {"desc": what, "unit": unit, "bar_format": form}
            self.bar = tqdm(total=total, initial=done, leave=leave, delay=1, **options, **where)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """It is over."""
        if self.bar is not None:
            self.bar.close()

    def update(self, done: float) -> None:
        """Say how many are done."""
        if self.bar is not None:
            self.bar.update(done - self.bar.n)

    def note(self, text: str) -> None:
        """Say beside the bar what is going on."""
        if self.bar is not None and text != self.bar.postfix:
            late = time.time() >= self.bar.start_t + self.bar.delay
            self.bar.set_postfix_str(text, refresh=late)
            if late:  # else tqdm takes it for never shown, and leaves it as it is when all is done
                self.bar.last_print_t = time.time()


class _Output:
    """Stands for a terminal in a notebook: one output of plain text, which is replaced.

    A widget would leave an error behind, or a bar that stands at 0, where a reader has no kernel.
    """

    def __init__(self) -> None:
        self.handle: Any = None

    def write(self, text: str) -> None:
        """Show what follows a carriage return; all else moves a terminal's cursor."""
        if not text.startswith("\r"):
            return
        from IPython.display import display

        shown = {"text/plain": text.strip()}
        if self.handle is None:
            self.handle = display(shown, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self.handle.update(shown, raw=True)

    def flush(self) -> None:
        """All is shown at once."""


def _in_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")
