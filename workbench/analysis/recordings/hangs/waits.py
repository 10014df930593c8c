"""Find which operations of a hang have not ended, which ranks had not entered them, and which rank waits for which.

The first unended operation of a rank is the one at which it waits. It waits for the ranks that have not entered that
operation. If all have entered it, it waits for those that are still at an earlier operation of their own. Following
these waits leads to the ranks that wait for nobody: the causes.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from workbench.analysis.recordings.hangs.dumps import DEFAULT_GROUP, Dump, Group, Operation

# collective operations that end on no rank before all ranks have entered them
SYNCHRONISING = re.compile(r"(?:\w+:)?_?(?:all_?reduce|all_?gather|reduce_scatter|all_?to_?all|barrier)")


class Unended(NamedTuple):
    """Collective operation that has not ended: its group, number and name, and the ranks by what they did.

    `entered`: ranks that wait in it. `missing`: ranks that had not entered it. `silent`: ranks without a dump.
    `names`: names under which ranks entered it, if they differ, with their ranks.
    """

    group: Group
    description: str
    number: int
    name: str
    entered: tuple[int, ...]
    missing: tuple[int, ...]
    silent: tuple[int, ...]
    names: tuple[tuple[str, tuple[int, ...]], ...] = ()


class Wait(NamedTuple):
    """State of one rank: its unended operation or None, the ranks that it waits for, and those that have seen the end.

    `own`: ranks that have seen the end of an operation that needs all ranks, and in which this rank still is.
    """

    operation: Operation | None
    group: Group | None
    ranks: tuple[int, ...] = ()
    own: tuple[int, ...] = ()


@dataclass(frozen=True)
class Job:
    """Dumps of a job's ranks, by rank."""

    dumps: Sequence[Dump]

    @cached_property
    def by_rank(self) -> dict[int, Dump]:
        """Dump of each rank."""
        return {dump.rank: dump for dump in self.dumps}

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """All ranks of the job that the dumps name."""
        named = {rank for dump in self.dumps for ranks in dump.members.values() for rank in ranks}
        return tuple(sorted({*self.by_rank, *named}))

    @property
    def silent(self) -> tuple[int, ...]:
        """Ranks without a dump."""
        return tuple(rank for rank in self.ranks if rank not in self.by_rank)

    def group(self, rank: int, name: str) -> Group:
        """Return the group that a rank calls by this name.

        If the dump does not list the ranks of the group, they are the ranks that have used it.
        """
        if known := self.by_rank[rank].members.get(name):
            return Group(name, known)
        others = {dump.members[name] for dump in self.dumps if rank in dump.members.get(name, ())}
        if len(others) == 1:
            return Group(name, others.pop())
        if self._descriptions.get(name) == DEFAULT_GROUP:
            return Group(name, self.ranks)
        return Group(name, tuple(sorted(self._users[name])))

    @cached_property
    def _descriptions(self) -> dict[str, str]:
        found = {each.group: each.description for dump in self.dumps for each in dump.operations}
        return found | {name: text for dump in self.dumps for name, text in dump.descriptions.items() if text}

    @cached_property
    def _users(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = defaultdict(set)
        for dump in self.dumps:
            for each in dump.operations:
                found[each.group].add(dump.rank)
        return found

    @cached_property
    def _paired(self) -> set[str]:
        """Names of groups with operations between two ranks.

        Their status counts these together with collective operations.
        """
        return {each.group for dump in self.dumps for each in dump.operations if each.is_pair}

    def _status(self, rank: int, group: Group) -> tuple[int, int]:
        """Return the numbers of the last entered and the last ended operation in a rank's status (-1: unknown)."""
        if group.name in self._paired:
            return -1, -1
        ids = {
            self.by_rank[other].ids.get(group.name, "") for other in group.ranks if other in self.by_rank
        } - {""}
        identity = self.by_rank[rank].ids.get(group.name) or (ids.pop() if len(ids) == 1 else "")
        return self.by_rank[rank].status.get(identity, (-1, -1))

    def last_entered(self, rank: int, group: Group) -> int:
        """Return the number of the last collective operation that a rank has entered in a group, or 0 if unknown."""
        numbers = [each.number for each in self.by_rank[rank].operations if each.group == group.name]
        return max([0, self._status(rank, group)[0], *numbers])

    def has_ended(self, rank: int, group: Group, number: int) -> bool:
        """Return whether a rank has seen the end of a collective operation."""
        mine = [e for e in self.by_rank[rank].operations if e.group == group.name and not e.is_pair]
        here = [each.ended for each in mine if each.number == number]
        return all(here) if here else self._status(rank, group)[1] >= number

    @cached_property
    def unended(self) -> list[Unended]:
        """Collective operations that have not ended on a rank that entered them, by group and number."""
        there: dict[tuple[Group, int], list[tuple[int, Operation]]] = defaultdict(list)
        for dump in self.dumps:
            for each in dump.open:
                if not each.is_pair:
                    there[self.group(dump.rank, each.group), each.number].append((dump.rank, each))
        return [self._unended(*key, there[key]) for key in sorted(there)]

    def _unended(self, group: Group, number: int, inside: list[tuple[int, Operation]]) -> Unended:
        names: dict[str, list[int]] = defaultdict(list)
        for rank, each in inside:
            names[each.name].append(rank)
        most = max(names, key=lambda name: len(names[name]))
        differ = tuple((name, tuple(ranks)) for name, ranks in names.items()) if len(names) > 1 else ()
        members = [rank for rank in group.ranks if rank in self.by_rank]
        return Unended(
            group=group,
            description=self._descriptions.get(group.name, ""),
            number=number,
            name=most,
            entered=tuple(rank for rank, _ in inside),
            missing=tuple(rank for rank in members if self.last_entered(rank, group) < number),
            silent=tuple(rank for rank in group.ranks if rank not in self.by_rank),
            names=differ,
        )

    @cached_property
    def waits(self) -> dict[int, Wait]:
        """State of each rank, with the ranks that it waits for."""
        unended = {(each.group, each.number): each for each in self.unended}
        found: dict[int, Wait] = {}
        for dump in self.dumps:
            first = next(iter(dump.open), None)
            if first is None:
                found[dump.rank] = Wait(None, None)
            elif first.is_pair:
                found[dump.rank] = self._pair_wait(dump.rank, first)
            else:
                group = self.group(dump.rank, first.group)
                found[dump.rank] = self._collective_wait(dump.rank, first, unended[group, first.number])
        return found

    def _collective_wait(self, rank: int, first: Operation, where: Unended) -> Wait:
        if where.missing or where.silent:
            return Wait(first, where.group, (*where.missing, *where.silent))
        others = [other for other in where.group.ranks if other != rank]
        ended = tuple(other for other in others if self.has_ended(other, where.group, first.number))
        if ended and SYNCHRONISING.match(first.name):
            return Wait(first, where.group, (), ended)
        return Wait(
            first, where.group, tuple(each for each in others if self._is_before(each, first, where.group))
        )

    def _is_before(self, rank: int, operation: Operation, group: Group) -> bool:
        """Return whether a rank has entered a collective operation, but is still at an earlier one."""
        first = next(iter(self.by_rank[rank].open), None)
        if first is None or (self.group(rank, first.group), first.number) == (group, operation.number):
            return False
        return not self.has_ended(rank, group, operation.number)

    def _pair_wait(self, rank: int, first: Operation) -> Wait:
        """Return the wait of a rank that sends to another rank or receives from it."""
        group = self.group(rank, first.group)
        if first.pair is None or first.pair[1] >= len(group.ranks):
            return Wait(first, group)
        sends, other = first.pair[0], group.ranks[first.pair[1]]
        if other not in self.by_rank:
            return Wait(first, group, (other,))
        mine = (not sends, group.ranks.index(rank)) if rank in group.ranks else None
        theirs = next(iter(self.by_rank[other].open), None)
        is_there = theirs is not None and theirs.pair == mine and self.group(other, theirs.group) == group
        return Wait(first, group, () if is_there else (other,))

    def causes(self) -> tuple[list[int], list[tuple[int, ...]]]:
        """Return the ranks that wait for nobody, and rings of ranks that wait for each other."""
        waiting = {rank: [*wait.ranks] for rank, wait in self.waits.items() if wait.operation is not None}
        ends = {end for rank in waiting for end in _ends(rank, waiting)}
        rings = {ring for rank in waiting if not _ends(rank, waiting) and (ring := _ring(rank, waiting))}
        return sorted(ends), sorted(rings)


def _reached(rank: int, waiting: dict[int, list[int]]) -> set[int]:
    """Return the ranks for which a rank waits, directly or through others, with itself if it is in a ring."""
    found: set[int] = set()
    todo = [*waiting.get(rank, ())]
    while todo:
        if (other := todo.pop()) not in found:
            found.add(other)
            todo += waiting.get(other, ())
    return found


def _ends(rank: int, waiting: dict[int, list[int]]) -> set[int]:
    """Return the ranks that wait for nobody, among a rank and all ranks for which it waits, directly or not."""
    return {each for each in {rank, *_reached(rank, waiting)} if not waiting.get(each)}


def _ring(rank: int, waiting: dict[int, list[int]]) -> tuple[int, ...]:
    """Return the ranks that wait for each other with this one, itself included; () if it is in no ring."""
    reached = _reached(rank, waiting)
    return (
        tuple(sorted(each for each in reached if rank in _reached(each, waiting))) if rank in reached else ()
    )


def listed(ranks: Iterable[int]) -> str:
    """Return ranks as text, with ranges.

    >>> listed([3]), listed([1, 4]), listed([0, 1, 2, 3, 7])
    ('rank 3', 'ranks 1 and 4', 'ranks 0 to 3 and 7')
    """
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and spans[-1][-1] == rank - 1:
            spans[-1].append(rank)
        else:
            spans.append([rank])
    texts = [
        text
        for span in spans
        for text in ([f"{span[0]} to {span[-1]}"] if len(span) > 2 else [str(rank) for rank in span])
    ]
    all_ = texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}" if texts else "no rank"
    return all_ if not texts else f"rank{'s' if len(spans) > 1 or len(spans[0]) > 1 else ''} {all_}"
