"""Exports for other programs: the layout of MLflow's file store, the rules of RO-Crate."""

from __future__ import annotations

import json
import os
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


def test_export_mlflow_layout(runs: Runs, tmp_path: Path) -> None:
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
def test_export_is_read_by_mlflow(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


# ------------------------------------------------------------------ names and files of other people

NAMES = ["/x/y", "../x", "..", ".", "a/../../b", "a\0b", "x" * 5000]
NAMES += ["loss/x", "rounds", "", " ", "~", "C:\\x", "ä/ö", "-"]


def odd(root: Path, tmp_path: Path) -> Runs:
    """Runs whose columns and tags have such names."""
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
        (home,) = (path for path in (target / "0").iterdir() if path.is_dir())
        kept = [path for path in (home / "metrics" / "rounds").iterdir() if path.read_text().count("\n") == 3]
        assert len(kept) >= len(NAMES) + 1 + 3
        assert all(len(path.name.encode()) <= 250 for path in home.rglob("*"))


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
