"""User-defined networks: the sums of gradients equal those of plain PyTorch, on both engines, for every scheme."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support.sampled_cases import sampled_test
from workbench.core.base.settings import SettingError
from workbench.core.problems.base import Request
from workbench.mpi.running.real import resume, start_real

pytest.importorskip("torch", reason="PyTorch is not installed")
import torch
from torch import nn

EXAMPLE = Path(__file__).parents[3] / "examples" / "networks.py"
DIGITS = {"module": f"{EXAMPLE}:DigitsNet", "data": "digits", "samples": 160}
CHARS = {"module": f"{EXAMPLE}:CharNet", "dataset": f"{EXAMPLE}:text"}
STEP = 0.2
SCHEMES: dict[str, dict[str, Any]] = {
    "UMW": {},
    "GC": {"stragglers": 2},
    "CR": {
        "children": 2,
        "layers": 2,
        "stragglers": 1,
    },  # 6 workers, since 8 workers form regular trees of one layer only
    "CR of 8": {"children": 8, "layers": 1, "stragglers": 2},  # no whole n solves n + n^2 = 8
    "CEGC": {"load": 3, "stragglers": 1, "reduction": 2},
    "RAR": {},
    "FRC": {
        "replication": 2,
        "wait_for": 7,
    },  # the least number of 8 workers that contains one of each pair, whichever are late
}
WORKERS = {"CR": 6}


def net(**args: Any) -> wb.Experiment:
    fields: dict[str, Any] = {"scheme": "GC", "scheme_args": {"stragglers": 1}, "workers": 4, "rounds": 4}
    fields |= {key: args.pop(key) for key in list(args) if key in wb.Experiment.model_fields}
    fields.setdefault("optimiser_args", {"step": STEP})
    args = {"precision": "float64", "device": "cpu", **args}
    return wb.Experiment(problem="torch", problem_args=args, **fields)


def plain(e: wb.Experiment) -> list[float]:
    """Return the losses of a plain loop: all samples, their mean loss, one step at a time."""
    args = e.problem_spec.model_args()
    kind = getattr(torch, e.problem_spec.precision)
    torch.manual_seed(0)
    module = args["module"]().to(kind)
    if "dataset" in args:
        X, y = args["dataset"]()
    else:
        data = e.problem_spec.open()
        X, y = torch.tensor(np.array(data.X), dtype=kind), torch.tensor(np.array(data.y), dtype=torch.long)
    descent = torch.optim.SGD(module.parameters(), lr=e.optimiser_args["step"])
    losses = []
    for _ in range(e.rounds + 1):
        loss = nn.functional.cross_entropy(module(X), y)
        losses.append(loss.item())
        descent.zero_grad()
        loss.backward()
        descent.step()
    return losses[1:]


def under(scheme: str, **fields: Any) -> wb.Experiment:
    workers = WORKERS.get(scheme, 8)
    return net(scheme=scheme.split()[0], scheme_args=SCHEMES[scheme], workers=workers, **fields)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("args", [DIGITS, CHARS], ids=["convolutions", "transformer"])
def test_torch_problem_learns_as_a_plain_loop_with_every_scheme(args: dict[str, Any], scheme: str) -> None:
    """Messages are real vectors on the virtual clock. The survivors differ from round to round."""
    e = under(scheme, **args)
    assert wb.run(e, numeric=True).rounds["loss"].to_numpy() == pytest.approx(plain(e), rel=1e-6)


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("precision", "digits"), [("float64", 1e-6), ("float32", 1e-3)])
@pytest.mark.parametrize("module", ["DigitsNet", "million"])
def test_torch_problem_on_eight_real_ranks_with_every_scheme(
    module: str, precision: str, digits: float, scheme: str
) -> None:
    args = {**DIGITS, "samples": None} if module == "DigitsNet" else {**CHARS, "module": f"{EXAMPLE}:million"}
    args = {name: value for name, value in args.items() if value is not None}
    e = under(scheme, **args, precision=precision, rounds=6)
    trace = wb.run(e, engine="mpi")
    assert trace.rounds["loss"].to_numpy() == pytest.approx(plain(e), rel=digits)
    width = 4 if precision == "float32" else 8
    if scheme in ("UMW", "GC", "FRC"):
        assert (trace.rounds["bytes"] == width * trace.rounds["messages"] * e.shape()[1]).all()


@sampled_test("modules on ranks", 0, 2)
@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
@pytest.mark.parametrize(
    ("precision", "workers"),
    [("float64", 3), *(pytest.param(name, 4, marks=pytest.mark.slow) for name in ("float32", "float64"))],
)
def test_torch_problem_with_a_dead_worker_and_a_resumed_run(
    precision: str, workers: int, tmp_path: Path
) -> None:
    """Functions that a test or a cell defines are sent to the ranks by value. Their source is stored with the run."""

    def tiny() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))

    def own_loss(out: Any, labels: Any) -> Any:
        return nn.functional.cross_entropy(out, labels, reduction="none")

    faults = [{"worker": 3, "round": 2}]
    fields = {**DIGITS, "module": tiny, "loss": own_loss, "targets": "classes", "precision": precision}
    fields |= {"workers": workers, "rounds": 40}  # each rank imports PyTorch
    # 0.08 s per round
    e = net(**fields, faults=faults, delays={"kind": "constant", "shift": 2.5e-4 * workers})
    run = start_real(e, folder=tmp_path / "run")
    while len(run.rows()["round"]) < 5:
        assert not run.wait(0.01), run
    run.stop()
    assert len(run.result().rounds) < 40
    trace = resume(tmp_path / "run").result()
    assert trace.rounds["loss"].to_numpy() == pytest.approx(
        plain(e), rel=1e-6 if precision == "float64" else 1e-3
    )
    assert {path.name for path in (tmp_path / "run").glob("own-*")} == {"own-tiny.py", "own-own_loss.py"}
    assert wb.Trace.load(tmp_path / "run").same(trace)


def test_torch_problem_sends_float32() -> None:
    fields = {"link": {"bandwidth": 1e6}, "delays": {"kind": "constant", "shift": 1e-3}, **DIGITS}
    for precision, width in {"float32": 4, "float64": 8}.items():
        for scheme in ("GC", "RAR", "CR", "CEGC"):
            e = under(scheme, **fields, precision=precision)
            trace, forecast = wb.run(e), wb.forecast(e)
            assert trace.rounds["bytes"].mean() == pytest.approx(forecast.bytes)
            assert trace.rounds["time"].diff().iloc[-1] == pytest.approx(forecast.seconds[-1])
            if scheme == "GC":
                assert forecast.bytes == (8 - 2) * width * 3850
    problem = net(**DIGITS, precision="float32").build_problem()
    assert problem.gradient([(0, 5, 1.0)], problem.start()).dtype == np.float32
    assert problem.gradient([], problem.start()).dtype == np.float32


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("args", [DIGITS, CHARS], ids=["convolutions", "transformer"])
def test_torch_problem_passes_check(args: dict[str, Any], precision: str) -> None:
    checked = wb.check(net(**args, precision=precision).problem_spec, examples=4)
    assert checked.ok, checked
    assert [row.property for row in checked.rows if row.verdict == "does not apply"] == ["smoothness"]


def droppy() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 10))


def test_torch_problem_dropout_is_drawn_by_round_and_sample() -> None:
    """The draws are the same for each worker that computes a part, whatever its other parts.

    Losses are evaluated without draws.
    """
    problem = net(**{**DIGITS, "module": droppy}).build_problem()
    model = problem.start()
    here, next_ = problem.at(3), problem.at(4)
    whole = here.gradient([(0, 160, 1.0)], model)
    apart = [here.gradient([(a, b, 1.0)], model) for a, b in ((0, 7), (7, 100), (100, 160))]
    np.testing.assert_allclose(sum(apart), whole, rtol=1e-9, atol=1e-12)
    together = here.gradient([(7, 100, 2.0), (0, 7, -1.0)], model)
    np.testing.assert_allclose(together, 2 * apart[1] - apart[0], rtol=1e-9, atol=1e-12)
    assert np.abs(next_.gradient([(0, 160, 1.0)], model) - whole).max() > 0.01
    assert np.abs(problem.gradient([(0, 160, 1.0)], model) - whole).max() > 0.01
    drawn, calm = problem.evaluate([Request(model, round=3), Request(model)])
    np.testing.assert_allclose(drawn.gradient, whole, rtol=1e-9, atol=1e-12)
    assert drawn.loss == calm.loss
    state = torch.get_rng_state()
    here.gradient([(0, 160, 1.0)], model)
    assert torch.equal(torch.get_rng_state(), state)  # the global random state is unchanged
    assert wb.check(net(**{**DIGITS, "module": droppy}).problem_spec, examples=4).ok


@sampled_test("modules on ranks", 1, 2)
@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
@pytest.mark.parametrize("workers", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_torch_problem_replicas_drop_the_same(workers: int) -> None:
    fields = {**DIGITS, "module": droppy, "workers": workers}
    e = net(**fields, scheme="GC", scheme_args={"stragglers": 1})
    real, coded = wb.run(e, engine="mpi"), wb.run(e)
    uncoded = wb.run(net(**fields, scheme="UMW", scheme_args={}), numeric=True)
    for trace in (real, coded):
        assert trace.rounds["loss"].to_numpy() == pytest.approx(uncoded.rounds["loss"].to_numpy(), rel=1e-9)
    assert coded.rounds["loss"].iloc[-1] != plain(e)[-1]


class Mixing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        return self.layer(x - x.mean(0))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.register_buffer("passes", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        self.passes += 1
        return self.layer(x)


def frozen() -> nn.Module:
    return nn.Linear(64, 10).requires_grad_(False)


def lazy() -> nn.Module:
    return nn.LazyLinear(10)


def batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 10), nn.BatchNorm1d(10))


def instance_norm() -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (2, 32)), nn.InstanceNorm1d(2, track_running_stats=True))


def forgetful() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 10), nn.BatchNorm1d(10, track_running_stats=False))


def wrong_shape() -> nn.Module:
    return nn.Linear(3, 10)


def no_module() -> int:
    return 3


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            batch_norm,
            r"layer '1' \(BatchNorm1d\) .* use GroupNorm or LayerNorm, or .* problem_args.batch_norm = 'local'$",
        ),
        (instance_norm, r"layer '1' \(InstanceNorm1d\) .* use GroupNorm or LayerNorm$"),
        (Mixing, "depends on the samples beside it; .* GroupNorm and LayerNorm"),
        (Counting, "buffer 'passes' changes from pass to pass"),
        (frozen, "has no parameters to train"),
        (lazy, "has lazy layers"),
        (no_module, "makes a int; give a class or function that makes a torch.nn.Module"),
        (wrong_shape, r"cannot take samples of shape \(4, 64\)"),
    ],
)
def test_torch_problem_refuses_losses_that_are_not_sums(make: Any, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        net(**{**DIGITS, "module": make}).build_problem()


@pytest.mark.filterwarnings("ignore:problem_args.batch_norm")
def test_torch_problem_with_local_batch_norm_learns_as_plain_pytorch() -> None:
    """The pass of one worker has all samples, like the plain loop."""
    e = net(**DIGITS, scheme="UMW", scheme_args={}, workers=1, at_once=160, rounds=5)
    e = e.replace(problem_args={**e.problem_args, "module": batch_norm, "batch_norm": "local"})
    torch.manual_seed(0)
    module = batch_norm().double()
    data = e.problem_spec.open()  # type: ignore[attr-defined]
    X, y = torch.tensor(np.array(data.X)), torch.tensor(np.array(data.y), dtype=torch.long)
    descent = torch.optim.SGD(module.parameters(), lr=STEP)
    for _ in range(5):
        descent.zero_grad()
        nn.functional.cross_entropy(module(X), y).backward()
        descent.step()
    wanted = torch.cat([p.detach().ravel() for p in module.parameters()])
    trace = wb.run(e)
    np.testing.assert_allclose(trace.model, wanted, rtol=1e-9, atol=1e-12)
    module[1].momentum = 1.0
    module(X)  # the statistics are now those of all samples
    loss = nn.functional.cross_entropy(module.eval()(X), y).item()
    assert trace.rounds["loss"].iloc[-1] == pytest.approx(loss, rel=1e-9)
    assert e.shape()[1] == 64 * 10 + 10 + 2 * 10


def test_torch_problem_with_local_batch_norm_refuses_what_has_no_statistics() -> None:
    with pytest.raises(
        SettingError, match=r"layer '1' \(BatchNorm1d\) .*track_running_stats=False; leave that out"
    ):
        net(**{**DIGITS, "module": forgetful, "batch_norm": "local"}).build_problem()
    with pytest.raises(SettingError, match=r"layer '1' \(InstanceNorm1d\) .* use GroupNorm or LayerNorm$"):
        net(**{**DIGITS, "module": instance_norm, "batch_norm": "local"}).build_problem()
    e = net(**{**DIGITS, "module": batch_norm, "batch_norm": "local"}, scheme="UMW", scheme_args={}, batch=4)
    with pytest.raises(
        wb.RunError, match=r"batch_norm = 'local': this pass has one sample, .* take a larger batch"
    ):
        wb.run(e)


def mean_loss(out: Any, y: Any) -> Any:
    return nn.functional.cross_entropy(out, y)


def test_torch_problem_refuses_wrong_arguments() -> None:
    for args, says in [
        ({"module": lambda: None}, "has no name to be found by; define it with def or class"),
        ({"module": "Nowhere"}, "module = 'Nowhere': nothing of that name is defined here"),
        ({"module": "no.such.module:Net"}, "cannot be imported"),
        ({"module": f"{EXAMPLE}:Nothing"}, "defines no function or class 'Nothing'"),
        ({**CHARS, "data": "digits"}, "data = 'digits': dataset brings its own samples"),
        ({**CHARS, "samples": 100_000}, "samples: 100000 is too large; dataset has 64"),
    ]:
        with pytest.raises(ValueError, match=says):
            net(**{**DIGITS, **args} if "dataset" not in args else args).build_problem()
    with pytest.raises(SettingError, match=r"loss: gives shape \(\) .* reduction='none'"):
        net(**{**DIGITS, "loss": mean_loss}).build_problem()
    with pytest.raises(SettingError, match=r"problem_args\.module: is missing"):
        wb.Experiment(problem="torch")


class Pairs:
    """Dataset in PyTorch's form, with samples one by one."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> tuple[Any, float]:
        return torch.full((3,), float(i)), 2.0 * i


