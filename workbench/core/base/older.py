"""Old field names in files of version 1.0, and their new names.

In version 1.0 all faults were deaths: {worker: 1, round: 2, how: kill} is now {kind: kill, worker: 1, round: 2}.
Held-out samples were not part of `samples`: {samples: 60, held_out: 20} is now {samples: 80, test: 20}.
"""

from collections.abc import Mapping
from typing import Any

_FIELDS = {  # kind of a delay model -> old name -> new name
    "replay": {"again": "resample_seed", "together": "common_start", "placed": "same_workers"},
    "heterogeneous": {"who": "slow_workers"},
    "markov": {"enter": "p_slow", "leave": "p_recover"},
}
_SCHEME = {"batch": "worker_batch"}  # parameter of a scheme: old name -> new name
# fields of an experiment that version 1.0 does not have; empty by default
NEW_FIELDS = "batch", "evaluate_every"
_DEATHS = ("kill", "segfault", "exit")  # values of the field `how` of version 1.0
_DOTTED = {old: new for names in _FIELDS.values() for old, new in names.items()}
# Fields of a profile, and of a fitted delay model in it: old name -> new name.
_PROFILE_FIELDS = {"very": "same_machines", "laws": "delay_models"}
_FIT_FIELDS = {"gap": "correlation_gap", "odd": "worst_correlation"}


def renamed(value: Any) -> Any:
    """Return the content of a file with the new field names, at any depth.

    >>> renamed({"delays": {"kind": "markov", "enter": 0.5}})
    {'delays': {'kind': 'markov', 'p_slow': 0.5}}
    >>> renamed({"grid": {"delays.leave": [0.5]}})
    {'grid': {'delays.p_recover': [0.5]}}
    >>> renamed({"faults": [{"worker": 1, "round": 2, "how": "exit"}]})
    {'faults': [{'kind': 'exit', 'worker': 1, 'round': 2}]}
    >>> renamed({"problem_args": {"samples": 60, "held_out": 20}})
    {'problem_args': {'samples': 80, 'test': 20}}
    """
    if isinstance(value, Mapping):
        if isinstance(value.get("held_out"), int):
            value = _with_test(value)
        if value.keys() == {"worker", "round", "how"}:
            return {"kind": value["how"], "worker": value["worker"], "round": value["round"]}
        names = _FIELDS.get(str(value.get("kind")), {})
        if {"delays", "distance", "tail"} <= value.keys():
            names = _FIT_FIELDS
        if {"port", "work", "typical"} <= value.keys():
            names = _PROFILE_FIELDS
        return {_name(key, names): renamed(_named(key, content, _SCHEME)) for key, content in value.items()}
    return type(value)(map(renamed, value)) if isinstance(value, list | tuple) else value


def renamed_profile(fields: Mapping[str, Any]) -> Any:
    """Return the fields of a profile with the new names, and without the links of earlier versions, which are unused.

    >>> renamed_profile({"very": True, "laws": [[{"delays": {}, "distance": 0.0, "tail": 1.0, "gap": 0.1}]]})
    {'same_machines': True, 'delay_models': [[{'delays': {}, 'distance': 0.0, 'tail': 1.0, 'correlation_gap': 0.1}]]}
    """
    return renamed({_PROFILE_FIELDS.get(k, k): value for k, value in fields.items() if k != "links"})


def _with_test(value: Mapping[str, Any]) -> dict[str, Any]:
    """Convert `held_out` of version 1.0 to `test`."""
    apart, found = value["held_out"], {name: each for name, each in value.items() if name != "held_out"}
    if apart and isinstance(found.get("samples"), int):
        found["samples"] += apart
    return {**found, **({"test": apart} if apart else {})}


def spelled_as_before(value: Any) -> Any:
    """Return settings with the field names of version 1.0. Their hash identifies the runs of a sweep.

    >>> spelled_as_before({"delays": {"kind": "markov", "p_slow": 0.5}})
    {'delays': {'kind': 'markov', 'enter': 0.5}}
    >>> spelled_as_before({"faults": [{"kind": "kill", "worker": 1, "round": 2}]})
    {'faults': [{'worker': 1, 'round': 2, 'how': 'kill'}]}
    """
    if isinstance(value, list):
        return [spelled_as_before(content) for content in value]
    if not isinstance(value, Mapping):
        return value
    if value.keys() == {"kind", "worker", "round"} and value["kind"] in _DEATHS:
        return {"worker": value["worker"], "round": value["round"], "how": value["kind"]}
    names = {new: old for old, new in _FIELDS.get(str(value.get("kind")), {}).items()}
    before = {new: old for old, new in _SCHEME.items()}
    return {names.get(key, key): spelled_as_before(_named(key, each, before)) for key, each in value.items()}


def without_unused(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return an experiment's fields without those that are empty and that version 1.0 does not have.

    Notebooks and keys of runs from version 1.0 then still match.

    >>> without_unused({"scheme": "CR", "batch": None, "evaluate_every": 5})
    {'scheme': 'CR', 'evaluate_every': 5}
    """
    return {name: value for name, value in spec.items() if name not in NEW_FIELDS or value is not None}


def _named(field: str, value: Any, names: Mapping[str, str]) -> Any:
    """Return the value of a field. In a scheme's parameters, old names are replaced."""
    if field != "scheme_args" or not isinstance(value, Mapping):
        return value
    return {names.get(key, key): content for key, content in value.items()}


def _name(key: Any, names: Mapping[str, str]) -> Any:
    """Return the new name of one field, which may be dotted as in a sweep."""
    if key == "scheme_args.batch":
        return "scheme_args.worker_batch"
    if isinstance(key, str) and key.startswith("delays."):
        head, _, last = key.rpartition(".")
        return f"{head}.{_DOTTED.get(last, last)}"
    return names.get(key, key)
