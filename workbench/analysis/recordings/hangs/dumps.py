"""Read dumps of PyTorch's flight recorder: one file per rank, a pickle of plain data or JSON.

PyTorch writes them when a collective operation times out. The path is that in TORCH_FR_DUMP_TEMP_FILE, followed by the
rank, e.g. `nccl_trace_rank_3`. Nothing in a pickle is executed (see `parse_pickle`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from workbench.analysis.recordings.fields import Fields, shown
from workbench.analysis.recordings.sources.kineto.files import head_of, unpacked
from workbench.core.base.plain_pickle import parse_pickle
from workbench.core.base.reading import parse_json
from workbench.core.base.settings import SettingError

HEAD_BYTES = 4096  # bytes of a file that are searched for the keys of a dump
MAX_FILE_BYTES = 2**28  # max bytes of a dump
DEFAULT_GROUP = "default_pg"  # description of the group of all ranks

_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_PICKLE_KEYS = b"version", b"entries", b"pg_config"
_JSON_KEYS = b'"pg_config"', b'"collective_seq_id"'
_RANK = re.compile(r"(\d{1,9})(?:\.(?:json|pickle|pkl|pt|bin|dump))?(?:\.gz)?$", re.IGNORECASE)
_NAMED_RANK = re.compile(r"rank[-_ =.]?(\d{1,9})", re.IGNORECASE)
_SEPARATOR = re.compile(r"[/\\]")
_PAIR = re.compile(r"\w+:(send|recv) (\d+)(?:->|<-)(\d+)")


class Group(NamedTuple):
    """Process group: its name, and its ranks if they are known. Different groups may have the same name."""

    name: str
    ranks: tuple[int, ...]


class Operation(NamedTuple):
    """One operation that a rank has entered.

    `place`: position among the operations of this rank. `group`: name of its process group. `number`: its number among
    the collective operations of the group. `name`: e.g. "nccl:all_reduce". `pair`: for operations of two ranks, whether
    this rank sends, and the other's number within the group; None if unknown. `where`: file and line of its call.
    `begun`: when this rank has entered it, s since 1970, 0 if unknown. `end`: when its end was seen, or its timeout
    if it has not ended; infinite if unknown.
    """

    place: int
    group: str
    description: str
    number: int
    name: str
    is_pair: bool
    ended: bool
    pair: tuple[bool, int] | None
    where: str
    begun: float
    end: float


@dataclass(frozen=True)
class Dump:
    """Dump of one rank.

    `version`: of the format. `members`: ranks of each process group by name, as far as the file has them. `status`:
    numbers of the last entered and ended operation, by the group's id in this process. `ids`: the ids by the group's
    name.
    """

    path: Path
    rank: int
    version: str
    members: Mapping[str, tuple[int, ...]]
    descriptions: Mapping[str, str]
    status: Mapping[str, tuple[int, int]]
    ids: Mapping[str, str]
    operations: Sequence[Operation]

    @cached_property
    def open(self) -> list[Operation]:
        """Operations that have not ended, in their order."""
        return [each for each in self.operations if not each.ended]


def tells(path: Path) -> bool:
    """Return whether the path is a flight recorder dump, or a folder with one, or with folders with one."""
    return bool(_files(path))


def read_dumps(path: Path) -> list[Dump]:
    """Read the dumps of all ranks, in the order of ranks. Raise `SettingError` with the file that is wrong.

    Dumps of one run have the same version, and the same ranks in a process group that they share.
    """
    known: dict[
        tuple[str, int], tuple[Any, Path]
    ] = {}  # value that dumps must share, and the first file with it
    found = [_read(file) for file in _files(path)]
    for dump in found:
        shared = {
            (f"are both of rank {dump.rank}", 0): dump.path,
            ("have different versions", 0): dump.version,
        }
        for name, ranks in dump.members.items():
            shared[f"have different ranks in process group {name}", min(ranks, default=-1)] = {*ranks}
        for (why, _), value in shared.items():
            first, file = known.setdefault((why, _), (value, dump.path))
            if first != value:
                both = f"{file.relative_to(path)} and {dump.path.relative_to(path)} {why}"
                raise SettingError(f"path = {str(path)!r}: {both}; give one dump for each rank, of one hang")
    return sorted(found, key=lambda dump: dump.rank)


def _files(path: Path) -> list[Path]:
    """Return the dumps at a path: those of a folder, or if there are none, those of the folders in it.

    Files with the name of a dump are returned as well, if others are dumps.
    """
    if not path.is_dir():
        return [path] if path.is_file() and _is_dump(path) else []
    for pattern in ("[!.]*", "[!.]*/[!.]*"):
        files = [each for each in sorted(path.glob(pattern)) if each.is_file()]
        if names := {_RANK.sub("", each.name) for each in files if _is_dump(each)}:
            return [each for each in files if _RANK.sub("", each.name) in names]
    return []


def _is_dump(file: Path) -> bool:
    head = head_of(file, HEAD_BYTES)
    if _PICKLE.match(head):
        return any(key in head for key in _PICKLE_KEYS[1:]) and _PICKLE_KEYS[0] in head
    return (
        head.lstrip()[:1] == b"{" and any(key in head for key in _JSON_KEYS) and b'"traceEvents"' not in head
    )


def _read(file: Path) -> Dump:
    content = unpacked(file, MAX_FILE_BYTES)
    if not content.strip():
        why = "is empty; without the file, its rank counts as one without a dump"
        raise SettingError(f"path = {str(file)!r}: {why}")
    fields = _Fields(file)
    try:
        return fields.dump(parse_pickle(content) if _PICKLE.match(content) else fields.json(content))
    except SettingError:
        raise
    except ValueError as error:
        why = "is not a flight recorder dump that can be read"
        raise SettingError(f"path = {str(file)!r}: {why} ({error})") from None


class _Fields(Fields):
    """Checks of the fields of one dump."""

    def dump(self, fields: Any) -> Dump:
        """Return the dump of a file with these fields."""
        whole = self.object(fields, "the dump")
        configured = self.object(whole.get("pg_config") or {}, "pg_config")
        status = self.object(whole.get("pg_status") or {}, "pg_status")
        entries = whole.get("entries") or []
        if not isinstance(entries, list):
            raise self.wrong("entries", entries, "is not a list of operations")
        operations, ids = [], {}
        for place, entry in enumerate(entries):
            operation, identity = self._operation(f"entries[{place}]", entry)
            operations.append(operation)
            ids[operation.group] = identity
        operations.sort(key=lambda each: each.place)
        return Dump(
            path=self.file,
            rank=self._rank(whole.get("rank")),
            version=text(whole.get("version", "")),
            members={
                text(name): self._members(text(name), each) for name, each in configured.items() if name
            },
            descriptions={
                text(name): text(each.get("desc", ""))
                for name, each in configured.items()
                if isinstance(each, dict)
            },
            status={text(key): self._status(text(key), each) for key, each in status.items()},
            ids={name: each for name, each in ids.items() if each},
            operations=operations,
        )

    def _operation(self, where: str, entry: Any) -> tuple[Operation, str]:
        """Return an operation, and the id of its group in this process."""
        fields = self.object(entry, where)
        group, description = self._group(where, fields)
        name = text(fields.get("profiling_name", "operation"))
        pair = _PAIR.match(name)
        is_pair = bool(fields.get("is_p2p")) or pair is not None
        number = fields.get("collective_seq_id", fields.get("seq_id"))
        times = ("time_created_ns", 1e-9), ("time_discovered_completed_ns", 1e-9), ("timeout_ms", 1e-3)
        begun, seen, timeout = (_number(fields.get(key)) * unit for key, unit in times)
        ended = bool(fields.get("retired")) or fields.get("state") == "completed"
        operation = Operation(
            place=self.whole(f"{where}.record_id", fields.get("record_id", fields.get("id", 0))),
            group=group,
            description=description,
            number=self.whole(f"{where}.collective_seq_id", 0 if is_pair and number is None else number),
            name=name,
            is_pair=is_pair,
            ended=ended,
            pair=(pair[1] == "send", int(pair[3])) if pair else None,
            where=_called(fields.get("frames")),
            begun=begun,
            end=(seen if ended else begun and timeout and begun + timeout) or inf,
        )
        return operation, text(fields.get("pg_id", ""))

    def _group(self, where: str, fields: Mapping[str, Any]) -> tuple[str, str]:
        """Return name and description of an operation's group; files of PyTorch 2.3 have no description."""
        group = fields.get("process_group", fields.get("pg_name", fields.get("pg_id")))
        if isinstance(group, list | tuple) and len(group) == 2:
            return text(group[0]), text(group[1])
        if isinstance(group, str | int):
            return str(group), ""
        raise self.wrong(f"{where}.process_group", group, "is not a name and a description")

    def _members(self, name: str, config: Any) -> tuple[int, ...]:
        """Return the ranks of a group, which the file has as text or as a list; none if they are unknown."""
        ranks = self.object(config, f"pg_config[{name}]").get("ranks") or []
        try:
            ranks = parse_json(ranks) if isinstance(ranks, str) else ranks
        except ValueError:
            ranks = None
        if not isinstance(ranks, list | tuple):
            raise self.wrong(f"pg_config[{name}].ranks", config["ranks"], "is not a list of ranks")
        return tuple(self.whole(f"pg_config[{name}].ranks", rank) for rank in ranks)

    def _status(self, name: str, status: Any) -> tuple[int, int]:
        fields, where = self.object(status, f"pg_status[{name}]"), f"pg_status[{name}]"
        keys = [f"last_{which}_collective" for which in ("enqueued", "completed")]
        entered, ended = (self.whole(f"{where}.{key}", fields.get(key, -1), -1) for key in keys)
        return entered, ended

    def _rank(self, rank: Any) -> int:
        if rank is not None:
            return self.whole("rank", rank)
        named = set(_NAMED_RANK.findall(self.file.name))
        last = _RANK.search(self.file.name)
        if len(named) == 1 or last:
            return int(named.pop() if len(named) == 1 else last[1])  # type: ignore[index]
        raise self.fault("its name does not end with the rank; call the dumps nccl_trace_rank_0, ...")


def text(value: Any) -> str:
    r"""Return a value of a file as text on one line, without lone surrogates.

    >>> text("two\nlines"), text(3)
    ('two lines', '3')
    """
    found = value if isinstance(value, str) else shown(value)
    return " ".join(found.encode(errors="replace").decode().split())


def _number(value: Any) -> float:
    """Return a number of a file, or 0 for anything else."""
    return value if isinstance(value, int | float) else 0.0


def _called(frames: Any) -> str:
    """Return file and line of the innermost call that is not in PyTorch; "" if it was not recorded."""
    for frame in frames if isinstance(frames, list) else ():
        file = text(frame.get("filename", "")) if isinstance(frame, dict) else ""
        folders = _SEPARATOR.split(file)
        if file and "torch" not in folders[:-1]:
            return f"{folders[-1]}, line {text(frame.get('line', '?'))}"
    return ""
