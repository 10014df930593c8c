"""Unsaved runs of an explorer, in a private folder that is removed with the explorer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from workbench.analysis.tables.about import keep
from workbench.core.trace.trace import Trace

PREFIX = "workbench-explorer-"  # of the private folder's name, which says nothing to a user


class SessionRuns:
    """Folder of the runs that were made since the explorer was opened.

    >>> import workbench as wb
    >>> session = SessionRuns()
    >>> trace = wb.run(wb.Experiment(scheme="UMW", workers=4, rounds=3))
    >>> session.add([trace]), session.add([trace]), [path.name for path in session.folder.iterdir()]
    (1, 0, ['1-umw'])
    """

    def __init__(self) -> None:
        self._known: list[Trace] = []
        # readable only for its owner, and removed together with this object
        self._folder = TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name)

    def add(self, traces: Sequence[Trace]) -> int:
        """Write the runs that are not in the folder yet. Return their number."""
        new = [trace for trace in traces if not any(trace is each for each in self._known)]
        for trace in new:
            self._known.append(trace)
            keep(trace, self.folder, f"{len(self._known)} {trace.label}")
        return len(new)
