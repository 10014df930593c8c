"""Progress bar with the remaining time, which is shown only after a second."""

from __future__ import annotations

import sys
import time
from typing import Any


class Bar:
    """Progress bar up to `total`.

    `wanted`: whether the bar is shown; None: only in a notebook or a terminal. `done`: number of steps done before.
    `leave`: keep the last state visible at the end. `form`: `bar_format` of tqdm.

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
        """Close the bar."""
        if self.bar is not None:
            self.bar.close()

    def update(self, done: float) -> None:
        """Set the number of steps that are done."""
        if self.bar is not None:
            self.bar.update(done - self.bar.n)

    def note(self, text: str) -> None:
        """Show a text beside the bar."""
        if self.bar is not None and text != self.bar.postfix:
            late = time.time() >= self.bar.start_t + self.bar.delay
            self.bar.set_postfix_str(text, refresh=late)
            if late:  # the bar was drawn, so its end is drawn as well
                self.bar.last_print_t = time.time()


class _Output:
    """Plain text output for tqdm in a notebook, in place of a terminal. Each line replaces the line before.

    A widget would be shown as an error, or as a bar at 0, to readers without a kernel.
    """

    def __init__(self) -> None:
        self.handle: Any = None

    def write(self, text: str) -> None:
        """Show text that begins with a carriage return.

        Other text is ignored, because it moves the cursor of a terminal.
        """
        if not text.startswith("\r"):
            return
        from IPython.display import display

        shown = {"text/plain": text.strip()}
        if self.handle is None:
            self.handle = display(shown, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self.handle.update(shown, raw=True)

    def flush(self) -> None:
        """Do nothing, because all text is shown at once."""


def _in_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")
