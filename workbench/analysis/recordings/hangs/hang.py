"""Statement of a hang: which ranks had not entered which collective operation, and which ranks the others wait for."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from workbench.analysis.recordings.hangs.dumps import Group, Operation, read_dumps
from workbench.analysis.recordings.hangs.two_runs import two_runs
from workbench.analysis.recordings.hangs.waits import Job, Unended, Wait, listed
from workbench.analysis.recordings.verdict import Fact, card
from workbench.core.base.settings import SettingError
from workbench.core.base.text import upper

MAX_LISTED = 8  # max number of operations that the text lists
CAUSE_LABELS = {  # short names of the kinds of causes, for the card
    "stopped": "in no operation",
    "no dump": "left no dump",
    "end not seen": "does not see that its operation has ended",
    "inside": "in an operation that does not end",
    "ring": "wait for each other",
}
ADVICE = {
    "stopped": "look at the log and the stack of {}; py-spy dump shows the line at which its program is",
    "no dump": "look whether the process of {} has ended, and at its log",
    "end not seen": "look at the GPU of {}, and at the thread that watches it",
    "inside": "look at the network between {}, and at their GPUs",
    "ring": "call the operations in the same order on {}",
}


class HangCause(NamedTuple):
    """Ranks for which the others wait, and the reason.

    `what`: "stopped" (outside of collective operations), "no dump", "end not seen" (its GPU, or the thread that
    watches it), "inside" (all ranks of an operation are in it), or "ring" (the ranks wait for each other).
    """

    ranks: tuple[int, ...]
    what: str
    why: str

    def __str__(self) -> str:
        return f"{listed(self.ranks)}: {self.why}"


@dataclass(frozen=True)
class Hang:
    """Findings in the flight recorder dumps of a job.

    `ranks`: number of ranks that the dumps name. `waiting`: ranks with an operation that has not ended. `causes`: the
    ranks for which they wait. `unended`: operations that have not ended, with the ranks that had not entered them.
    """

    name: str
    ranks: int
    waiting: tuple[int, ...]
    causes: tuple[HangCause, ...]
    unended: tuple[Unended, ...]
    silent: tuple[int, ...] = ()

    @classmethod
    def of(cls, path: Path) -> Self:
        """Read the dumps of a folder, or one dump. Raise `SettingError` with the file that is wrong."""
        job = Job(read_dumps(path))
        if why := two_runs(job):
            raise SettingError(f"path = {str(path)!r}: {why}; give the dumps of one run")
        waits = job.waits
        waiting = tuple(rank for rank, wait in waits.items() if wait.operation is not None)
        return cls(
            name=(path.name or path.resolve().name).split(".")[0],
            ranks=len(job.ranks),
            waiting=waiting,
            causes=tuple(_causes(job)),
            unended=tuple(job.unended),
            silent=job.silent,
        )

    @property
    def culprits(self) -> tuple[int, ...]:
        """Ranks for which the others wait, without repetition."""
        return tuple(sorted({rank for cause in self.causes for rank in cause.ranks}))

    @property
    def missing(self) -> dict[int, tuple[Unended, ...]]:
        """The unended operations that each rank had not entered, by rank."""
        ranks = sorted({rank for each in self.unended for rank in each.missing})
        return {rank: tuple(each for each in self.unended if rank in each.missing) for rank in ranks}

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        return self.card()

    def card(self) -> str:
        """Return the hang as HTML: for which ranks the others wait, since which operation, and what to do."""
        return card(self.headline, self.facts, self.advice, [("All that was found", str(self))])

    @property
    def headline(self) -> str:
        """Result in one sentence."""
        if not self.waiting:
            return f"No hang: every operation of {self.ranks} ranks has ended"
        if not self.causes:
            return f"{len(self.waiting)} of {self.ranks} ranks wait; the dumps do not show for which"
        who = listed(self.culprits)
        ring = all(cause.what in ("ring", "inside") for cause in self.causes)
        return f"The job hangs in operations of {who}" if ring else f"The job waits for {who}"

    @property
    def facts(self) -> list[Fact]:
        """Facts of the card: the ranks that the others wait for, the waiting ones, and the first operation."""
        waiting = Fact("Waiting", f"{len(self.waiting)} of {self.ranks} ranks", listed(self.waiting))
        if not self.waiting:
            return [waiting._replace(note="")]
        labels = dict.fromkeys(CAUSE_LABELS[cause.what] for cause in self.causes)
        who = Fact("Who", upper(listed(self.culprits)), ", ".join(labels))
        first = next((each for each in self.unended if each.missing or each.names), None)
        where = []
        if first is not None:
            called = f"{first.name.rpartition(':')[2]} {first.number}"
            where = [Fact("Since", called, f"{listed(first.entered)} entered")]
        return [*([who] if self.culprits else []), waiting, *where]

    @property
    def advice(self) -> str:
        """Advice in one sentence."""
        texts = dict.fromkeys(ADVICE[cause.what].format(listed(cause.ranks)) for cause in self.causes)
        return "; ".join(texts) or ("nothing" if not self.waiting else "collect the dumps of all ranks")

    def _lines(self) -> Iterator[str]:
        if not self.waiting:
            yield f"{self.name}: no hang; every operation in the dumps of {self.ranks} ranks has ended"
        else:
            yield (
                f"{self.name}: a hang; {len(self.waiting)} of {self.ranks} ranks wait in operations that have not ended"
            )
        yield from map(str, self.causes)
        first = [each for each in _first_of_group(self.unended) if each.missing or each.silent or each.names]
        for each in first[:MAX_LISTED]:
            yield _sentence(each)
        if len(first) > MAX_LISTED:
            yield f"and {len(first) - MAX_LISTED} more process groups"
        if self.silent:
            yield f"left out: {listed(self.silent)}, without a dump"


def _first_of_group(unended: tuple[Unended, ...]) -> Iterator[Unended]:
    """Yield for each process group the first operation that some ranks had not entered, else its first operation."""
    groups: dict[Group, list[Unended]] = {}
    for each in unended:
        groups.setdefault(each.group, []).append(each)
    for some in groups.values():
        yield next((each for each in some if each.missing or each.silent or each.names), some[0])


def _sentence(each: Unended) -> str:
    """Return which ranks had not entered an operation, as text."""
    text = f"{_named(each.name, each.number, each.group, each.description)}: {listed(each.entered)} entered"
    if each.missing:
        text += f", {listed(each.missing)} had not"
    if each.silent:
        text += f", {listed(each.silent)} left no dump"
    if each.names:
        text += "; they call different operations: " + ", ".join(
            f"{name} ({listed(ranks)})" for name, ranks in each.names
        )
    return text


def _named(name: str, number: int, group: Group, description: str) -> str:
    """Return the name of an operation with its number and its process group."""
    shown = f" ({description})" if description and description != "undefined" else ""
    return f"{name.rpartition(':')[2]} {number} of process group {group.name}{shown}"


def _causes(job: Job) -> Iterator[HangCause]:
    ends, rings = job.causes()
    inside: dict[tuple[str, Group | None], list[int]] = {}
    for rank in ends:
        wait = job.waits.get(rank)
        if wait is None:
            yield HangCause(
                (rank,), "no dump", f"{_others(job, rank)} it, and its dump is missing; has it ended?"
            )
        elif wait.operation is None:
            yield HangCause((rank,), "stopped", _stopped(job, rank))
        elif wait.own:
            yield HangCause((rank,), "end not seen", _end_not_seen(job, rank, wait))
        else:
            inside.setdefault((_place(job, wait), wait.group), []).append(rank)
    for (where, _), ranks in inside.items():
        why = "all ranks of it have entered it, and it does not end; is it the network, or the GPU of one of them?"
        yield HangCause(tuple(ranks), "inside", f"in {where}; {why}")
    for ring in rings:
        yield HangCause(ring, "ring", _ring_text(job, ring))


def _stopped(job: Job, rank: int) -> str:
    """Return, as text, the operation that a rank outside of operations had not entered, and its last operation."""
    last = next(reversed(job.by_rank[rank].operations), None)
    seen = f"; its last operation was {last.name.rpartition(':')[2]}{_called(last)}" if last else ""
    missed = [each for each in job.unended if rank in each.missing]
    if not missed:
        return f"{_others(job, rank)} it, and it is in no operation; its program has stopped{seen}"
    first = missed[0]
    what = _named(first.name, first.number, first.group, first.description)
    more = f" and {len(missed) - 1} later ones" if len(missed) > 1 else ""
    return f"had not entered {what}{more}, and is in no other operation; its program has stopped{seen}"


def _called(operation: Operation) -> str:
    return f" in {operation.where}" if operation.where else ""


def _end_not_seen(job: Job, rank: int, wait: Wait) -> str:
    missed = sum(rank in each.missing for each in job.unended)
    more = f"; it had not entered {missed} later operations" if missed else ""
    return (
        f"is still in {_place(job, wait)}, which has ended for {listed(wait.own)}; its GPU, or the thread that watches"
        f" it, has stopped{more}"
    )


def _place(job: Job, wait: Wait) -> str:
    """Return the operation at which a rank waits, as text."""
    if wait.operation is None or wait.group is None:
        return "no operation"
    each = wait.operation
    if each.is_pair:
        return f"{each.name.rpartition(':')[2]} of process group {wait.group.name}{_called(each)}"
    return f"{_named(each.name, each.number, wait.group, each.description)}{_called(each)}"


def _others(job: Job, rank: int) -> str:
    others = [each for each, wait in job.waits.items() if rank in wait.ranks]
    return f"{listed(others)} wait{'s' * (len(others) == 1)} for"


def _ring_text(job: Job, ring: tuple[int, ...]) -> str:
    places = [f"rank {rank} is in {_place(job, job.waits[rank])}" for rank in ring[:MAX_LISTED]]
    return f"wait for each other, because they call operations in different orders: {'; '.join(places)}"
