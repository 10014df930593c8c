"""Published experiments of paper 1, as presets: five schemes each, with the published speedups.

The paper states tree, resiliency and data sizes. It describes the cluster by a model (section III-C). Its constants are
stated for figure 13: t_c = 0.05 s per message, a = 5e-5 s per sample, a mu = 1. The presets use these constants
everywhere. GISETTE has to be downloaded, so the presets use synthetic data of the same size. `on("openml:gisette")`
replaces them by the real data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, overload

from workbench.core.base.settings import SettingError, unknown_name
from workbench.core.base.text import read_yaml
from workbench.core.experiment import Experiment
from workbench.core.schemes.coded_reduce import CR, tree_size

SHIFT_S_PER_SAMPLE = 5e-5  # a, s/sample
RATE_SAMPLES_PER_S = 1 / SHIFT_S_PER_SAMPLE  # mu, samples/s
MESSAGE_S = 0.05  # t_c, s
SCHEMES = ("UMW", "GC", "RAR", "SGD", "CR")


@dataclass(frozen=True)
class Preset(Sequence[Experiment]):
    """Published figure with its experiments. `wb.compare(preset)` runs them.

    In presets of paper 1 they are in the order UMW, GC, RAR, SGD, CR. `published` contains the speedups of CR that the
    paper prints, by scheme.
    """

    name: str
    title: str
    experiments: tuple[Experiment, ...]
    published: Mapping[str, float] = field(default_factory=dict)

    @overload
    def __getitem__(self, key: int | str) -> Experiment: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[Experiment]: ...
    def __getitem__(self, key: int | str | slice) -> Experiment | Sequence[Experiment]:
        if isinstance(key, str):
            known = {e.scheme: e for e in self.experiments}
            if key not in known:
                raise unknown_name("scheme", key, known)
            return known[key]
        return self.experiments[key]

    def __len__(self) -> int:
        return len(self.experiments)

    def replace(self, **changes: Any) -> Preset:
        """Return the preset with some fields changed in all experiments. These are validated again."""
        changed = tuple(e.replace(**changes) for e in self.experiments)
        return Preset(self.name, self.title, changed, self.published)

    def on(self, data: str) -> Preset:
        """Return the same experiments on other data."""
        changed = tuple(e.replace(problem_args={**e.problem_args, "data": data}) for e in self.experiments)
        return Preset(self.name, self.title, changed, self.published)


def baselines(children: int, layers: int, stragglers: int, **common: Any) -> tuple[Experiment, ...]:
    """Return CR on a regular tree and its four baselines, with the same resiliency alpha = s/n and the same delays.

    GC tolerates and SGD ignores S = alpha N workers, rounded to the nearest whole number. SGD has the step size
    c1/(t+c2). Its constants c1 and c2 are given as a dict `sgd` in `common`.

    `children`: number of children per parent, n. `layers`: number of layers of workers. `stragglers`: max number of
    late children per parent, s. `common`: other fields of the experiments.

    >>> [e.scheme for e in baselines(3, 2, 1, rounds=5)]
    ['UMW', 'GC', 'RAR', 'SGD', 'CR']
    """
    # raises `SettingError` if no such tree exists
    CR(children=children, layers=layers, stragglers=stragglers)
    workers = tree_size(children, layers)
    late = min(round(Fraction(stragglers, children) * workers), workers - 1)
    sgd = {"optimiser": "inverse_time", "optimiser_args": common.pop("sgd", {})}
    args: dict[str, dict[str, Any]] = {
        "UMW": {},
        "GC": {"scheme_args": {"stragglers": late}},
        "RAR": {},
        "SGD": {"scheme_args": {"stragglers": late}, **sgd},
        "CR": {"scheme_args": {"children": children, "layers": layers, "stragglers": stragglers}},
    }
    common["workers"] = workers
    return tuple(Experiment(**{**common, "scheme": name, **args[name]}) for name in SCHEMES)


def _baselines(
    tree: Sequence[int], floats: int, common: Mapping[str, Any], **_: Any
) -> tuple[Experiment, ...]:
    """Return the five schemes of paper 1, with the delays and link of its cluster model."""
    link = {"bandwidth": 8 * floats / MESSAGE_S}
    delays = {"kind": "shifted_exponential", "shift": SHIFT_S_PER_SAMPLE, "rate": RATE_SAMPLES_PER_S}
    children, layers, stragglers = tree
    return baselines(children, layers, stragglers, delays=delays, link=link, **common)


class Presets(Mapping[str, Preset]):
    """Presets of a YAML file in this folder by name, made when they are first used.

    An unknown name raises an error with all names.

    >>> presets["fig9a"][0].scheme
    'UMW'
    """

    def __init__(self, file: str, make: Callable[..., tuple[Experiment, ...]]) -> None:
        self._file, self._make = file, make
        self._made: dict[str, Preset] = {}

    @cached_property
    def _found(self) -> dict[str, Any]:
        return read_yaml(Path(__file__).with_name(self._file), "fig2: {title: ...}")

    @property
    def titles(self) -> dict[str, str]:
        """Title of every preset, by name."""
        return {name: fields["title"] for name, fields in self._found.items()}

    def __getitem__(self, name: str) -> Preset:
        if name not in self._found:
            raise SettingError(f"preset = {name!r}: no such preset; choose one of {', '.join(self._found)}")
        if name not in self._made:
            fields = self._found[name]
            speedups = dict(zip(SCHEMES, fields.get("speedups", ()), strict=False))
            self._made[name] = Preset(name, fields["title"], self._make(**fields), speedups)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, name: object) -> bool:
        return name in self._found


presets = Presets("codedreduce.yaml", _baselines)
