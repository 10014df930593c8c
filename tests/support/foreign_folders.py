"""Read crafted folders, and report executed code: `python -m tests.support.foreign_folders`, in an empty folder.

An audit hook records each import of an unneeded module, each process and each connection. It also records when foreign
code in the folder is opened, compiled or executed. Hypothesis draws the place of a foreign name in a folder. The
records are printed, and the exit status is 1 if there are any.
"""

from __future__ import annotations

import faulthandler
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import workbench as wb
from workbench.analysis.planning.measuring import simulated
from workbench.cli.main import main as command
from workbench.core.base.errors import RunError
from workbench.core.base.files import SUMS, write_sums
from workbench.core.trace.layout import FILES as WRITTEN
from workbench.lab import batch
from workbench.mpi.running.replay import replay_arrivals

HERE = Path.cwd()
SMALL: dict[str, Any] = {"scheme": "UMW", "workers": 3, "rounds": 3}
DATA = {"samples": 30, "features": 4}
CODE = """
import pathlib
pathlib.Path({canary!r}).touch()
from typing import Literal
from workbench.core.contract.delays import Exponential
from workbench.core.contract.optimisers import GradientDescent
from workbench.core.problems.linear import LeastSquares, LeastSquaresArgs
from workbench.core.schemes.uncoded import UMW

class Half(UMW):
    name = "EvilHalf"

class Even(Exponential):
    kind: Literal["evil"] = "evil"

class Slowly(GradientDescent):
    name = "evilly"

class Args(LeastSquaresArgs):
    name = "evil_args"

def Net(*args):
    pathlib.Path({canary!r}).touch()
"""
MODULES = ("evil_module", "evil_package", "antigravity", "turtledemo", "idlelib", "this", "pdb")
# Targets of a name: a user file, a module or package of the folder, an installed one, or a function of a program.
FILES = ("evil.py:{}", "{here}/evil.py:{}", "../{folder}/evil.py:{}", "./evil.py:{}")
IMPORTED = ("evil_module:{}", "evil_package.inner:{}", "evil_package:{}")
INSTALLED = (
    "antigravity:geohash", "this:s", "os:abort", "os:_exit", "posix:abort", "builtins:exit", "sys:exit", "turtledemo:x",
    "subprocess:run", "webbrowser:open", "workbench.cli.main:main", "pdb:set_trace", "idlelib:x",
    "workbench:__getattr__",
)  # fmt: skip
BARE = ("command", "main", "exit", "quit", "print", "breakpoint", "__import__", "Half", "evil", "crash")
EXPONENTIAL = {"kind": "exponential", "mean": 1.0}
# Place -> function that returns the fields with a foreign kind at this place.
KINDS: dict[str, Callable[[str], dict[str, Any]]] = {
    "delays.kind": lambda kind: {"delays": {"kind": kind}},
    "delays.before.kind": lambda kind: {
        "delays": {"kind": "changing", "before": {"kind": kind}, "after": EXPONENTIAL, "at": 1}
    },
    "delays.components.kind": lambda kind: {
        "delays": {"kind": "mixture", "components": [EXPONENTIAL, {"kind": kind}]}
    },
    "delays.base.kind": lambda kind: {"delays": {"kind": "groups", "base": {"kind": kind}}},
    "delays.common.kind": lambda kind: {"delays": {"kind": "groups", "common": {"kind": kind}}},
    "delays.path": lambda path: {"delays": {"kind": "replay", "path": path}},
    "link.delays.kind": lambda kind: {"link": {"delays": {"kind": kind}}},
    "link.groups.kind": lambda kind: {"link": {"groups": [{"workers": [1], "delays": {"kind": kind}}]}},
    "faults.kind": lambda kind: {"faults": [{"kind": kind, "worker": 1, "round": 0}]},
    "schedule.kind": lambda kind: {"optimiser_args": {"schedule": {"kind": kind}}},
}
PLACES = (
    *KINDS, "scheme", "optimiser", "problem", "problem_args.module", "problem_args.loss",
    "problem_args.dataset", "problem_args.loss_and_gradient", "problem_args.first", "problem_args.data",
    "scheme_args.stragglers", "optimiser_args.step", "problem_args.target",
)  # fmt: skip
NAMES = {"scheme": "Half", "optimiser": "Slowly", "problem": "Args", "delays": "Even", "link": "Even"}
PROCESSES = (
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "os.forkpty",
    "os.system",
    "os.startfile",
    "pty.spawn",
)
noted: list[str] = []
watching = False


def crash() -> None:
    """Function that a program defines, and that a folder names."""
    noted.append("a function of the program was called")


# ---------------------------------------------------------------- recorded events


