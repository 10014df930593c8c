"""The command line: it fills an Experiment, and reports errors in one sentence."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import workbench as wb
from workbench.analysis.planning.measuring import simulated
from workbench.cli.main import cli, main


def call(monkeypatch: pytest.MonkeyPatch, *text: str) -> int:
    monkeypatch.setattr(sys, "argv", ["workbench", *text])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


SMALL = ["--rounds", "3", "--scheme", "UMW", "--workers", "4"]


def test_run_command_writes_a_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = wb.Experiment(scheme="GC", workers=6, rounds=50).write(tmp_path / "spec.yaml")
    out = tmp_path / "run"
    assert (
        call(monkeypatch, "run", str(spec), "--rounds", "4", "--set", "link.latency=1e-3", "-o", str(out))
        == 0
    )
    trace = wb.Trace.load(out)
    assert (trace.experiment.scheme, len(trace.rounds), trace.experiment.link.latency) == ("GC", 4, 1e-3)
    assert "4 rounds" in capsys.readouterr().out
    assert call(monkeypatch, "run", str(spec), "-o", str(out)) == 2
    assert "exists already" in capsys.readouterr().err


def test_run_command_with_mini_batches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert call(monkeypatch, "run", *SMALL, "--set", "batch=64", "-o", str(out)) == 0
    assert "UMW: 3 rounds of 64 samples, " in capsys.readouterr().out
    e = wb.Experiment.read(wb.Trace.load(out).experiment.write(tmp_path / "again.yaml"))
    assert (e.batch, e.evaluate_every) == (64, None)
    assert call(monkeypatch, "run", *SMALL, "--set", "batch=2") == 2
    assert "batch = 2: UMW cuts the data into 4 parts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["run", "nowhere.yaml"], r"nowhere\.yaml: no such file"),
        (["run", "--workers", "5"], r"workers = 5: the \(3,2\) tree has 12"),
        (["run", *SMALL, "--set", "scheme_args.s=1"], r"scheme_args\.s: UMW has no such field"),
        (["run", *SMALL, "--set", "rounds"], "FIELD=VALUE"),
        (["run", *SMALL, "--engine", "mip"], "engine = 'mip'"),
        (["run", *SMALL, "--set", "problem_args.data=nowhere.csv"], r"problem_args\.data.*nowhere\.csv"),
        (["schemes", "GD"], "scheme = 'GD'.*choose one of"),
        (["schemes", "gc"], "scheme = 'gc': no such name; did you mean 'GC'"),
        (["delays", "gauss"], "delays.kind = 'gauss'"),
        (["presets", "fig7"], "preset = 'fig7'"),
        (["run", "--rounds", "x"], "x"),
        (["run", *SMALL, "--set", "delays.rate=-3"], r"delays\.rate = -3: .*above 0"),
        (
            ["run", *SMALL, "--set", "delays.shape=0.5", "--set", "delays.kind=pareto"],
            r"delays\.shape = 0\.5",
        ),
        (
            ["run", *SMALL, "--set", "problem_args.data=digits"],
            "problem: 'logistic' .*use 'softmax' or 'least_sq",
        ),
        (["run", *SMALL, "--problem", "cnn", "--set", "problem_args.data=digits"], "has 64 features"),
        (["run", *SMALL, "-o", "/dev/null/run"], "output = '/dev/null/run': cannot be written"),
        (["profile", "-o", "/dev/null/p.json"], "output = '/dev/null/p.json': cannot be written"),
        (["reproduce", "ec2", "-o", "/dev/null"], "output = '/dev/null': cannot be written"),
        (["presets", "fig8", "-o", "/dev/null"], "output = '/dev/null': cannot be written"),
        (["runs", "nosuch", "-o", "nosuch/t.csv"], "nosuch"),
        (["profile", "-o", "/proc/p.json"], "output = '/proc/p.json': cannot be written"),
        (
            ["run", "--rounds", "1" + 20 * "0", "--scheme", "UMW"],
            "rounds = 1.*is too large; take 100000000 or less",
        ),
        (["sweep", "x.yaml", "--timeout", "-3"], "'--timeout': -3.0"),
        (["sweep", "x.yaml", "-j", "0"], "'--jobs': 0"),
        (["run", "--set", "=1"], "--set =1: write FIELD=VALUE"),
        (["run", "--set", "delays..kind=1"], r"--set delays\.\.kind=1: write FIELD=VALUE"),
        (["run", "-o", "x" * 300], "output = 'x.*: has a name of 300 bytes; take at most 255"),
        (["run", "--set", "problem_args=" + "{a: " * 100 + "1" + "}" * 100], "is not a value in YAML"),
        (["resume", "."], r"folder = '\.': holds no run on real processes; give"),
        (["rum"], "rum"),
    ],
)
def test_cli_errors_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], argv: list[str], error: str
) -> None:
    assert call(monkeypatch, *argv) == 2
    text = capsys.readouterr().err
    assert re.search(error, text), text
    assert "Traceback" not in text


def test_cli_help_comes_from_the_fields(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "run", "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    for field in wb.Experiment.fields():
        if field.get("type") in ("string", "integer"):
            assert f"--{field['name']}" in text
            assert " ".join(field["description"].split()) in text


def test_list_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert call(monkeypatch, "schemes") == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in wb.schemes.names())
    for name in wb.schemes.names():
        assert call(monkeypatch, "schemes", name) == 0
    assert call(monkeypatch, "delays", "markov") == 0
    assert "probability per round" in capsys.readouterr().out
    assert call(monkeypatch, "presets") == 0
    assert call(monkeypatch, "presets", "fig8", "-o", str(tmp_path / "fig8")) == 0
    assert wb.Experiment.read(tmp_path / "fig8" / "CR.yaml") == wb.presets["fig8"]["CR"]
    assert call(monkeypatch, "forecast", str(tmp_path / "fig8" / "CR.yaml"), "--rounds", "5") == 0
    assert "s a round" in capsys.readouterr().out
    assert call(monkeypatch, "code", str(tmp_path / "fig8" / "CR.yaml"), "--sets", "5") == 0
    assert "amplification" in capsys.readouterr().out
    assert call(monkeypatch, "code", str(tmp_path / "fig8" / "UMW.yaml")) == 0
    assert "nothing is lost" in capsys.readouterr().out


def test_run_command_with_another_scheme_drops_the_old_parameters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = str(wb.Experiment(rounds=2).write(tmp_path / "spec.yaml"))
    assert call(monkeypatch, "run", spec, "--scheme", "UMW") == 0
    for change, text in {"rounds.x=3": "has no fields", "rounds=[": "not a value in YAML"}.items():
        assert call(monkeypatch, "run", spec, "--set", change) == 2
        assert text in capsys.readouterr().err
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe")
    assert call(monkeypatch, "run", str(binary)) == 2
    assert "binary.yaml" in capsys.readouterr().err


def test_run_command_reports_too_little_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 7.28 TiB")

    monkeypatch.setattr("workbench.cli.run.run_experiment", run)
    assert call(monkeypatch, "run", *SMALL) == 2
    assert capsys.readouterr().err == (
        "workbench: not enough memory (Unable to allocate 7.28 TiB); take fewer workers, rounds, samples or runs\n"
    )


def test_cli_warnings_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["--problem", "least_squares", "--set", "optimiser_args.step=1e6", "--rounds", "100"]
    assert call(monkeypatch, "run", *SMALL, *texts) == 0
    assert re.match(r"workbench: warning: UMW: the loss is not finite from round \d+ on; .*\n$",
                    capsys.readouterr().err)  # fmt: skip


def test_run_command_changes_one_parameter_of_the_default_delays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert call(monkeypatch, "run", *SMALL, "--set", "delays.rate=1e3", "-o", str(out)) == 0
    default = wb.Experiment().delays
    assert wb.Trace.load(out).experiment.delays == default.replace(rate=1e3)


def test_forecast_command_states_which_error_its_band_includes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "times.csv"
    table.write_text("worker,iteration,seconds\n0,0,1.0\n1,0,2.0\n")
    for kind, warned in (("heterogeneous", True), ("markov", True), ("replay", True), ("exponential", False)):
        more = {"path": str(table), "samples": 1.0} if kind == "replay" else {}
        spec = wb.Experiment(delays={"kind": kind, **more}).write(tmp_path / f"{kind}.yaml")
        assert call(monkeypatch, "forecast", str(spec), "--rounds", "5") == 0
        assert ("other seeds differ by more" in capsys.readouterr().out) == warned


def test_runs_command_on_an_empty_folder_creates_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "runs", "-o", "runs/table.csv") == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
def test_stop_command_refuses_a_finished_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert call(monkeypatch, "run", *SMALL, "--engine", "mpi", "-o", str(out)) == 0
    files = sorted(path.name for path in out.iterdir())
    assert call(monkeypatch, "stop", str(out)) == 0
    assert "this run has ended already\nUMW: 3 rounds" in capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir()) == files


def test_python_m_workbench_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "workbench", "schemes"], capture_output=True, text=True)
    assert done.returncode == 0
    assert all(name in done.stdout for name in wb.schemes.names())


def test_run_command_prints_infinite_times_in_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = wb.Experiment(scheme="UMW", workers=4, rounds=3, link={"latency": 1e308}).write(
        tmp_path / "s.yaml"
    )
    for text in (["run", str(spec)], ["forecast", str(spec)]):
        assert call(monkeypatch, *text) == 0
        text = capsys.readouterr().out
        assert "more seconds than a number can hold" in text
        assert not re.search(r"\b(inf|nan)\b", text)
    assert "more seconds than a number can hold" in repr(wb.run(wb.Experiment.read(spec)))


def test_run_command_prints_a_nan_loss_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["--set", "problem=least_squares", "--set", "optimiser_args.step=1e300"]
    assert call(monkeypatch, "run", *SMALL, *texts) == 0
    text = capsys.readouterr().out
    assert "the loss is no longer finite" in text
    assert not re.search(r"\b(inf|nan)\b", text)


@pytest.mark.parametrize(
    ("argv", "unwanted"),
    [
        (["--help"], ("workbench_book", "workbench_lectures", "numpy", "workbench.core.experiment")),
        (
            ["run", *SMALL],
            ("workbench_book", "workbench_lectures", "workbench.analysis.planning", "papermill"),
        ),
    ],
)
def test_cli_imports_only_what_a_command_needs(argv: list[str], unwanted: tuple[str, ...]) -> None:
    script = f"""