def line() -> nn.Module:
    return nn.Linear(3, 1)


def test_torch_problem_of_a_dataset_of_pairs_and_a_regression() -> None:
    problem = net(module=line, dataset=Pairs, loss="mse").build_problem()
    (found,) = problem.evaluate([Request(problem.start())])
    w, x = problem.start(), np.arange(12.0)
    assert found.loss == pytest.approx(float(np.mean((x * w[:3].sum() + w[3] - 2 * x) ** 2)))
    assert not found.metrics
    assert net(module=line, dataset=Pairs, loss="mse").shape() == (12, 4)


def test_torch_problem_uses_the_newest_definition() -> None:
    def make_narrow() -> nn.Module:
        return nn.Linear(64, 10)

    def make_wide() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 20), nn.Linear(20, 10))

    make_narrow.__name__ = make_wide.__name__ = "make"
    first = net(**{**DIGITS, "module": make_narrow})
    assert first.problem_args["module"] == "make"
    assert wb.Experiment(**first.model_dump(mode="json")) == first
    size = first.build_problem().size
    again = net(**{**DIGITS, "module": make_wide})
    assert again.build_problem().size == 1510 != size


HIDDEN = {"units": 20}


def make_hidden() -> nn.Module:
    return nn.Sequential(nn.Linear(64, HIDDEN["units"]), nn.Linear(HIDDEN["units"], 10))