def hook(event: str, args: tuple[Any, ...]) -> None:
    """Record an event that no reader may cause."""
    if not watching:
        return
    if event == "import":
        top = str(args[0]).partition(".")[0]
        if top in MODULES:
            noted.append(f"import of {args[0]}")
    elif event in ("exec", "compile"):
        file = args[0].co_filename if event == "exec" else args[1]
        if str(file).startswith(str(HERE)):
            noted.append(f"{event} of {file}")
    elif event == "open" and str(args[0]).endswith(("evil.py", "inner.py", "evil_module.py", ".pyc")):
        if str(Path(str(args[0])).absolute()).startswith(str(HERE)):
            noted.append(f"open of {args[0]}")
    elif event in ("subprocess.Popen", "socket.connect", "socket.sendto", *PROCESSES):
        noted.append(f"{event} {args[:2]!r:.100}")


@contextmanager
def watched() -> Iterator[None]:
    """Record forbidden events within a block."""
    global watching
    watching = True
    try:
        yield
    finally:
        watching = False


# ---------------------------------------------------------------- crafted folders


def put(spec: dict[str, Any], place: str, name: str) -> dict[str, Any]:
    """Return the fields with a foreign name at a place, and the other fields that the place needs."""
    spec = json.loads(json.dumps(spec))
    top, _, inner = place.partition(".")
    if not inner:
        return {**spec, top: name}
    if place in KINDS:
        return {**spec, **KINDS[place](name)}
    args = {**spec.get(top, {}), inner: name}
    if inner in ("module", "loss", "dataset"):
        return {**spec, "problem": "torch", top: {"module": "os:abort", **args}}
    if inner in ("loss_and_gradient", "first"):
        return {**spec, "problem": "numpy", top: {"loss_and_gradient": "os:abort", **args}}
    return {**spec, top: args}


def forged(folder: Path) -> None:
    """Update the hashes of a run folder, as the author of the changes would."""
    write_sums(folder, [*WRITTEN, *(path.name for path in folder.glob("own-*.py"))])


def older(folder: Path, version: str = "0.1.0") -> Path:
    """Remove the hashes of a run folder, and set an older version."""
    (folder / SUMS).unlink()
    fields = json.loads((folder / "run.json").read_text())
    fields["versions"]["straggler-workbench"] = version
    (folder / "run.json").write_text(json.dumps(fields))
    return folder


def finished(root: Path, spec: dict[str, Any]) -> Path:
    """Make the folder of a finished run with a crafted spec."""
    folder = root / "finished"
    shutil.copytree(HERE / "plain", folder)
    (folder / "spec.json").write_text(json.dumps(spec))
    (folder / "own-Half.py").write_text((HERE / "evil.py").read_text())
    fields = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(
        json.dumps({**fields, "engine": "evil_module:Half", "own": {"Half": "x"}})
    )
    forged(folder)
    (folder / "about.json").write_text(
        json.dumps({"name": "evil.py:Half", "note": "=evil", "tags": ["os:abort"]})
    )
    return folder


