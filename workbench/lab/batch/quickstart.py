"""`make run`: the first notebook on the bundled data, from settings to pictures in `runs/`."""

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd

from workbench.core.base.settings import SettingError, path_of
from workbench.core.base.text import in_seconds
from workbench.core.trace.trace import Trace
from workbench.lab.figures.gallery.convergence import convergence
from workbench.lab.figures.inputs import check_traces
from workbench.lab.figures.save import NoBrowser, one_browser, save
from workbench.lab.figures.speedups import common_target, speedups
from workbench.lab.notebooks import execute, shipped

__all__ = ["common_target", "keep", "main", "story", "summary"]

NOTEBOOK = shipped("notebooks/01-quickstart.ipynb")


def summary(traces: Sequence[Trace], target: float | None = None, metric: str = "loss") -> pd.DataFrame:
    """Return for each scheme the seconds to the target, and their ratio to those of CR.

    `traces`: traces of one problem. `target`: by default, a value that all of them reach. `metric`: the column of
    `trace.rounds` that is compared.

    >>> import workbench as wb
    >>> traces = wb.compare(wb.baselines(2, 2, 1, rounds=5))
    >>> summary(traces)["scheme"].tolist()
    ['UMW', 'GC', 'RAR', 'SGD', 'CR']
    """
    return speedups(traces, common_target(traces, metric) if target is None else target, metric)


def story(traces: Sequence[Trace]) -> str:
    """Describe the results of the comparison as text (Markdown).

    `traces`: traces of one problem, one for each scheme.

    >>> import workbench as wb
    >>> traces = wb.compare(wb.baselines(2, 2, 1, rounds=5))
    >>> "All schemes reach" in story(traces)
    True
    """
    target = common_target(traces)
    seconds = {t.label: t.time_to(target) for t in traces}
    ranked = sorted(seconds, key=lambda name: seconds[name])
    lines = [f"All schemes reach a loss of **{target:.4g}**. The first to do so is **{ranked[0]}**."]
    if "CR" in seconds:
        others = ", ".join(f"{n} {seconds[n] / seconds['CR']:.2g}x" for n in ranked if n != "CR")
        lines.append(f"Time of the others over CodedReduce's: {others}; below 1 means faster than CR.")
    for trace in traces:
        per_round = trace.columns["time"][-1] / len(trace.columns["time"])
        load = trace.info["load"]
        late = int(np.sum(trace.columns["stale"]))
        lines.append(
            f"- **{trace.label}**: {in_seconds(per_round, 3)} a round; a worker goes through {100 * load:.2g} % of the"
            f" data; {late} answers came too late and were dropped."
        )
    return "\n".join([lines[0] + (" " + lines[1] if len(lines) > 1 else ""), "", *lines[2:]])


def keep(traces: Sequence[Trace], folder: str | Path) -> list[Path]:
    """Write a run folder per scheme and the convergence figure (HTML; PNG, SVG and PDF if a browser is found).

    `traces`: one per scheme; the folders are named after their labels.
    """
    target = path_of(folder, "folder")
    check_traces(traces)
    paths = [trace.save(target / trace.label) for trace in traces]
    figure = convergence(traces, target=common_target(traces))
    with one_browser():
        for suffix in (".html", ".png", ".svg", ".pdf"):
            path = target / f"convergence{suffix}"
            try:
                save(figure, path)
            except NoBrowser as error:
                print(error, file=sys.stderr)
                break
            paths.append(path)
    return paths


def __dir__() -> list[str]:
    return sorted(__all__)


def main(folder: Path | None = None) -> int:
    """Execute the notebook, then print the locations of the results and the summary.

    `folder`: by default `runs/quickstart-TIME`. Raises `SettingError` if the notebook does not exist.
    """
    if not NOTEBOOK.is_file():
        why = "not found; install the whole wheel, or run this from a clone"
        raise SettingError(f"notebook = {NOTEBOOK.name!r}: {why}")
    target = folder or Path("runs") / datetime.now().strftime("quickstart-%Y%m%d-%H%M%S")
    target.mkdir(parents=True)
    executed = target / NOTEBOOK.name
    execute(NOTEBOOK, executed, {"out": str(target.resolve())}, Path.cwd(), progress=True)
    traces = [Trace.load(path.parent) for path in target.glob("*/spec.json")]
    print("\nWritten:")
    for path in [executed, *sorted(p for p in target.iterdir() if p != executed)]:
        print(f"  {path}")
    print(f"\nSeconds (virtual clock) until the loss is {common_target(traces):.4g}:\n")
    print(summary(traces).sort_values("seconds").to_string(index=False, float_format=lambda x: f"{x:.3g}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
