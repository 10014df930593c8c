"""Exports to MLflow and RO-Crate, read by their own libraries."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support.sampled_cases import rotated
from workbench.analysis.tables.about import describe, keep
from workbench.analysis.tables.table import Runs
from workbench.core.base.errors import MissingLayer


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    root = tmp_path_factory.mktemp("runs")
    for scheme in ("UMW", "SGD"):
        keep(wb.run(wb.Experiment(scheme=scheme, workers=4, rounds=5)), root, scheme, "a note", ["x", "y z"])
    half = wb.run(wb.Experiment(rounds=2)).save(root / "half")
    (half / "run.json").unlink()
    return wb.runs(root)


def mlflow_client(folder: Path) -> Any:
    """Return MLflow's own client of an exported database."""
    mlflow = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    return mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")


def mlflow_runs(client: Any) -> dict[str, Any]:
    """Return the runs by name, with archived ones."""
    (experiment,) = (e for e in client.search_experiments() if e.name == "straggler-workbench")
    return {run.info.run_name: run for run in client.search_runs([experiment.experiment_id], run_view_type=3)}


def test_export_mlflow_runs_have_settings_and_notes(runs: Runs, tmp_path: Path) -> None:
    client = mlflow_client(runs.export(tmp_path / "mlruns", "mlflow"))
    found = mlflow_runs(client)
    assert set(found) == {"UMW", "SGD", "half"}
    assert {name: run.info.status for name, run in found.items()} == {
        "UMW": "FINISHED",
        "SGD": "FINISHED",
        "half": "KILLED",
    }
    run, trace = found["SGD"], runs.where(scheme="SGD").traces()[0]
    assert (run.data.params["scheme"], run.data.params["workers"]) == ("SGD", "4")
    assert run.data.tags["tag y z"] == "true"
    assert run.data.tags["mlflow.note.content"] == "a note"
    assert run.data.metrics["time"] == trace.columns["time"][-1]


def test_export_mlflow_curves_have_every_point(runs: Runs, tmp_path: Path) -> None:
    client = mlflow_client(runs.export(tmp_path / "mlruns", "mlflow"))
    found = mlflow_runs(client)
    for trace in runs.traces():
        for name, column in trace.columns.items():
            points = client.get_metric_history(found[trace.label].info.run_id, f"rounds/{name}")
            points = sorted(points, key=lambda point: point.step)
            assert [point.step for point in points] == list(range(5))
            np.testing.assert_array_equal([point.value for point in points], column)


@rotated
def test_export_mlflow_of_long_curves_and_archived_runs(tmp_path: Path) -> None:
    trace = wb.run(wb.Experiment(scheme="UMW", workers=2, rounds=1203, problem_args={"samples": 20}))
    folder = keep(trace, tmp_path / "runs", "long", "", [f"t{i}" for i in range(130)])
    describe(folder, archived=True)
    client = mlflow_client(wb.runs(tmp_path / "runs").export(tmp_path / "mlruns", "mlflow"))
    (run,) = mlflow_runs(client).values()
    assert run.info.lifecycle_stage == "deleted"
    assert sum(name.startswith("tag t") for name in run.data.tags) == 130
    points = client.get_metric_history(run.info.run_id, "rounds/loss")
    assert [p.value for p in sorted(points, key=lambda p: p.step)] == trace.columns["loss"].tolist()


