"""Straggler reports of NVIDIA's resiliency extension: logs that print them, or reports as JSON.

A report has a score for each rank: the time of the fastest rank divided by this rank's time. Each report counts as a
step. The reciprocal of a score is the rank's time in units of the fastest rank's time.
"""

import ast
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.analysis.recordings.fields import Fields
from workbench.analysis.recordings.sources import Source
from workbench.core.base.reading import head_of, read_text
from workbench.core.base.settings import SettingError
from workbench.core.base.tables import number as number_of

HEAD_BYTES = 2**20  # bytes of a file that are searched for a report
MAX_QUOTED = 60  # max characters of a value in an error
UNITS = "times the fastest rank"
UNLISTED = "ranks that a report does not list, which are taken to be as slow as they can be"
RELATIVE, INDIVIDUAL = "gpu_relative_perf_scores", "gpu_individual_perf_scores"

_HEAD = re.compile(rb"GPUs? (?:relative|individual) perf|[gG]pu_(?:relative|individual)_perf_scores")
_PRINTED = re.compile(r"GPUs? (?P<kind>relative|individual) perf(?: scores)?: ?(?P<scores>\{.*\})")
_TITLE = re.compile(r"GPU (?P<kind>relative|individual) performance:")
_LISTED = re.compile(r"Rank=(?P<rank>\d+) Node=(?P<node>\S+) Score=(?P<score>\S+)")
_PART = re.compile(r"(?P<which>Worst|Best) performing (?P<shown>\d+)/(?P<all>\d{1,6}) ranks")
_ENDINGS = (".log", ".txt", ".out", ".err", ".json", ".jsonl", ".ndjson", "")

Scores = dict[int, tuple[float, str]]  # score and node of each rank


def tells(path: Path) -> bool:
    """Return whether the file has a straggler report."""
    return path.suffix.lower() in _ENDINGS and bool(_HEAD.search(head_of(path, HEAD_BYTES)))


def read(path: Path) -> pd.DataFrame:
    """Return each rank's time in every report, in units of the fastest rank's time.

    Scores relative to other ranks are used, or if there are none, those relative to the rank's own past. Raises
    `SettingError` with the line that is wrong.
    """
    log = _Reports(path)
    reports = [*log]
    kind = "relative" if any(kind == "relative" for kind, _, _ in reports) else "individual"
    chosen = [(line, scores) for each, line, scores in reports if each == kind]
    rows = [
        (rank, node, step, 1 / score, line)
        for step, (line, scores) in enumerate(chosen)
        for rank, (score, node) in scores.items()
        if not math.isnan(score)
    ]
    if not rows:
        raise SettingError(f"path = {str(path)!r}: has no report with a score of a GPU")
    found = pd.DataFrame(rows, columns=["worker", "host", "step", "seconds", "line"]).set_index("line")
    past = ["differences between ranks, as scores compare each rank with its own past"] * (
        kind == "individual"
    )
    if left_out := [*past, *[UNLISTED] * log.is_partial]:
        found.attrs["left_out"] = "; ".join(left_out)
    nodes = found[found["host"] != ""].groupby("worker")["host"].first()
    return found.assign(host=found["worker"].map(nodes) if found["worker"].isin(nodes.index).all() else "")


class _Listed:
    """Report with one line per rank, for all ranks or only for the worst and the best ones."""

    def __init__(self, kind: str, line: int) -> None:
        self.kind, self.line = kind, line
        self.scores: Scores = {}
        self.ranks = 0  # number of ranks of the job; 0: as many as are listed
        # largest score among the listed worst ranks; unlisted ranks have at least this score
        self.slowest = math.nan

    def add(self, rank: int, score: float, node: str, is_worst: bool) -> None:
        """Add a rank that the report lists."""
        self.scores.setdefault(rank, (score, node))
        if is_worst and not score <= self.slowest:
            self.slowest = score

    def ended(self) -> tuple[str, int, Scores]:
        """Return kind, line and scores. Unlisted ranks are assumed to be as slow as possible."""
        unlisted = {rank: (self.slowest, "") for rank in range(self.ranks) if rank not in self.scores}
        return self.kind, self.line, self.scores | unlisted


class _Reports(Fields):
    """Reports of a file, in order: their kind, line and scores."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_partial = False

    def __iter__(self) -> Iterator[tuple[str, int, Scores]]:
        text = read_text(self.file, "replace")
        if self.file.suffix.lower() == ".json":
            whole = self.json(text, 1)
            for place, each in enumerate(whole if isinstance(whole, list) else [whole], 1):
                yield from self._of_json(place, each)
            return
        report, is_worst = None, True  # type: _Listed | None, bool
        for number, line in enumerate(text.split("\n"), 1):
            if report is not None and not (_LISTED.search(line) or _PART.search(line) or not line.strip()):
                yield report.ended()
                report = None
            if line.startswith("{") and "perf_scores" in line:
                yield from self._of_json(number, self.json(line, number))
            elif printed := _PRINTED.search(line):
                yield printed["kind"], number, self._of_dict(number, printed["scores"])
            elif title := _TITLE.search(line):
                report = _Listed(title["kind"], number)
            elif report is not None and (part := _PART.search(line)):
                report.ranks, is_worst = int(part["all"]), part["which"] == "Worst"
                self.is_partial |= report.ranks > 2 * int(part["shown"])
            elif report is not None and (match := _LISTED.search(line)):
                score = self._score(number, number_of(match["score"]) or match["score"])
                report.add(int(match["rank"]), score, match["node"], is_worst)
        if report is not None:
            yield report.ended()

    def _of_dict(self, number: int, text: str) -> Scores:
        plain = re.sub(r"\bnan\b", "None", text)
        try:
            found = ast.literal_eval(plain)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self.fault(f"{text[:MAX_QUOTED]!r}: is not a score for each rank", number)
        return self._scores(number, found, {})

    def _of_json(self, number: int, report: Any) -> Iterator[tuple[str, int, Scores]]:
        if not isinstance(report, dict):
            raise self.fault("is not a report with fields", number)
        nodes = report.get("rank_to_node") or {}
        for kind, name in (("relative", RELATIVE), ("individual", INDIVIDUAL)):
            if found := report.get(name):
                if not isinstance(found, dict) or not isinstance(nodes, dict):
                    raise self.fault(f"{name}: is not a score for each rank", number)
                yield kind, number, self._scores(number, found, nodes)

    def _scores(self, number: int, found: Mapping[Any, Any], nodes: Mapping[Any, Any]) -> Scores:
        scores: Scores = {}
        for rank, score in found.items():
            if not str(rank).isdigit():
                raise self.fault(f"rank = {str(rank)[:MAX_QUOTED]!r}: is not a whole number from 0", number)
            node = nodes.get(rank, nodes.get(str(rank), ""))
            scores[int(rank)] = self._score(number, math.nan if score is None else score), str(node)
        return scores

    def _score(self, number: int, score: Any) -> float:
        """Return a score, which must be above 0, or NaN if a rank has none. Raise `SettingError` otherwise."""
        if isinstance(score, bool) or not isinstance(score, int | float) or score <= 0 or math.isinf(score):
            raise self.fault(f"score = {str(score)[:MAX_QUOTED]}: is not a number above 0", number)
        return float(score)


SOURCE = Source(
    name="nvrx", title="reports of NVIDIA's resiliency extension", tells=tells, read=read, units=UNITS
)