import sys
from workbench.cli.main import main
sys.argv = ["workbench", *{argv!r}]
try:
    main()
finally:
    print([name for name in sys.modules if name.startswith({unwanted!r})])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr
    if argv == ["--help"]:  # the help of each command is shown without importing its module
        assert re.search(r"reproduce +Recompute NAME", done.stdout)
        assert re.search(r"\n  run +Run the experiment of a SPEC file", done.stdout)


def test_package_does_not_import_book_or_lectures() -> None:
    for path in Path(wb.__file__).parent.rglob("*.py"):
        assert not re.search(r"workbench_(book|lectures)", path.read_text()), path


def test_cli_runs_code_of_a_file_only_with_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mine = "from pathlib import Path\nfrom workbench.core.schemes.uncoded import UMW\nPath('ran').touch()\n"
    Path("mine.py").write_text(f"{mine}class Half(UMW):\n    name = 'ForeignHalf'\n")
    Path("spec.yaml").write_text("scheme: mine.py:Half\nworkers: 3\nrounds: 3\n")
    simulated(wb.Experiment(scheme="UMW", workers=4), rounds=12, resamples=3).save("lab.json")
    for text in (["forecast", "spec.yaml"], ["code", "spec.yaml"], ["profile", "--like", "spec.yaml"]):
        done = CliRunner().invoke(cli, text)
        assert "names code" in done.output or "names code" in str(done.exception), done.output
        assert not Path("ran").exists()
    Path("problem.yaml").write_text("problem: numpy\nproblem_args: {loss_and_gradient: 'mine.py:Half'}\n")
    done = CliRunner().invoke(cli, ["plan", "lab.json", "problem.yaml", "--effort", "0"])
    assert "names code" in done.output or "names code" in str(done.exception), done.output
    assert not Path("ran").exists()
    assert CliRunner().invoke(cli, ["forecast", "spec.yaml", "--trust"]).exit_code == 0
    assert Path("ran").exists()


@pytest.mark.parametrize("command", ["attach", "stop"])
def test_command_trust_option_is_refused_for_a_sweep(command: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text('{"sweep": {}, "runs": []}')
    done = CliRunner().invoke(cli, [command, str(tmp_path), "--trust"])
    assert "--trust: " in done.output or "--trust: " in str(done.exception), done.output