def test_torch_problem_source_includes_what_a_module_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function is the same, but another cell has changed a dict that it uses."""
    e = net(**{**DIGITS, "module": make_hidden})
    assert e.build_problem().size == e.shape()[1] == 1510
    monkeypatch.setitem(HIDDEN, "units", 10)
    again = net(**{**DIGITS, "module": make_hidden})
    assert again.build_problem().size == again.shape()[1] == 760


@pytest.mark.parametrize(("precision", "digits"), [("float32", 1e-4), ("float64", 1e-10)])
def test_torch_problem_gradient_is_equal_on_cuda_and_cpu(precision: str, digits: float) -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    found = []
    for device in ("cpu", "cuda"):
        problem = net(**DIGITS, precision=precision, device=device).build_problem()
        found.append(problem.gradient([(0, 40, 1.0), (40, 60, -0.5)], problem.start()))
    assert np.abs(found[1] - found[0]).max() < digits * np.abs(found[0]).max()


# ------------------------------------------------------------------------------------------------ held-out samples


class TwoScores(nn.Module):
    """Scores of two classes, linear in the columns."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(30, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores(x)


def two_blobs() -> tuple[torch.Tensor, torch.Tensor]:
    """Return 90 numbered samples of 30 columns, a third of them of class 1."""
    X = torch.arange(2700, dtype=torch.float64).reshape(90, 30) / 2700
    return X, (torch.arange(90) % 3 == 0).long()


