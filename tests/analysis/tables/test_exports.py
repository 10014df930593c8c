"""What other programs read: MLflow's file store by its layout, RO-Crate by its rules."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

import workbench as wb
from workbench.analysis.tables.about import keep
from workbench.analysis.tables.table import Runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    root = tmp_path_factory.mktemp("runs")
    for scheme in ("UMW", "SGD"):
        keep(wb.run(wb.Experiment(scheme=scheme, workers=4, rounds=5)), root, scheme, "a note", ["x", "y z"])
    half = wb.run(wb.Experiment(rounds=2)).save(root / "half")
    (half / "run.json").unlink()
    return wb.runs(root)


def test_mlflows_layout(runs: Runs, tmp_path: Path) -> None:
    store = runs.export(tmp_path / "mlruns", "mlflow")
    assert yaml.safe_load((store / "0" / "meta.yaml").read_text())["experiment_id"] == "0"
    homes = [path for path in (store / "0").iterdir() if path.is_dir()]
    assert len(homes) == 3
    assert all(re.fullmatch("[0-9a-f]{32}", home.name) for home in homes)
    (home,) = (h for h in homes if (h / "tags" / "mlflow.runName").read_text() == "UMW")
    meta = yaml.safe_load((home / "meta.yaml").read_text())
    assert (meta["run_id"], meta["status"], meta["lifecycle_stage"]) == (home.name, 3, "active")
    assert (home / "params" / "workers").read_text() == "4"
    assert (home / "tags" / "tag y z").read_text() == "true"
    trace = wb.Trace.load(runs.root / "umw") if runs.root else None
    assert trace is not None
    lines = [line.split() for line in (home / "metrics" / "rounds" / "loss").read_text().splitlines()]
    assert [float(value) for _, value, _ in lines] == trace.columns["loss"].tolist()
    assert [int(step) for _, _, step in lines] == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_mlflow_reads_it(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # newer ones keep it only for those who ask
    store = runs.export(tmp_path / "mlruns", "mlflow")
    client = mlflow.MlflowClient(tracking_uri=store.as_uri())
    found = {run.info.run_name: run for run in client.search_runs(["0"])}
    assert {"UMW", "SGD", "half"} <= set(found)
    run, trace = found["SGD"], runs.where(scheme="SGD").traces()[0]
    assert run.data.params["scheme"] == "SGD"
    assert run.data.metrics["time"] == trace.columns["time"][-1]
    history = client.get_metric_history(run.info.run_id, "rounds/loss")
    assert [point.value for point in history] == trace.columns["loss"].tolist()


def test_a_crate_says_what_lies_in_it_and_nothing_else(runs: Runs, tmp_path: Path) -> None:
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


def test_what_is_there_is_not_written_over(runs: Runs, tmp_path: Path) -> None:
    for form in ("mlflow", "ro-crate"):
        with pytest.raises(wb.SettingError, match="exists already"):
            runs.export(tmp_path, form)
    with pytest.raises(wb.SettingError, match="no format for 'xml'"):
        runs.export(tmp_path / "x", "xml")
