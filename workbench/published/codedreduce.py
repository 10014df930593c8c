"""The experiments that paper 1 published, as presets: five schemes each, with the published speedups.

The paper states tree, resiliency and data sizes; of the cluster it states the model (section III-C) and, for
figure 13, its constants: t_c = 0.05 s a message, a = 5e-5 s a sample, a mu = 1. The presets use these everywhere.
GISETTE needs a download, so the presets' data are the synthetic stand-in of its size; `on("openml:gisette")`
puts the real one in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any, overload

from workbench.base.settings import SettingError, unknown_name
from workbench.experiment import Experiment
from workbench.schemes.coded_reduce import CR, tree_size

SHIFT = 5e-5  # a, s/sample
RATE = 1 / SHIFT  # mu, samples/s
MESSAGE = 0.05  # t_c, s
SCHEMES = ("UMW", "GC", "RAR", "SGD", "CR")


@dataclass(frozen=True)
class Preset(Sequence[Experiment]):
    """A published figure: its experiments in the order UMW, GC, RAR, SGD, CR. `wb.compare(preset)` runs them.

    `published` holds the speedups of CR that the paper prints.
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
        """Change fields of all five experiments, validated anew."""
        changed = tuple(e.replace(**changes) for e in self.experiments)
        return Preset(self.name, self.title, changed, self.published)

    def on(self, data: str) -> Preset:
        """The same experiments on other data."""
        changed = tuple(e.replace(problem_args={**e.problem_args, "data": data}) for e in self.experiments)
        return Preset(self.name, self.title, changed, self.published)


def rivals(children: int, layers: int, stragglers: int, **common: Any) -> tuple[Experiment, ...]:
    """CR on a regular tree and its four rivals, at the same resiliency alpha = s/n and on the same stragglers.

    GC tolerates and SGD ignores S = alpha N workers, rounded to the nearest whole number. SGD gets the step
    c1/(t+c2); `sgd` in `common` gives its numbers.

    `children` (n) per parent, `layers` of workers, `stragglers` (s) late ones per parent; `common`: other fields.

    >>> [e.scheme for e in rivals(3, 2, 1, rounds=5)]
    ['UMW', 'GC', 'RAR', 'SGD', 'CR']
    """
    CR(children=children, layers=layers, stragglers=stragglers)  # refuses what is no tree
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
    return tuple(
        Experiment(**{**common, "workers": workers, "scheme": name, **args[name]}) for name in SCHEMES
    )


def _preset(
    name: str, title: str, tree: tuple[int, int, int], floats: int, speedups: Sequence[float], **common: Any
) -> Preset:
    link = {"bandwidth": 8 * floats / MESSAGE}
    delays = {"kind": "shifted_exponential", "shift": SHIFT, "rate": RATE}
    experiments = rivals(*tree, delays=delays, link=link, **common)
    return Preset(name, title, experiments, dict(zip(SCHEMES, speedups, strict=False)))


def _gisette(name: str, tree: tuple[int, int, int], speedups: Sequence[float]) -> Preset:
    args = {"data": "synthetic", "samples": 6552, "features": 5000, "intercept": True}
    title = f"Figure {name[3:]}: logistic regression, GISETTE's size, {_alpha(tree)}"
    return _preset(name, title, tree, 5001, speedups, problem="logistic", problem_args=args, rounds=300)


def _linear(
    name: str,
    tree: tuple[int, int, int],
    speedups: Sequence[float],
    samples: int = 7644,
    features: int = 6500,
    rounds: int = 300,
) -> Preset:
    args = {"data": "synthetic", "samples": samples, "features": features}
    title = f"Figure {name[3:]}: linear regression, {samples} x {features}, {_alpha(tree)}"
    return _preset(
        name, title, tree, features, speedups, problem="least_squares", problem_args=args, rounds=rounds
    )


def _alpha(tree: tuple[int, int, int]) -> str:
    return f"{tree_size(*tree[:2])} workers, alpha = {tree[2]}/{tree[0]}"


def _figure13() -> Preset:
    """Softmax on CIFAR-10's shape: the round times do not depend on the network, only on d and t_c."""
    args = {"data": "synthetic", "samples": 49920, "features": 3072, "intercept": True}
    title = "Figure 13: 10 classes, CIFAR-10's size, 156 workers, alpha = 5/12 (softmax in the CNN's place)"
    step = {"step": 0.02, "decay": 0.7, "milestones": (1300, 2100)}
    speedups = (6.6, 4.8, 1.8, 4.0)
    return _preset(
        "fig13",
        title,
        (12, 2, 5),
        30730,
        speedups,
        problem="softmax",
        problem_args=args,
        rounds=2500,
        optimiser_args=step,
    )


def _all() -> Iterator[Preset]:
    yield _linear("fig2", (4, 3, 1), (22.5, 6.4, 4.3))
    yield _gisette("fig8", (4, 3, 1), (32.8, 5.3, 3.8, 3.2))
    yield _gisette("fig9a", (12, 2, 1), (32.3, 27.2, 7.0, 25.4))
    yield _gisette("fig9b", (12, 2, 2), (29.3, 23.3, 6.4, 21.9))
    yield _gisette("fig9c", (12, 2, 3), (25.0, 16.8, 5.4, 15.4))
    yield _linear("fig10", (4, 3, 1), (24.1, 4.6, 3.0, 2.8))
    yield _linear("fig11a", (12, 2, 1), (31.7, 22.0, 5.2, 20.7))
    yield _linear("fig11b", (12, 2, 2), (27.1, 18.1, 4.4, 16.8))
    yield _linear("fig11c", (12, 2, 3), (22.2, 13.7, 3.6, 13.0))
    yield _linear("fig12", (12, 2, 3), (11.3, 9.7, 1.69, 6.1), samples=32760, features=5000, rounds=50)
    yield _figure13()


class _Presets(Mapping[str, Preset]):
    """Presets by name; an unknown name lists the known ones.

    >>> presets["fig9a"][0].scheme
    'UMW'
    """

    def __init__(self, found: Iterator[Preset]) -> None:
        self._found = MappingProxyType({preset.name: preset for preset in found})

    def __getitem__(self, name: str) -> Preset:
        if name not in self._found:
            raise SettingError(f"preset = {name!r}: no such preset; choose one of {', '.join(self._found)}")
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, name: object) -> bool:
        return name in self._found


presets = _Presets(_all())