def test_torch_held_out_metrics_equal_plain_pytorch() -> None:
    from sklearn.metrics import roc_auc_score

    e = net(module=TwoScores, data="breast_cancer", test=0.25)
    trace, data = wb.run(e), e.problem_spec.open()  # type: ignore[attr-defined]
    weight, bias = trace.model[:60].reshape(2, 30), trace.model[60:]
    scores = torch.tensor(np.asarray(data.X_test) @ weight.T + bias)
    y = torch.tensor(np.array(data.y_test), dtype=torch.long)
    last = trace.rounds.iloc[-1]
    assert last["test_loss"] == pytest.approx(nn.functional.cross_entropy(scores, y).item(), rel=1e-9)
    assert last["test_accuracy"] == (scores.argmax(dim=1) == y).double().mean().item()
    expected = roc_auc_score(y, scores[:, 1] - scores[:, 0])
    assert last["test_auc"] == pytest.approx(expected, abs=1e-12)


def test_torch_held_out_samples_of_a_dataset_are_disjoint_and_stratified() -> None:
    e = net(module=TwoScores, dataset=two_blobs, test=0.2, data_seed=3)
    problem = e.build_problem()
    assert problem.samples == e.shape()[0] == 72
    parts = [np.asarray(part.X)[:, 0] for part in (problem, problem.held_out)]  # type: ignore[attr-defined]
    assert sorted(np.concatenate(parts).tolist()) == (np.arange(90) * 30 / 2700).tolist()
    assert int(np.asarray(problem.held_out.y).sum()) == 6  # type: ignore[attr-defined]
    assert np.isfinite(wb.run(e).rounds["test_auc"]).all()
    with pytest.raises(SettingError, match=r"test = 'a\.csv': dataset brings its own samples"):
        net(module=TwoScores, dataset=two_blobs, test="a.csv")
