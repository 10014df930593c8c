"""A progress bar with the time left, which shows itself only after a second."""

from __future__ import annotations

from typing import Any


class Bar:
    """Counts up to `total`; one that is not wanted costs nothing."""

    def __init__(self, what: str, unit: str, total: int, wanted: bool) -> None:
        self.bar: Any = None
        if wanted:
            from tqdm.auto import tqdm

            self.bar = tqdm(total=total, desc=what, unit=unit, delay=1)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def update(self, done: int) -> None:
        """Say how many are done."""
        if self.bar is not None:
            self.bar.update(done - self.bar.n)

    def note(self, text: str) -> None:
        """Say beside the bar what is going on."""
        if self.bar is not None and text != self.bar.postfix:
            self.bar.set_postfix_str(text)
