"""Sweeps: a base experiment, and fields that change by cases, a grid, a random sample and seeds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import field_validator, model_validator

from workbench.core.base.older import spelled_as_before, without_unused
from workbench.core.base.settings import SettingError, Settings, errors_of, setting, unknown_name
from workbench.core.base.text import plain, read_yaml
from workbench.core.experiment import Experiment, put
from workbench.core.running.start import ENGINES
from workbench.core.trace.definitions import sources_of
from workbench.lab.batch.executors import ExecutorSettings
from workbench.lab.batch.sampling import Sample, listed
from workbench.lab.batch.searches import Changes, Crossing, Optimum, Step, searched
from workbench.mpi import clusters

KEY_DIGITS = 10  # number of digits of a run's key
MAX_RUNS = 100_000  # max number of runs of a sweep, each of which may have a folder and a page


class Sweep(Settings):
    """Many experiments: every case x every point of the grid x every draw of the sample x every seed.

    A field is written as in `workbench run --set`: rounds, scheme_args.stragglers, delays.rate.

    >>> sweep = Sweep(base={"rounds": 5}, grid={"scheme": ["CR", "UMW"]}, seeds=3)
    >>> [item.label for item in sweep.items()][:2]
    ['scheme=CR,seed=0', 'scheme=CR,seed=1']
    """

    base: dict[str, Any] = setting({}, "fields that all runs share")
    cases: tuple[dict[str, Any], ...] = setting((), "list of changes; fields of one entry change together")
    grid: dict[str, tuple[Any, ...]] = setting({}, "field -> its values; all combinations are run")
    sample: Sample | None = setting(None, "random draws")
    seeds: int | tuple[int, ...] | None = setting(
        None, "number of seeds, from the base's seed on, or a list of seeds; empty = only the base's seed"
    )
    search: Crossing | Optimum | None = setting(None, "further runs, chosen by the results of earlier ones")
    engine: str = setting("sim", "engine of all runs; sim: the virtual clock")
    cluster: str = setting("", "cluster of real runs; empty = the engine's default; sim has none")
    executor: ExecutorSettings | None = setting(
        None, "where runs are executed; empty = in kernels of this machine"
    )
    cores: int | None = setting(
        None, "number of cores of each run, which no other run uses; empty = all runs share all cores", ge=1
    )
    notebooks: bool = setting(
        True, "true: folder, notebook and page for each run; false: rows and curves of many runs in one file"
    )

    @field_validator("base", "cases", "seeds", mode="before")
    @classmethod
    def _built_ins(cls, value: Any) -> Any:
        """Convert NumPy's numbers and arrays to Python's, as parameters of notebooks must be plain values."""
        return plain(value) if _size(value) <= MAX_RUNS else _refuse_many({"": _size(value)})

    @field_validator("search", mode="before")
    @classmethod
    def _search(cls, value: Any) -> Any:
        return searched(value)

    @field_validator("grid", mode="before")
    @classmethod
    def _lists(cls, grid: Any) -> Any:
        if not isinstance(grid, Mapping):
            return grid
        _refuse_many({str(name): _size(values) for name, values in grid.items()})
        return {name: listed(name, values) for name, values in plain(grid).items()}

    @model_validator(mode="after")
    def _few_enough(self) -> Self:
        """Reject a sweep with too many runs, before any list of its runs is made."""
        given = [
            name for name in ("cases", "grid", "sample", "seeds") if getattr(self, name) not in ((), {}, None)
        ]
        if self.search is not None and given:
            raise SettingError(f"{given[0]}: a search chooses its runs itself; drop one of the two")
        if self.search is not None and not self.notebooks:
            raise SettingError(
                "notebooks = False: a search reads the folders of its runs; leave notebooks out"
            )
        if self.cores is not None and not self.notebooks:
            raise SettingError(f"cores = {self.cores}: is of runs with notebooks; drop one of the two")
        sections = {"cases": _size(self.cases or 1), "grid": prod(map(_size, self.grid.values()))}
        sections["sample.count"] = self.sample.count if self.sample else 1
        sections["seeds"] = self.seeds if isinstance(self.seeds, int) else _size(self.seeds)
        _refuse_many(sections)
        return self

    def items(self) -> list[Item]:
        """Return all runs, checked and without repetitions. Raises `SettingError` for the first invalid one.

        For a search, return its first requests.
        """
        return [item for _, item in self.numbered()]

    def numbered(self) -> Iterator[tuple[int, Item]]:
        """Yield the runs of `items` one by one, each with its number among all combinations.

        If any run is invalid, raise `SettingError` about the first one, after all valid runs.
        """
        cluster = cluster_of(self.engine, self.cluster)
        found, errors, last = set[str](), list[tuple[str, str]](), 0
        for last, changes in enumerate(self.combinations(), 1):
            try:
                item = make_item(self.base, changes, self.engine, cluster)
            except SettingError as error:
                which = f" ({label(changes)})" if changes else ""
                errors.append((f"run {last} of ", f"{which}: {error}" if not errors else ""))
                continue
            if item.key not in found:
                found.add(item.key)
                yield last - 1, item
        if errors:
            rest = len(errors) - 1
            more = f" ({rest} other run{'s' * (rest > 1)} cannot start either)" if rest else ""
            raise SettingError(f"{errors[0][0]}{last}{errors[0][1]}{more}")

    def combinations(self) -> Iterator[Changes]:
        """Yield the changes of all runs, with repetitions. A search yields those of its first requests."""
        yield from self._changes() if self.search is None else self.next(lambda item: None).runs

    def on(self, cluster: str) -> Sweep:
        """Return the sweep with another cluster, for its real runs or for the engines that execute simulated runs."""
        if self.engine != "sim":
            return self.replace(cluster=cluster)
        clusters.load(cluster)
        known = self.executor
        if known is None or known.kind != "ipyparallel":
            known = ExecutorSettings(kind="ipyparallel")
        return self.replace(executor=known.replace(cluster=cluster))

    def next(self, value: Callable[[Item], float | None]) -> Step:
        """Return the next requests and the findings of a search, given results of runs (None: not known)."""
        assert self.search is not None
        return self.search.step(lambda changes: value(self.item(changes)), self._first_seed())

    def item(self, changes: Changes) -> Item:
        """Return the run with these changes of the base. Raises `SettingError`."""
        return make_item(self.base, changes, self.engine, cluster_of(self.engine, self.cluster))

    def _changes(self) -> Iterator[Changes]:
        for picked in product(*(axis for axis in self._axes() if axis is not None)):
            yield {name: value for changes in picked for name, value in changes.items()}

    def _axes(self) -> list[Sequence[Changes] | None]:
        grid = [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]
        axes: list[Sequence[Changes] | None]
        axes = [self.cases or None, grid, self.sample.draws() if self.sample else None, self._seeds()]
        # field -> section that sets it, because a second section would overwrite it silently
        owner: dict[str, str] = {}
        for section, axis in zip(("cases", "grid", "sample.fields", "seeds"), axes, strict=True):
            for name in {name: None for changes in axis or () for name in changes}:
                if owner.setdefault(name, section) != section:
                    raise SettingError(
                        f"{section}: sets {name}, which {owner[name]} sets too; keep one of them"
                    )
        return axes

    def _seeds(self) -> list[Changes] | None:
        if self.seeds is None:
            return None
        first = self._first_seed()
        seeds = range(first, first + self.seeds) if isinstance(self.seeds, int) else self.seeds
        if not seeds:
            raise SettingError(f"seeds = {self.seeds!r}: leaves no run; give a number from 1, or a list")
        return [{"seed": seed} for seed in seeds]

    def _first_seed(self) -> int:
        first = self.base.get("seed", 0)
        if not isinstance(first, int) or isinstance(first, bool):
            raise SettingError(f"base.seed = {first!r:.60}: is not a whole number")
        return first

    @classmethod
    def read(cls, path: str | Path) -> Sweep:
        """Read a .yaml or .json file; `base` may name a SPEC file beside it. Raises `SettingError`."""
        content = read_yaml(path, "base:")
        if isinstance(content.get("base"), str):
            spec = Experiment.read(Path(path).parent / content["base"], trust=True)
            content["base"] = spec.model_dump(mode="json", exclude_unset=True)
        with errors_of(path):
            return cls(**content)


@dataclass(frozen=True)
class Item:
    """Run of a sweep.

    `experiment` is the base with `changes`. It runs on `engine` and `cluster`. `known_as`: name of its existing folder,
    or empty.

    >>> item = Sweep(base={"workers": 4}, grid={"scheme": ["UMW"]}).items()[0]
    >>> item.changes, item.experiment.workers, item.engine
    ({'scheme': 'UMW'}, 4, 'sim')
    """

    changes: Changes
    experiment: Experiment
    engine: str
    cluster: str
    known_as: str = ""  # name of its folder if that exists already

    @property
    def spec(self) -> dict[str, Any]:
        """Parameters of the notebook, which also define the key.

        Fields that version 1.0 did not have are left out if unused.
        """
        spec = without_unused(self.experiment.model_dump(mode="json"))
        return {**spec, "engine": self.engine, "cluster": self.cluster}

    @cached_property
    def key(self) -> str:
        """Hexadecimal digits that identify a run. They change with any setting and any change of user-defined code."""
        digests = {source.name: source.digest for source in sources_of(self.experiment)}
        spec = {**self.spec, "own": digests} if digests else self.spec
        return sha256(json.dumps(spelled_as_before(spec), sort_keys=True).encode()).hexdigest()[:KEY_DIGITS]

    @property
    def label(self) -> str:
        """Changes from the base."""
        return label(self.changes)

    @property
    def name(self) -> str:
        """Name of the run's folder: the changes, in characters that are safe in paths, and the key."""
        if self.known_as:
            return self.known_as
        text = re.sub(r"[^A-Za-z0-9.,=+_-]+", "_", self.label)[:60].strip("._-")
        return f"{text}-{self.key}" if text else self.key