@pytest.mark.parametrize(
    ("form", "package", "extra"), [("mlflow", "mlflow", "mlflow"), ("ro-crate", "rocrate", "metadata")]
)
def test_export_names_a_missing_extra(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, package: str, extra: str
) -> None:
    for name in [name for name in sys.modules if name.startswith((package, "workbench.analysis.tables."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # as if the package were not installed
    with pytest.raises(
        MissingLayer, match=rf"needs {package}.* pip install 'straggler-workbench\[{extra}\]'"
    ):
        runs.export(tmp_path / "out", form)
    assert not list(tmp_path.iterdir())


def test_export_crate_is_read_by_rocrate(runs: Runs, tmp_path: Path) -> None:
    reader = pytest.importorskip("rocrate.rocrate", reason="the extra metadata is not installed")
    crate = reader.ROCrate(runs.export(tmp_path / "crate", "ro-crate"))
    made = crate.get_by_type("CreateAction")
    assert sorted(run["name"] for run in crate.root_dataset["hasPart"] if run.type == "Dataset") == [
        "SGD",
        "UMW",
    ]
    assert {action["object"]["name"] for action in made} == {"spec.json"}
    assert {pair["value"] for pair in crate.get_by_type("PropertyValue") if pair["name"] == "rounds"} == {5}


def test_export_crate_lists_exactly_its_files(runs: Runs, tmp_path: Path) -> None:
    folder = runs.export(tmp_path / "crate", "ro-crate")
    crate = json.loads((folder / "ro-crate-metadata.json").read_text())
    entities = {entity["@id"]: entity for entity in crate["@graph"]}
    assert len(entities) == len(crate["@graph"])
    assert crate["@context"] == "https://w3id.org/ro/crate/1.1/context"
    assert entities["ro-crate-metadata.json"]["conformsTo"]["@id"] == "https://w3id.org/ro/crate/1.1"
    assert {"name", "description", "datePublished", "license"} <= set(entities["./"])

    def referred(value: object) -> list[str]:
        if isinstance(value, dict):
            return (
                [value["@id"]] if set(value) == {"@id"} else [i for v in value.values() for i in referred(v)]
            )
        return [i for v in value for i in referred(v)] if isinstance(value, list) else []

    links = {i for entity in crate["@graph"] for i in referred({**entity, "@type": ""})}
    assert links - set(entities) == {"https://w3id.org/ro/crate/1.1"}
    files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert {i for i, e in entities.items() if e["@type"] == "File"} == files - {"ro-crate-metadata.json"}
    assert [e["name"] for i, e in entities.items() if i.endswith("/") and i != "./"] == ["SGD", "UMW"]
    assert [t.label for t in wb.runs(folder).traces()] == ["SGD", "UMW"]


def test_export_overwrites_nothing(runs: Runs, tmp_path: Path) -> None:
    for form in ("mlflow", "ro-crate"):
        with pytest.raises(wb.SettingError, match="exists already"):
            runs.export(tmp_path, form)
    with pytest.raises(wb.SettingError, match="no format for 'xml'"):
        runs.export(tmp_path / "x", "xml")


# ------------------------------------------------------------------ names and files from other users

NAMES = ["/x/y", "../x", "..", ".", "a/../../b", "a\0b", "x" * 5000]
NAMES += ["loss/x", "rounds", "", " ", "~", "C:\\x", "ä/ö", "-"]


def odd(root: Path, tmp_path: Path) -> Runs:
    """Make runs whose columns and tags have unusual names."""
    trace = wb.run(wb.Experiment(scheme="UMW", workers=4, rounds=3))
    absolute = f"{tmp_path}/outside/absolute"
    for name in [*NAMES, absolute]:
        trace.columns[name] = trace.columns["loss"]
    keep(trace, root, "odd", "a note", [*NAMES, absolute])
    return wb.runs(root)


@pytest.mark.parametrize("form", ["mlflow", "ro-crate", "csv", "parquet"])
def test_export_writes_only_inside_the_target(form: str, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    runs = odd(tmp_path / "runs", tmp_path)
    before = set(tmp_path.rglob("*"))
    target = runs.export(tmp_path / "target", form)
    outside = {path for path in tmp_path.rglob("*") if target not in (path, *path.parents)}
    assert outside == before
    assert not Path("/x/y").exists()
    if form == "mlflow":
        client = mlflow_client(target)
        (run,) = mlflow_runs(client).values()
        curves = [name for name in run.data.metrics if name.startswith("rounds/")]
        assert len(curves) >= len(NAMES) + 1 + 3
        assert all(len(client.get_metric_history(run.info.run_id, name)) == 3 for name in curves)


def test_export_columns_of_user_files_do_not_replace_built_in_ones(tmp_path: Path) -> None:
    trace = wb.run(wb.Experiment(scheme="UMW", workers=4, rounds=3))
    for name in ("state", "folder", "run", "workers", "note"):
        trace.columns[name] = trace.columns["loss"]
    folder = keep(trace, tmp_path, "odd", "mine")
    (row,) = wb.runs(tmp_path).table.to_dict("records")
    assert (row["state"], row["folder"], row["workers"], row["note"]) == ("done", str(folder), 4, "mine")


@pytest.mark.skipif(os.name != "posix", reason="links and pipes")
def test_export_crate_skips_links_and_pipes(tmp_path: Path) -> None:
    folder = wb.run(wb.Experiment(scheme="UMW", workers=4, rounds=3)).save(tmp_path / "runs" / "run")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("secret of mine")
    (folder / "key").symlink_to(tmp_path / "private" / "key")
    (folder / "all").symlink_to(tmp_path / "private")
    (folder / "within").mkdir()
    (folder / "within" / "key").symlink_to("../../../private/key")
    (folder / "zeros").symlink_to("/dev/zero")
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    crate = wb.runs(tmp_path / "runs").export(tmp_path / "crate", "ro-crate")
    found = {path.relative_to(crate / "runs" / "00000").as_posix() for path in (crate / "runs").rglob("*")}
    assert {"spec.json", "model.npy", "within"} <= found
    assert not found & {"key", "all", "all/key", "within/key", "zeros", "loop", "pipe"}
    assert all(
        "secret of mine" not in path.read_text(errors="replace")
        for path in crate.rglob("*")
        if path.is_file()
    )


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_export_crate_refuses_a_run_whose_own_file_is_a_link(tmp_path: Path) -> None:
    folder = wb.run(wb.Experiment(scheme="UMW", workers=4, rounds=3)).save(tmp_path / "runs" / "run")
    (folder / "model.npy").rename(tmp_path / "model.npy")
    (folder / "model.npy").symlink_to(tmp_path / "model.npy")
    with pytest.raises(wb.SettingError, match=r"model\.npy is a link"):
        wb.runs(tmp_path / "runs").export(tmp_path / "crate", "ro-crate")
    assert not (tmp_path / "crate").exists()