def real(root: Path, name: str, spec: dict[str, Any], cluster: Any, ended: bool) -> Path:
    """Make the folder of a run on real processes, on some cluster, unfinished or finished."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps(spec))
    task = {
        "run": 1,
        "emulate": "all",
        "record": True,
        "first": 0,
        "gradients": False,
        "checkpoint_every": 2.0,
    }
    task |= {"patience": 600.0, "vandals": {"module": "evil_module:Net"}, "homes": ["evil_module"]}
    (folder / "task.json").write_text(json.dumps(task))
    there = {"folder": str(HERE), "fields": {}, "bases": {}}
    fields = {"cluster": cluster, "pool": str(HERE), "supervisor": 2**30, "job": "--help", "there": there}
    (folder / "owner.json").write_text(json.dumps(fields))
    (folder / "changes.json").write_text(json.dumps({"changes": []}))
    if ended:
        fields = {
            "state": "stopped",
            "error": None,
            "first": 0,
            "zero": 0.0,
            "committers": [0],
            "emulate": "all",
        }
        (folder / "ended.json").write_text(json.dumps(fields))
    return folder


def clusters() -> list[Any]:
    """Return settings of clusters that start programs, each of which would leave a file."""
    config = HERE / "config"
    config.write_text(f"Host *\n  ProxyCommand touch {HERE}/canary\n")
    ssh = {"hosts": ["evil.invalid"], "config": str(config), "python": f"{HERE}/evil.sh"}
    slurm = {"folder": str(HERE), "login": "evil.invalid", "config": str(config), "python": f"{HERE}/evil.sh"}
    return [
        {"kind": "ssh", "name": "lab", **ssh},
        {"kind": "ssh", "name": "local", **ssh},
        {"kind": "ssh", "name": "../lab", **ssh},
        {"kind": "ssh", "name": f"{HERE}/lab.yaml", **ssh},
        {"kind": "slurm", "name": "lab", **slurm},
        {"kind": "slurm", "name": "lab", "folder": str(HERE), "python": f"{HERE}/evil.sh"},
        {"kind": "ec2", "name": "lab", **ssh},
        {"kind": "evil.py:Half", "name": "lab"},
        {"kind": "evil_module:Half", "name": "lab"},
        "evil.py:Half",
        ["evil"],
        {},
    ]


def swept(root: Path, spec: dict[str, Any], cluster: str) -> Path:
    """Make the folder of a sweep with a failed run, a finished one, and one that is marked as running.

    The plan always names code, since a plan without code would be resumed.
    """
    spec = dict(spec)
    folder = root / "sweep"
    grid = {"optimiser": [spec.pop("optimiser", "evil.py:Slowly"), "evil.py:Slowly"], "seed": [0, 1]}
    plan = {"base": spec, "grid": grid, "engine": "mpi" if cluster else "sim", "cluster": cluster}
    for state in ("failed", "done", "running"):
        (folder / state).mkdir(parents=True)
        status = {"state": state, "spec": spec, "engine": "sim", "error": "evil.py:Half"}
        (folder / state / "status.json").write_text(json.dumps(status))
        (folder / state / "run.ipynb").write_text("{}")
    finished(folder / "done", spec).rename(folder / "done" / "trace")
    fields = {"sweep": plan, "runs": ["failed", "done", "running"], "notebook": "evil.ipynb", "jobs": 1}
    (folder / "sweep.json").write_text(json.dumps(fields))
    return folder


# ---------------------------------------------------------------- readers


def readers(root: Path, profile: Path) -> dict[str, Callable[[], object]]:
    """Return all readers, and all functions that have to refuse to run, by name."""
    done, way, over, sweep = (root / name for name in ("finished", "way", "over", "sweep"))
    found = {f"load {path}": lambda path=path: loaded(path) for path in (done, sweep / "done" / "trace")}
    for path in (done, way, over):
        found |= {f"attach {path.name}": lambda path=path: wb.attach(path).result()}
        found |= {f"resume {path.name}": lambda path=path: wb.resume(path).result()}
        found |= {f"read {path.name}": lambda path=path: wb.Experiment.read(path / "spec.json")}
        found |= {f"arrivals {path.name}": lambda path=path: replay_arrivals(path)}
        for name in ("attach", "resume", "stop"):
            found |= {f"command {name} {path.name}": lambda path=path, name=name: cli(name, str(path))}
    found |= {
        "table": lambda: shown(root),
        "table again": lambda: repr(wb.runs(root, progress=False)),
        "sweep": lambda: batch.sweep(sweep, progress=False),
        "start": lambda: batch.background.start(sweep),
        "watch": lambda: (
            repr(batch.attach(sweep)),
            batch.attach(sweep).progress(),
            batch.attach(sweep).runs(),
        ),
        "go on": lambda: batch.attach(sweep).resume(),
        "diagnose": lambda: wb.diagnose(done),
        "recording": lambda: wb.traces.load(done),
        "stream": lambda: wb.stream(done),
        "profile": lambda: wb.ClusterProfile.load(profile),
        "command runs": lambda: cli("runs", str(root)),
        "command runs -o": lambda: cli("runs", str(root), "-o", str(root / "table.csv")),
        "command attach": lambda: cli("attach", str(sweep), "--once"),
        "command sweep": lambda: cli("sweep", str(sweep), "--quiet"),
        "command sweep --background": lambda: cli("sweep", str(sweep), "--background"),
        "command sweep --dry-run": lambda: cli("sweep", str(sweep), "--dry-run"),
        "command diagnose": lambda: cli("diagnose", str(done)),
    }
    return found


def cli(*text: str) -> None:
    """Call the command line in this process."""
    sys.argv = ["workbench", *text]
    with redirect_stderr(StringIO()), suppress(SystemExit):
        command()


def loaded(path: Path) -> None:
    """Read a run folder, and use the trace in all ways that require no code."""
    trace = wb.Trace.load(path)
    repr(trace), trace.label, trace.rounds, trace.events, trace.time_to(0.0), trace.changes
    wb.figures.convergence([trace])
    for i, use in enumerate((
        lambda: wb.run(trace.experiment),
        lambda: wb.forecast(trace.experiment),
        lambda: wb.start(trace.experiment),
        trace.replay,
        lambda: trace.experiment.plan,
        lambda: trace.experiment.load,
        lambda: trace.experiment.build_problem(),
        lambda: wb.figures.tree(trace.experiment),
    )):  # fmt: skip
        with suppress(wb.SettingError, wb.DataError, RunError):
            if i or not isinstance(trace.experiment, wb.Experiment):
                use()
    trace.save(path.with_name("copy"))
    with suppress(wb.SettingError):
        wb.Trace.load(path.with_name("copy")).replay()
    shutil.rmtree(path.with_name("copy"))


def shown(root: Path) -> None:
    """Read the table, show it, select each run, press the buttons, and export it in all formats."""
    found = wb.runs(root, target=0.1, progress=False)
    repr(found), found._repr_html_(), found.again(), found.mean("time"), found.diff(0, 1), found.traces()
    table = wb.RunsTable(found)
    for name in ("finished", "way", "sweep/failed"):
        table.select(name)
        for press in (table.look, table.show, table.copy, table.rerun, table.resume):
            press()
    table.select(*found.table["run"][:2])
    table.differ()
    for form, ending in {"csv": ".csv", "parquet": ".parquet", "mlflow": "", "ro-crate": ""}.items():
        to = HERE / f"exported-{form}{ending}"
        found.export(to, form)
        shutil.rmtree(to) if to.is_dir() else to.unlink()


def each(root: Path, profile: Path) -> None:
    """Call every reader. Each exception has to be one sentence."""
    for what, read in readers(root, profile).items():
        before = len(noted)
        with watched(), redirect_stdout(StringIO()):
            try:
                read()
            except (wb.SettingError, wb.DataError, RunError, OSError):
                pass
            except Exception as error:
                noted.append(f"{type(error).__name__}: {error}")
        noted[before:] = [f"{what}: {line}" for line in noted[before:]]
        if (HERE / "canary").exists():
            noted.append(f"{what}: foreign code was run")
            (HERE / "canary").unlink()


# ---------------------------------------------------------------- drawn folders


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], str, Any]:
    """Draw fields with one or two foreign names, the cluster of a sweep, and the cluster settings of real runs."""
    spec: dict[str, Any] = {**SMALL, "problem": "least_squares", "problem_args": DATA}
    for place in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=2)):
        form = draw(st.sampled_from((*FILES, *IMPORTED, *INSTALLED, *BARE)))
        what = NAMES.get(place.partition(".")[0], "Net")
        spec = put(spec, place, form.format(what, here=HERE, folder=HERE.name))
    return spec, draw(st.sampled_from(("", "lab", str(HERE / "lab.yaml")))), draw(st.sampled_from(clusters()))


def written(root: Path, spec: dict[str, Any], cluster: str, held: Any) -> Path:
    """Write all crafted folders below a root, and return a profile with a foreign delay model."""
    shutil.rmtree(root, ignore_errors=True)
    finished(root, spec)
    real(root, "way", {**SMALL, "problem_args": DATA}, held, ended=False)
    real(root, "over", spec, held, ended=True)
    swept(root, spec, cluster)
    fields = json.loads((HERE / "profile.json").read_text())
    fields["delay_models"][0][0]["delays"] = spec.get("delays", {"kind": "evil.py:Even"})
    (root / "profile.json").write_text(json.dumps(fields))
    return root / "profile.json"


def prepared() -> None:
    """Write the foreign code, and the originals of the crafted folders."""
    code = CODE.format(canary=str(HERE / "canary"))
    (HERE / "evil_package").mkdir()
    for name in ("evil.py", "evil_module.py", "evil_package/__init__.py", "evil_package/inner.py"):
        (HERE / name).write_text(code)
    (HERE / "evil.sh").write_text(f"#!/bin/sh\ntouch {HERE}/canary\n")
    (HERE / "evil.sh").chmod(0o755)
    (HERE / "lab.yaml").write_text(f"kind: ssh\nhosts: [evil.invalid]\nconfig: {HERE}/config\n")
    wb.run(wb.Experiment(**SMALL)).save(HERE / "plain")
    simulated(
        wb.Experiment(scheme="UMW", workers=4, delays={"kind": "exponential", "mean": 1e-3}), 30, 0
    ).save(HERE / "profile.json")


def main(examples: int) -> int:
    """Read the drawn folders the given number of times, and return the exit status."""
    faulthandler.dump_traceback_later(120 + 60 * examples, exit=True)  # a followed run may never end
    prepared()
    root = HERE / "root"
    plain = {**SMALL, "problem_args": DATA}
    with suppress(Exception):  # once without recording, so that all needed modules are imported
        for what, read in readers(root, written(root, plain, "", clusters()[0])).items():
            with suppress(Exception), redirect_stdout(StringIO()):
                None if what.endswith("way") else read()
    sys.addaudithook(hook)

    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(cases())
    def drawn(case: tuple[dict[str, Any], str, Any]) -> None:
        before = len(noted)
        each(root, written(root, *case))
        if len(noted) > before:
            print("\n".join([*noted[before:], f"    with {json.dumps(case)}"]), flush=True)

    drawn()
    return bool(noted)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
