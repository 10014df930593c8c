"""The commands `workbench profile` and `workbench plan`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import workbench as wb
from tests.support.sampled_cases import sampled_test
from workbench.analysis.planning.measuring import simulated
from workbench.cli.main import cli


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    truth = wb.Experiment(
        scheme="UMW", workers=6, link={"latency": 1e-3, "bandwidth": 1e5, "downloads": True}
    )
    return simulated(truth, rounds=12, resamples=3).save(tmp_path_factory.mktemp("p") / "lab.json")


@sampled_test("a plan", 0, 2)
def test_plan_command_prints_table_sentence_and_figure(file: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    wb.Experiment(
        workers=6,
        scheme="UMW",
        problem_args={"samples": 240, "features": 60},
        rounds=15,
        optimiser_args={"step": 0.5},
    ).write(spec)
    best, picture = tmp_path / "best.yaml", tmp_path / "plan.html"
    texts = ["plan", str(file), str(spec), "--effort", "0", "-o", str(best), "--picture", str(picture)]
    done = CliRunner().invoke(cli, texts)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].split()[:2] == ["scheme", "time"]
    assert any(line.startswith("not ranked: ") for line in lines)
    assert "fastest: share of the resampled predictions" in lines
    assert "fastest" in lines[0].split()
    assert "plotly" in picture.read_text()
    chosen = wb.Experiment.read(best)
    assert (chosen.workers, chosen.rounds, chosen.optimiser_args) == (6, 15, {"step": 0.5})
    assert lines[1].startswith(chosen.scheme)


def test_plan_command_table_marks_inexact_schemes(file: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    problem = {"problem": "logistic", "problem_args": {"samples": 240, "features": 20}}
    wb.Experiment(workers=6, scheme="UMW", rounds=20, **problem).write(spec)
    texts = [
        "plan",
        str(file),
        str(spec),
        "--scheme",
        "UMW",
        "--scheme",
        "D-Adam",
        "--scheme",
        "SGD",
        "--picture",
    ]
    done = CliRunner().invoke(cli, [*texts, str(tmp_path / "plan.html")])
    assert done.exit_code == 0, done.output
    rows = {line.split("  ")[0]: line for line in done.stdout.splitlines()}
    assert rows["scheme"].endswith("  step")
    assert "  gd step " in rows["UMW"]
    limit = "in 3 times the time of the fastest exact scheme"
    assert any(line.startswith("not ranked: D-Adam") and line.endswith(limit) for line in rows.values())
    assert any(name.startswith("≈ SGD") for name in rows)
    assert "≈: inexact, it commits estimates of the gradient; rounds are simulated" in done.stdout


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["plan", "none.json"], "no such file"),
        (["plan", "{file}", "--scheme", "CX"], "scheme = 'CX'"),
        (["plan", "{file}", "--picture", "p.gif"], "picture = 'p.gif'"),
        (["plan", "{file}", "-o", "best.txt"], "output = 'best.txt'"),
        (["profile", "nowhere", "-o", "p.json"], "nowhere"),
        (["profile", "local", "-o", "p.txt"], "output = 'p.txt'"),
        (["profile", "local", "--rounds", "2"], "rounds = 2"),
    ],
)
def test_plan_command_errors_are_one_sentence(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, [word.format(file=file) for word in argv])
    assert done.exit_code != 0
    assert isinstance(done.exception, wb.SettingError)
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
@sampled_test("a plan", 1, 2)
def test_plan_command_measures_this_machine(tmp_path: Path) -> None:
    file = tmp_path / "here.json"
    done = CliRunner().invoke(cli, ["profile", "local", "--workers", "3", "--rounds", "8", "-o", str(file)])
    assert done.exit_code == 0, done.output
    assert "\nlink: " in done.stdout
    assert f"written to {file}" in done.output
    assert wb.ClusterProfile.load(file).workers == 3
    assert (tmp_path / "here.html").is_file()
