"""Experiments are validated, frozen, and read back from JSON and YAML."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import workbench as wb
from workbench.core.base.settings import SettingError
from workbench.core.experiment import put


def example() -> dict[str, Any]:
    """Return the fields of an experiment on the (12,2) tree of paper 1."""
    return {
        "scheme": "CR",
        "scheme_args": {"children": 12, "layers": 2, "stragglers": 3},
        "problem": "logistic",
        "problem_args": {"data": "synthetic", "samples": 6552, "features": 5000},
        "optimiser": "gd",
        "optimiser_args": {"step": 0.1},
        "workers": 156,
        "rounds": 300,
        "seed": 0,
        "delays": {"kind": "shifted_exponential", "shift": 5e-5, "rate": 2e4},
        "link": {"latency": 0.0, "bandwidth": 8e5},
    }


@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json"])
def test_experiment_reads_files(tmp_path: Path, suffix: str) -> None:
    e = wb.Experiment(**example())
    path = e.write(tmp_path / f"spec{suffix}")
    assert wb.Experiment.read(path) == e
    assert wb.Experiment.model_validate(yaml.safe_load(path.read_text())) == e


def test_experiment_fields_have_descriptions() -> None:
    for field in wb.Experiment.fields():
        assert field["description"], field
    for name in wb.schemes.names():
        assert all(f["description"] for f in wb.schemes.get(name).fields()), name


def test_experiment_reads_exponents_without_a_dot() -> None:
    assert wb.Experiment(**yaml.safe_load("link: {latency: 1e-3}")).link.latency == 1e-3


@pytest.mark.parametrize(
    "fields",
    [
        {"scheme": "GC", "scheme_args": {"stragglers": np.int64(2)}},
        {"scheme": "GC-MMC", "scheme_args": {"order": np.array([2, 3])}},
        {"scheme": "GC", "workers": 3, "scheme_args": {"matrix": np.eye(3), "stragglers": 0}},
        {"scheme": "UMW", "optimiser_args": {"milestones": np.arange(3), "step": np.float32(0.5)}},
        {"scheme": "UMW", "optimiser_args": {"milestones": range(3)}},
        {"scheme": "UMW", "workers": np.int32(5), "link": {"downloads": np.True_}},
    ],
)
def test_experiment_writes_numpy_numbers(fields: dict[str, Any], tmp_path: Path) -> None:
    """Without conversion, a run with NumPy numbers in its fields could not be saved."""
    e = wb.Experiment(**fields)
    assert wb.Experiment.read(e.write(tmp_path / "spec.yaml")) == e
    assert wb.Experiment(**json.loads(e.model_dump_json())) == e


def test_experiment_opens_no_data() -> None:
    e = wb.Experiment(
        scheme="CADA", scheme_args={"worker_batch": 7}, workers=3, problem_args={"data": "nowhere.csv"}
    )
    assert e.scheme_args == {"worker_batch": 7}


def test_experiment_builds_its_scheme_once() -> None:
    e = wb.Experiment(scheme="GC", scheme_args={"stragglers": 1}, workers=4)
    assert e.built_scheme is e.built_scheme
    changed = e.replace(scheme_args={"stragglers": 2})
    assert [x.built_scheme.stragglers for x in (e, changed)] == [1, 2]  # type: ignore[attr-defined]
    assert e == wb.Experiment(scheme="GC", scheme_args={"stragglers": 1}, workers=4)


def test_experiment_is_frozen() -> None:
    with pytest.raises(
        SettingError, match=r"^rounds = 3: settings cannot be changed; replace\(rounds=\.\.\.\)"
    ):
        wb.Experiment().rounds = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"round": 3}, ["round:", "no such field", "'rounds'"]),
        ({"rounds": 0}, ["rounds = 0", "take 1 or more"]),
        ({"rounds": 1.5}, ["rounds = 1.5", "whole number", "the nearest are 1 and 2"]),
        ({"seed": -1}, ["seed = -1"]),
        ({"scheme": "CRR"}, ["scheme = 'CRR'", "'CR'", "UMW"]),
        ({"problem": "logistics"}, ["problem = 'logistics'", "'logistic'"]),
        ({"optimiser": "sdg"}, ["optimiser = 'sdg'", "sgd"]),
        ({"optimiser_args": {"step": -1}}, ["optimiser_args.step = -1", "take a number above 0"]),
        ({"problem_args": {"sample": 3}}, ["problem_args.sample", "'samples'"]),
        ({"workers": 155}, ["workers = 155", "156"]),
        ({"delays": {"kind": "gauss"}}, ["delays.kind = 'gauss'", "pareto"]),
        ({"delays": {"kind": "pareto", "shape": 0.5}}, ["shape = 0.5", "take a number above 1"]),
        ({"delays": {}}, ["delays", "kind"]),
        ({"delays": "pareto"}, ["delays = 'pareto'", "fields and values"]),
        ({"scheme_args": 5}, ["scheme_args = 5", "fields and values"]),
        ({"faults": {"worker": 1}}, ["faults = {'worker': 1}", "is not a list"]),
        ({"rounds": "3"}, ["rounds = '3'", "write 3 without quotes"]),
        ({"rounds": 3.0}, ["rounds = 3.0", "write 3"]),
        ({"link": {"bandwidth": 0}}, ["link.bandwidth = 0", "take a number above 0"]),
        ({"link": {"latency": float("nan")}}, ["link.latency = nan", "finite"]),
        ({"faults": [{"worker": 157, "round": 0}]}, ["faults.worker = 157", "1 to 156"]),
        ({"faults": [{"worker": 1, "round": 7}], "rounds": 7}, ["faults.round = 7", "0 to 6"]),
        ({"scheme": "GC", "scheme_args": {"stragglers": 156}}, ["stragglers = 156", "0 to 155"]),
        (
            {"scheme": "GC", "scheme_args": {"stragglers": 4, "code": "fractional"}},
            ["= 4", "groups of 5", "take 1, 2, 3, 5"],
        ),
    ],
)
def test_experiment_refuses_a_bad_value(change: dict[str, Any], fields: list[str]) -> None:
    with pytest.raises(SettingError) as error:
        wb.Experiment(**{**example(), **change})
    text = str(error.value)
    assert all(word in text for word in fields), text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "found_text"),
    [
        ("rounds: [", "not valid YAML"),
        ("- 1", "must hold fields"),
        ("", "'scheme: CR', not nothing"),
        ("workers: 12\nworkers: 12", "'workers' occurs twice"),
        ("delays: {kind: pareto, shape: 0.5}", r"delays\.shape = 0\.5"),
        ("rounds: -3", "rounds = -3"),
        ("{}", None),
    ],
)
def test_experiment_read_names_a_bad_file(tmp_path: Path, text: str, found_text: str | None) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    if found_text is None:
        assert wb.Experiment.read(path) == wb.Experiment()
        return
    with pytest.raises(SettingError, match=found_text) as error:
        wb.Experiment.read(path)
    assert "spec.yaml" in str(error.value)
    assert "\n" not in str(error.value)


def test_experiment_reads_numbers_with_an_exponent_in_any_field(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("problem_args: {l2: 1e-3}\ndelays: {kind: constant, shift: 1e-3}\n")
    assert wb.Experiment.read(path) == wb.Experiment(
        problem_args={"l2": 1e-3}, delays={"kind": "constant", "shift": 1e-3}
    )


def test_experiment_file_format_follows_the_suffix(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"x\.toml': end it in \.json"):
        wb.Experiment().write(tmp_path / "x.toml")


def test_experiment_read_names_a_missing_file() -> None:
    with pytest.raises(SettingError, match="no such file"):
        wb.Experiment.read("nowhere.yaml")


def test_presets_have_the_papers_experiments() -> None:
    assert list(wb.presets) == [
        "fig2", "fig8", "fig9a", "fig9b", "fig9c", "fig10", "fig11a", "fig11b", "fig11c", "fig12", "fig13",
    ]  # fmt: skip
    fig9a = wb.presets["fig9a"]
    assert [e.scheme for e in fig9a] == ["UMW", "GC", "RAR", "SGD", "CR"]
    assert fig9a["GC"].scheme_args == {"stragglers": 13}  # alpha N = 156/12
    assert fig9a["CR"].shape() == (6552, 5001)
    assert fig9a.published["GC"] == 27.2
    assert json.loads(fig9a["CR"].model_dump_json())["workers"] == 156
    assert wb.presets["fig13"]["GC"].scheme_args == {"stragglers": 65}
    with pytest.raises(SettingError, match="fig8"):
        wb.presets["fig99"]
    with pytest.raises(SettingError, match=r"preset\['CR'\]"):
        wb.run(fig9a)


def test_every_error_that_docstrings_name_can_be_caught() -> None:
    with pytest.raises(wb.DataError, match="nowhere"):
        wb.run(wb.Experiment(problem_args={"data": "nowhere.csv", "samples": 24, "features": 3}))


@pytest.mark.parametrize(("problem", "features"), [("cnn", 3072), ("softmax", 2), ("logistic", 2)])
def test_experiment_refuses_data_of_another_kind_with_problem_names(
    tmp_path: Path, problem: str, features: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [",".join([*(features * ["0.5"]), str(k + 0.5)]) for k in range(60)]
    Path("real.csv").write_text("\n".join([",".join([*(f"x{i}" for i in range(features)), "y"]), *rows]))
    e = wb.Experiment(problem=problem, problem_args={"data": "real.csv"}, scheme="UMW", workers=2)
    with pytest.raises(
        wb.DataError, match=rf"^problem: '{problem}' does not suit '.*use 'least_squares', or"
    ):
        e.build_problem()


def test_import_workbench_is_light() -> None:
    """Heavy libraries are not imported before they are needed."""
    import subprocess
    import sys

    heavy = "{'pandas', 'plotly', 'sklearn', 'scipy', 'IPython', 'mpi4py', 'pyarrow', 'numpy'}"
    code = f"import sys, workbench; print(sorted({heavy} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )
    code = f"import sys, workbench as wb; wb.Experiment(); print(sorted({heavy} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "['numpy']\n"
    )


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"rounds": 10**23}, f"rounds = {10**23}: is too large; take 100000000 or less"),
        ({"rounds": 1e23}, "rounds = 1e+23: is not a whole number; take 1 or more"),
        (
            {"rounds": 10**5000},
            "rounds = a number of thousands of digits: is too large; take 100000000 or less",
        ),
        ({"workers": 10**23}, f"workers = {10**23}: is too large; take 1000000 or less"),
        ({"problem_args": {"samples": 10**23}}, f"problem_args.samples = {10**23}: is too large"),
        ({"problem_args": {"features": 10**23}}, f"problem_args.features = {10**23}: is too large"),
        (
            {"problem": "unit", "problem_args": {"samples": 10**23}},
            f"problem_args.samples = {10**23}: is too large",
        ),
    ],
)
def test_experiment_refuses_impossible_sizes(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError) as caught:
        wb.Experiment(**fields)
    assert str(caught.value).startswith(says)


def test_experiment_fields_with_large_numbers_keep_slider_ranges() -> None:
    limits = {f["name"]: f for f in wb.Experiment.fields()}
    assert not {"maximum", "exclusiveMaximum"} & {*limits["rounds"], *limits["workers"]}


def test_experiment_put_by_dotted_name() -> None:
    """`--set` and sweeps use dotted names. The error names the value that has no fields."""
    spec: dict[str, Any] = {"workers": 6}
    put(spec, "scheme_args.stragglers", 2)
    put(spec, "delays", {"rate": 3.0})
    assert spec == {
        "workers": 6,
        "scheme_args": {"stragglers": 2},
        "delays": {"kind": "shifted_exponential", "rate": 3.0},
    }
    put(spec, "delays.kind", "constant")
    assert spec["delays"] == {"kind": "constant", "rate": 3.0}
    with pytest.raises(SettingError, match=r"^workers\.x\.y = 3: workers has no fields; set workers itself$"):
        put(spec, "workers.x.y", 3)


def test_experiment_signature_shows_only_fields() -> None:
    assert list(inspect.signature(wb.Experiment).parameters) == list(wb.Experiment.model_fields)
