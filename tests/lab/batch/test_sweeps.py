"""The runs of a sweep, and settings that are refused before any run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.core.base.settings import SettingError
from workbench.lab.batch import Sweep
from workbench.lab.batch.sweeps import MAX_RUNS, label, make_item


def experiments(**fields: Any) -> list[wb.Experiment]:
    return [item.experiment for item in Sweep(**fields).items()]


def test_sweep_items_cross_cases_grid_and_seeds() -> None:
    found = experiments(
        base={"workers": 12, "rounds": 3, "seed": 5},
        cases=[{"scheme": "UMW"}, {"scheme": "GC", "scheme_args": {"stragglers": 1}}],
        grid={"delays.rate": [1e3, 2e3], "link.latency": [0.0]},
        seeds=2,
    )
    assert [(e.scheme, e.delays.rate, e.seed) for e in found] == [  # type: ignore[union-attr]
        (scheme, rate, seed) for scheme in ("UMW", "GC") for rate in (1e3, 2e3) for seed in (5, 6)
    ]
    assert {e.scheme_args.get("stragglers") for e in found} == {None, 1}


def test_sweep_without_sections_is_one_run() -> None:
    assert len(experiments()) == 1
    assert len(experiments(grid={"rounds": [3, 3, 4]})) == 2
    assert [e.seed for e in experiments(seeds=[7, 3])] == [7, 3]


def test_sweep_converts_numpy_values() -> None:
    (item, *_) = Sweep(grid={"delays.rate": np.geomspace(1e3, 1e5, 3), "rounds": np.arange(1, 3)}).items()
    assert type(item.changes["delays.rate"]) is float
    assert type(item.changes["rounds"]) is int
    json.dumps(item.spec)  # the parameters of the notebook


@given(st.integers(1, 20), st.integers(0, 2**32))
def test_sample_extends_earlier_draws_within_the_range(count: int, seed: int) -> None:
    fields = {
        "delays.rate": {"low": 10, "high": 1e4, "scale": "log"},
        "rounds": {"low": 2, "high": 4, "whole": True},
        "scheme": ["CR", "UMW"],
    }
    few, many = (wb.batch.Sample(count=n, seed=seed, fields=fields).draws() for n in (count, count + 5))
    assert many[:count] == few
    assert all(10 <= d["delays.rate"] <= 1e4 and d["rounds"] in (2, 3, 4) for d in many)
    alone = wb.batch.Sample(count=count, seed=seed, fields={"rounds": fields["rounds"]}).draws()
    assert [d["rounds"] for d in alone] == [d["rounds"] for d in few]


def test_sample_log_is_uniform_in_the_exponent() -> None:
    fields = {"a": {"low": 1, "high": 1e4, "scale": "log"}, "b": {"low": 1, "high": 3, "whole": True}}
    draws = wb.batch.Sample(count=4000, fields=fields).draws()
    quarter = np.histogram(np.log10([d["a"] for d in draws]), bins=[0, 1, 2, 3, 4])[0] / 4000
    assert np.abs(quarter - 0.25).max() < 0.04
    third = np.bincount([d["b"] for d in draws])[1:] / 4000
    assert np.abs(third - 1 / 3).max() < 0.04


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"grid": {"shceme": ["CR"]}}, "field = 'shceme'.*did you mean 'scheme'"),
        ({"grid": {"scheme_args.stragler": [1]}}, "CR has no such field.*stragglers"),
        ({"grid": {"rounds": [0, 5]}}, r"run 1 of 2 \(rounds=0\): rounds = 0: take 1 or more"),
        ({"grid": {"rounds": ["many"]}}, "rounds = 'many'"),
        ({"grid": {"rounds": [2.5]}}, "rounds = 2.5"),
        ({"grid": {"rounds": [True]}}, "rounds = True: is not a number"),
        ({"grid": {"rounds.x": [1]}}, "rounds"),
        ({"grid": {"decode_rate.x.y": [1]}}, "decode_rate"),
        ({"grid": {"rounds": 5}}, r"grid\.rounds = 5: give a list"),
        ({"grid": {"rounds": []}}, r"grid\.rounds = \[\]: is empty"),
        ({"grid": {"delays.rte": [1]}}, "delays.*rte.*rate"),
        ({"grid": {"scheme": ["CR", "GD"]}}, "run 2 of 2.*scheme = 'GD'"),
        ({"grid": {"workers": [5, 7]}}, r"workers = 5.*\(1 other run cannot start either\)"),
        ({"grid": {"seed": [1]}, "seeds": 2}, "seeds: sets seed, which grid sets too"),
        ({"cases": [{"rounds": 3}], "grid": {"rounds": [4]}}, "grid: sets rounds, which cases sets too"),
        ({"seeds": 0}, "seeds = 0: leaves no run"),
        ({"seeds": []}, "leaves no run"),
        ({"base": {"seed": "x"}, "seeds": 2}, r"base\.seed = 'x'"),
        ({"engine": "mip"}, "engine = 'mip'"),
        ({"cluster": "local"}, "cluster = 'local': the virtual clock"),
        ({"engine": "mpi", "cluster": "lokal"}, "cluster = 'lokal'.*did you mean 'local'"),
        ({"sample": {"count": 0, "fields": {"rounds": [1]}}}, r"sample\.count = 0"),
        (
            {"sample": {"count": 1, "fields": {"rounds": {"low": 1}}}},
            r"sample\.fields\.rounds\.high: is missing",
        ),
        ({"sample": {"count": 1, "fields": {"rounds": {"low": 5, "high": 2}}}}, "low = 5: is above high = 2"),
        ({"sample": {"count": 1, "fields": {"x": {"low": 0, "high": 2, "scale": "log"}}}}, "needs low > 0"),
        ({"sample": {"count": 1, "fields": {"rounds": []}}}, "is empty"),
        ({"sample": {"count": 1, "fields": {"rounds": 3}}}, "give a list"),
        ({"sedes": 2}, "Sweep has no such field.*seeds"),
        ({"base": 3}, "base = 3"),
    ],
)
def test_sweep_refuses_what_cannot_run(fields: dict[str, Any], error: str) -> None:
    with pytest.raises(SettingError, match=error) as caught:
        Sweep(**fields).items()
    assert "\n" not in str(caught.value)


@given(
    st.text(min_size=1, max_size=30).filter(lambda text: text.split(".")[0] not in wb.Experiment.model_fields)
)
def test_sweep_accepts_only_names_of_fields(name: str) -> None:
    with pytest.raises(SettingError):
        Sweep(grid={name: [1]}).items()


@pytest.mark.parametrize("name", ["rounds=1;import os;x", "rounds\nimport os", "__import__('os')", "rounds "])
def test_sweep_refuses_names_of_code(name: str) -> None:
    for fields in ({"base": {name: 1}}, {"cases": [{name: 1}]}, {"grid": {name: [1]}}):
        with pytest.raises(SettingError, match="no such name"):
            Sweep(**fields).items()


@given(st.text(max_size=80))
def test_make_item_folder_name_follows_from_the_settings(text: str) -> None:
    item = make_item({"problem_args": {"data": "synthetic"}}, {"problem": "logistic"})
    odd = type(item)({"problem_args.data": text}, item.experiment, item.engine, item.cluster)
    assert odd.name.endswith(item.key)
    assert Path(odd.name).name == odd.name
    assert not odd.name.startswith((".", "-"))
    assert odd.name.isascii()
    assert len(odd.name) < 80


def test_make_item_key_changes_with_every_setting() -> None:
    keys = {
        make_item(base, {}, engine).key
        for base in ({}, {"rounds": 7}, {"seed": 1}, {"link": {"latency": 1e-9}})
        for engine in ("sim", "other")
    }
    assert len(keys) == 8
    assert make_item({"rounds": 7}, {}).key == make_item({}, {"rounds": 7}).key
    assert label({"scheme_args": {"stragglers": 2}, "delays.rate": 1e-3}) == "stragglers=2,rate=0.001"


def test_sweep_default_cluster() -> None:
    (item,) = Sweep(engine="mpi").items()
    assert item.cluster == "local"
    assert item.key == Sweep(engine="mpi", cluster="local").items()[0].key
    assert Sweep().items()[0].cluster == ""


def test_sweep_file_and_spec(tmp_path: Path) -> None:
    wb.Experiment(scheme="UMW", workers=4, rounds=9).write(tmp_path / "base.yaml")
    file = tmp_path / "sweep.yaml"
    file.write_text("base: base.yaml\ngrid: {link.latency: [1e-3, 2e-3]}\nseeds: 2\n")
    assert {(e.rounds, e.link.latency) for e in (i.experiment for i in Sweep.read(file).items())} == {
        (9, 1e-3),
        (9, 2e-3),
    }
    file.write_text("grid: {rounds: 3}\n")
    with pytest.raises(SettingError, match=r"sweep\.yaml: grid\.rounds = 3"):
        Sweep.read(file)


def test_sweep_json_round_trip() -> None:
    sweep = Sweep(
        base={"rounds": 3},
        cases=[{"scheme": "UMW"}],
        grid={"delays.rate": [1.0, 2.0]},
        sample={"count": 2, "fields": {"link.latency": {"low": 0, "high": 1}}},
        seeds=(1, 2),
    )
    again = Sweep(**json.loads(json.dumps(sweep.model_dump(mode="json", by_alias=True, exclude_unset=True))))
    assert [i.key for i in again.items()] == [i.key for i in sweep.items()]
    assert sweep.replace(seeds=1).seeds == 1


HUNDRED = list(range(1, 101))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"seeds": 10**9},
            "seeds = 1000000000: 1000000000 runs are too many for one sweep; take at most 100000",
        ),
        ({"seeds": 10**23}, f"seeds = {10**23}: {10**23} runs"),
        ({"seeds": range(10**9)}, "seeds: 1000000000 runs are too many"),
        ({"grid": {"seed": range(10**9)}}, "grid.seed = 1000000000: 1000000000 runs are too many"),
        (
            {"grid": dict.fromkeys(("rounds", "workers", "seed", "a.b", "c.d", "e.f"), HUNDRED)},
            "grid.rounds = 100: 1000000000000 runs are too many",
        ),
        (
            {"sample": {"count": 10**9, "fields": {"rounds": [1]}}},
            "sample.count = 1000000000: 1000000000 runs",
        ),
        ({"cases": [{"rounds": 2}] * 1000, "seeds": 101}, "cases = 1000: 101000 runs are too many"),
        ({"grid": {"rounds": np.array(5)}}, r"grid.rounds = 5: give a list of values"),
    ],
)
def test_sweep_counts_runs_before_listing_them(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=f"^{says}"):
        Sweep(**fields)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=3), st.integers(1, 60))
def test_sweep_limit_of_runs(lengths: list[int], seeds: int) -> None:
    axes = {f"scheme_args.f{i}": [0] * length for i, length in enumerate(lengths)}
    if (runs := int(np.prod(lengths)) * seeds) > MAX_RUNS:
        with pytest.raises(SettingError, match=r": \d{6,} runs are too many"):
            Sweep(grid=axes, seeds=seeds)
        return
    sweep = Sweep(grid=axes, seeds=seeds)
    assert runs > 2000 or len(list(sweep._changes())) == runs