def _size(values: Any) -> int:
    """Return by how many values a field multiplies the runs: the length of a list, else 1."""
    if isinstance(values, np.ndarray):
        return values.size
    return len(values) if isinstance(values, Sequence) and not isinstance(values, str) else 1


def _refuse_many(sections: Mapping[str, int]) -> None:
    """Raise `ValueError` if the sections make too many runs. The message names the largest section."""
    if (runs := prod(sections.values())) > MAX_RUNS:
        name, most = max(sections.items(), key=lambda item: item[1])
        where = f"{name} = {most}: " if name else ""
        raise ValueError(f"{where}{runs} runs are too many for one sweep; take at most {MAX_RUNS}")


def label(changes: Changes) -> str:
    """Write changes on one line, with the last component of each field's name.

    >>> label({"scheme": "CR", "scheme_args.stragglers": 2})
    'scheme=CR,stragglers=2'
    """
    return ",".join(_assigned(name, value) for name, value in changes.items())


def _assigned(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return label({str(inner): item for inner, item in value.items()})
    return f"{name.rsplit('.', 1)[-1]}={f'{value:.6g}' if isinstance(value, float) else value}"


def make_item(base: Mapping[str, Any], changes: Changes, engine: str = "sim", cluster: str = "") -> Item:
    """Apply changes to a base. Raises `SettingError`.

    >>> make_item({"workers": 6}, {"scheme": "GC", "scheme_args.stragglers": 2}).experiment.scheme_args
    {'stragglers': 2}
    """
    fields = _copied(base)
    for name, value in changes.items():
        put(fields, name, _copied(value))
    for name in fields:
        if name not in Experiment.model_fields:
            raise unknown_name("field", name, list(Experiment.model_fields))
    return Item(changes, Experiment(**fields), engine, cluster)


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list | tuple) else value


def cluster_of(engine: str, cluster: str) -> str:
    """Return the cluster of an engine's runs: the named one, else the default. The virtual clock has none.

    Raises `SettingError` for an engine or a cluster that does not exist, and for a cluster with the virtual clock.
    """
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    if engine == "sim":
        if cluster:
            raise SettingError(
                f"cluster = {cluster!r}: the virtual clock (engine sim) has none; leave it empty"
            )
        return ""
    clusters.load(cluster or clusters.LOCAL)
    return cluster or clusters.LOCAL
