"""Delay models: distributions, keyed draws, dependence on earlier rounds, replay."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.analysis.planning.profile import scaled
from workbench.core.base.settings import SettingError
from workbench.core.contract.delays import CounterRNG, DelayModel, DelayStream, delay_models, law_of, recorded

TRACES = Path(__file__).resolve().parents[4] / "shared" / "data" / "ec2_traces.csv"
ALIBABA = TRACES.with_name("traces") / "alibaba_job_1.csv"


def build(spec: dict[str, Any]) -> DelayModel:
    return wb.Experiment(delays=spec).delays


def sampled(spec: dict[str, Any], rounds: int = 400, workers: int = 100, samples: int = 3) -> np.ndarray:
    stream = DelayStream(build(spec), 1, workers)
    return np.stack([stream.whole(r, np.full(workers, samples)) for r in range(rounds)])


def near(found: np.ndarray, mean: float, std: float) -> None:
    assert abs(found.mean() - mean) < 4 * std / np.sqrt(found.size)


def test_shifted_exponential_is_the_papers() -> None:
    """The time for a load of d samples is a d + Exp(mean d/mu) (paper 1, section III-C)."""
    times = sampled({"kind": "shifted_exponential", "shift": 2.0, "rate": 0.5})
    near(times, 3 * 2.0 + 3 / 0.5, 3 / 0.5)
    assert times.min() >= 6.0
    assert np.mean(times > 6.0 + 6.0) == pytest.approx(np.exp(-1), abs=0.01)


def test_two_part_is_the_papers_model() -> None:
    """A load of d and messages of 1/m take d T1 + T2/m, Ti = ti + Exp(lambdai) (paper 2, section V)."""
    model = build({"kind": "two_part", "t1": 1.6, "lambda1": 0.8, "t2": 6.0, "lambda2": 0.1})
    stream = DelayStream(model, 0, 20_000)
    computing = stream.whole(0, np.full(20_000, 4))
    sending = stream.sending(0, 1 / 3)
    assert sending is not None
    near(computing, 4 * (1.6 + 1 / 0.8), 4 / 0.8)
    near(sending, (6 + 10) / 3, 10 / 3)
    assert abs(np.corrcoef(computing, sending)[0, 1]) < 0.03


def test_exponential_delay_is_independent_of_the_load() -> None:
    near(sampled({"kind": "exponential", "mean": 0.2}, samples=7), 0.2, 0.2)
    assert (sampled({"kind": "exponential", "mean": 0.2}, samples=0, rounds=2) == 0).all()


def test_heterogeneous_workers_stay_slow() -> None:
    spec = {
        "kind": "heterogeneous",
        "shift": 1.0,
        "slow": 0.3,
        "slow_straggles": 0.8,
        "active_straggles": 0.01,
    }
    late = sampled(spec, workers=500) > 3.0
    share = late.mean(axis=0)
    slow = share > 0.4
    assert abs(slow.mean() - 0.3) < 0.08
    assert abs(share[slow].mean() - 0.8) < 0.01
    assert abs(share[~slow].mean() - 0.01) < 0.003


def test_pareto_has_the_stated_tail() -> None:
    times = sampled({"kind": "pareto", "shift": 1.0, "shape": 2.5}, samples=1)
    assert times.min() >= 1.0
    assert np.mean(times > 2.0) == pytest.approx(2.0**-2.5, abs=0.01)


def test_markov_is_stationary_and_sticks() -> None:
    slow = (
        sampled({"kind": "markov", "shift": 1.0, "p_slow": 0.1, "p_recover": 0.3, "factor": 10}, samples=1)
        > 5
    )
    assert abs(slow.mean() - 0.25) < 0.02
    assert abs(slow[0].mean() - 0.25) < 0.15
    assert (slow[1:] & slow[:-1]).sum() / slow[:-1].sum() == pytest.approx(0.7, abs=0.02)


def test_markov_rounds_may_be_asked_for_in_any_order() -> None:
    model = build({"kind": "markov"})
    forward, late = DelayStream(model, 5, 30), DelayStream(model, 5, 30)
    drawn = [forward.draw(r) for r in range(9)]
    np.testing.assert_array_equal(late.draw(8), drawn[8])


# Delay models of the package only, since those that other tests define may lack the properties below.
LAWS = [kind for kind in delay_models() if delay_models()[kind].__module__.startswith("workbench.")]


@given(st.sampled_from(sorted(set(LAWS) - {"replay"})), st.integers(0, 2**40), st.integers(0, 20))
def test_delay_stream_draws_are_keyed_by_worker_and_round(kind: str, seed: int, round: int) -> None:
    """A worker's draw depends on seed, round and worker, and not on the order of calls or the number of workers."""
    small, large = (DelayStream(build({"kind": kind}), seed, n) for n in (5, 8))
    large.draw(0)
    np.testing.assert_array_equal(small.draw(round), large.draw(round)[:, :5])
    if kind not in ("constant", "heterogeneous", "markov"):
        # bursts are rare, so that single rounds are often without a late worker
        rounds = range(round, round + (BURST_ROUNDS if kind == "fritchman" else 1))
        other = DelayStream(build({"kind": kind}), seed + 1, 5)
        here = [small.draw(r) for r in rounds]
        assert not np.array_equal(here, [small.draw(r + len(rounds)) for r in rounds])
        assert not np.array_equal(here, [other.draw(r) for r in rounds])


def test_delay_stream_is_common_to_compared_schemes() -> None:
    common: dict[str, Any] = {"workers": 6, "rounds": 3, "problem_args": {"samples": 60, "features": 3}}
    umw, ring = wb.compare([wb.Experiment(scheme=s, **common) for s in ("UMW", "RAR")])
    rows = [t.events[(t.events["round"] == 0) & (t.events["kind"] == "compute")] for t in (umw, ring)]
    ends = [r.sort_values("rank")["end"].to_numpy() for r in rows]
    np.testing.assert_array_equal(*ends)


def test_delays_per_part_are_independent() -> None:
    """The spread of a sum of independent draws is smaller than that of one draw."""
    common: dict[str, Any] = {"scheme": "GC", "scheme_args": {"stragglers": 3}, "workers": 4, "rounds": 2000}
    common |= {"problem": "unit", "problem_args": {"samples": 4}}
    one, each = (
        wb.forecast(wb.Experiment(**common, delays={"kind": "shifted_exponential", "rate": 1.0, "per": per}))
        for per in ("worker", "part")
    )
    # the minimum over workers of a sum of four draws, compared with four times one draw
    assert each.mean > 1.5 * one.mean


def table(tmp_path: Path, text: str) -> str:
    path = tmp_path / "times.csv"
    path.write_text(text)
    return str(path)


def test_replay_goes_through_the_record_in_order(tmp_path: Path) -> None:
    path = table(tmp_path, "worker,iteration,seconds\n0,0,1\n0,1,2\n0,2,3\n")
    stream = DelayStream(build({"kind": "replay", "path": path, "samples": 2.0, "scale": 0.5}), 0, 1)
    times = [float(stream.whole(r, np.array([4]))[0]) for r in range(6)]
    start = times.index(1.0)
    assert (times + times)[start : start + 3] == [1.0, 2.0, 3.0]  # 4 samples / 2 recorded * 0.5
    assert times[:3] == times[3:]


@pytest.mark.parametrize(
    ("text", "found_text"),
    [
        ("worker,seconds\n0,1\n", r"lacks columns \['step'\]"),
        ("worker,iteration,seconds\n0,0,nan\n", "line 2: seconds = nan: .*finite"),
        ("worker,iteration,seconds\n", "there is no row"),
        ("worker,iteration,seconds\n0,0,-1\n", "line 2: seconds = -1: .* at least 0"),
    ],
)
def test_replay_refuses_a_bad_recording(tmp_path: Path, text: str, found_text: str) -> None:
    with pytest.raises(wb.SettingError, match=found_text):
        DelayStream(build({"kind": "replay", "path": table(tmp_path, text)}), 0, 1).draw(0)


def test_replay_refuses_a_missing_recording() -> None:
    with pytest.raises(wb.SettingError, match=r"delays.path = 'nowhere.csv'"):
        DelayStream(build({"kind": "replay", "path": "nowhere.csv"}), 0, 1).draw(0)


def test_replay_as_recorded_ignores_the_load(tmp_path: Path) -> None:
    rows = [f"{w},{r},{1 + w + 10 * r}" for r in (2, 0, 1) for w in (10, 9, 0)]  # rows in random order
    path = table(tmp_path, "\n".join(["worker,iteration,seconds", *rows]) + "\n")
    delay_model = build({"kind": "replay", "path": path, "samples": 7.0, "as_recorded": True})
    for seed in (0, 5):
        stream = DelayStream(delay_model, seed, 3)
        times = [stream.whole(r, np.array([1, 50, 0])).tolist() for r in range(4)]
        # the recording is repeated from the beginning
        assert times == [[1, 10, 11], [11, 20, 21], [21, 30, 31], [1, 10, 11]]
    parts = stream.progress(1, np.array([[1, 3], [2, 2], [0, 0]]))
    np.testing.assert_allclose(parts, [[11 / 4, 11], [10, 20], [0, 21]])
    assert stream.piece(1, 2, 0, 40) == 21


@given(samples=st.integers(0, 50), base=st.integers(1, 20), slope=st.floats(0, 2), factor=st.floats(0.5, 8))
def test_replay_as_recorded_may_follow_the_load(
    tmp_path_factory: pytest.TempPathFactory, samples: int, base: int, slope: float, factor: float
) -> None:
    """The time is delay + (load - base load) * slope, as in the search of Krishnan et al.

    Without a slope, the time is the recorded one.
    """
    path = table(tmp_path_factory.mktemp("slope"), "worker,iteration,seconds\n0,0,3\n1,0,5\n")
    delay_model = build(
        {"kind": "replay", "path": path, "as_recorded": True, "samples": base, "slope": slope}
    )
    wanted = np.maximum([3 + slope * (samples - base), 5 + slope * (samples - base)], 0)
    np.testing.assert_allclose(DelayStream(delay_model, 0, 2).whole(0, np.array([samples, samples])), wanted)
    portions = np.array([[samples // 3, samples - samples // 3], [0, samples]])
    np.testing.assert_allclose(DelayStream(delay_model, 0, 2).progress(0, portions)[:, -1], wanted)
    fewer = DelayStream(scaled(delay_model, factor), 0, 2)
    np.testing.assert_allclose(fewer.whole(0, np.full(2, samples / factor)), wanted, atol=1e-9)


def test_replay_as_recorded_refuses_more_workers_than_recorded(tmp_path: Path) -> None:
    path = table(tmp_path, "experiment,worker,iteration,seconds\na,0,0,1\na,1,0,3\nb,0,0,50\n")
    delay_model = {"kind": "replay", "path": path, "as_recorded": True}
    with pytest.raises(wb.SettingError, match=r"has 2 experiments; name one in delays\.experiment: a, b"):
        DelayStream(build(delay_model), 0, 2).draw(0)
    with pytest.raises(wb.SettingError, match=r"3 workers, and .* has 2; take 2 workers or fewer"):
        DelayStream(build({**delay_model, "experiment": "a"}), 0, 3).draw(0)


def test_replay_experiment_with_the_recorded_size(tmp_path: Path) -> None:
    path = table(tmp_path, "experiment,worker,iteration,seconds\na,0,0,1\na,1,0,3\nb,0,0,50\nb,1,0,70\n")
    only = DelayStream(build({"kind": "replay", "path": path, "experiment": "b"}), 0, 2).draw(0)
    assert sorted(only[0]) == [50, 70]
    pooled = DelayStream(build({"kind": "replay", "path": path}), 0, 4).draw(0)
    # b's times are scaled to a's median: 60 becomes 2
    np.testing.assert_allclose(sorted(pooled[0]), [1, 50 / 30, 70 / 30, 3])
    with pytest.raises(wb.SettingError, match=r"experiment = 'c'.*'a', 'b'"):
        DelayStream(build({"kind": "replay", "path": path, "experiment": "c"}), 0, 4).draw(0)


HEAD = "experiment,worker,iteration,seconds\n"
BURST_ROUNDS = 100  # consecutive rounds that are compared where bursts are rare


@pytest.mark.parametrize(
    ("text", "where", "found_text"),
    [
        (
            "worker,iteration,seconds\n0,0,1\n0,1,2\n0,0,5\n",
            "line 4",
            "worker and step are those of a row before; .* column recording",
        ),
        (HEAD + "a,0,0,1\nb,0,0,1\n\na,0,0,2\n", "line 5", "recording, worker and step are those"),
        ("worker,iteration,seconds\n0,0,1\n,1,2\n", "line 3", "worker is empty"),
        (HEAD + "a,0,0,1\n,0,1,2\n", "line 3", "experiment is empty"),
        (HEAD + "a,0,0,1\na,0,,2\n", "line 3", "iteration is empty"),
        (HEAD + "a,0,0,1\n\na,0,first,2\n", "line 4", "iteration = first: steps are whole numbers"),
        (HEAD + "a,0,0,1\na,0,inf,2\n", "line 3", "iteration = inf"),
        (HEAD + "a,0,0,1\na,0,1,-2\n", "line 3", "seconds = -2: .* at least 0"),
        (HEAD + "a,0,0,1\na,0,1,\n", "line 3", "seconds is empty: .* finite"),
        (HEAD + '"a\nb",0,0,1\na,0,1,soon\n', "line 4", "seconds = soon"),
        (HEAD + "a,0,0,1\nb,0,0,0\nb,0,1,0\n", "line 3", "recording = b: its median is 0 s"),
    ],
)
def test_recorded_refuses_rows_without_a_worker(
    tmp_path: Path, text: str, where: str, found_text: str
) -> None:
    path = table(tmp_path, text)
    with pytest.raises(wb.SettingError, match=rf"^delays.path = '{path}', {where}: .*{found_text}"):
        recorded(path)


def test_recorded_names_a_bad_row_of_a_parquet_table(tmp_path: Path) -> None:
    path = str(tmp_path / "times.parquet")
    rows = {"worker": ["a", "a", None], "iteration": ["0", "1", "2"], "seconds": [1.0, 2.0, 3.0]}
    pd.DataFrame(rows, index=[7, 8, 9]).to_parquet(path)
    with pytest.raises(wb.SettingError, match=r"times.parquet', row 3: worker is empty"):
        recorded(path)


def test_recorded_refuses_fields_without_a_name(tmp_path: Path) -> None:
    path = table(tmp_path, "worker,iteration,seconds\n0,0,1,5\n0,1,2,5\n")
    with pytest.raises(wb.SettingError, match="more fields than its first line"):
        recorded(path)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_recorded_sorts_iterations_by_number(tmp_path: Path, kind: str) -> None:
    numbers = np.random.default_rng(0).permutation(12)
    rows = pd.DataFrame({"worker": "a", "iteration": [f"{i:d}" for i in numbers], "seconds": numbers + 1.0})
    path = str(tmp_path / f"times.{kind}")
    rows.to_parquet(path) if kind == "parquet" else rows.to_csv(path, quoting=2)
    times, lengths = recorded(path)
    np.testing.assert_array_equal(times, [np.arange(12) + 1.0])
    assert lengths.tolist() == [12]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(0, 99))
def test_recorded_ignores_the_order_of_rows(lengths: list[int], seed: int) -> None:
    """Each time belongs to its worker and iteration. None is lost or repeated."""
    told = [(w, i, 100.0 * w + i) for w, n in enumerate(lengths) for i in range(n)]
    with TemporaryDirectory() as folder:
        shuffled = np.random.default_rng(seed).permutation(len(told))
        lines = "".join("{},{},{}\n".format(*told[k]) for k in shuffled)
        times, counts = recorded(table(Path(folder), "worker,iteration,seconds\n" + lines))
    assert counts.tolist() == lengths
    for w, n in enumerate(lengths):
        np.testing.assert_array_equal(times[w, :n], 100.0 * w + np.arange(n))
        assert np.isnan(times[w, n:]).all()


@pytest.mark.skipif(not TRACES.is_file(), reason="the recorded EC2 traces are not beside this checkout")
def test_recorded_ec2_times_are_complete() -> None:
    """There are three experiments. Each is read as recorded. All together, without their names, are refused."""
    whole = pd.read_csv(TRACES)
    for name, rows in whole.groupby("experiment"):
        times, lengths = recorded(str(TRACES), str(name))
        assert lengths.sum() == len(rows)
        assert np.nansum(times) == pytest.approx(rows["seconds"].sum())
        first = rows[rows["worker"] == rows["worker"].min()].sort_values("iteration")
        np.testing.assert_array_equal(times[0, : lengths[0]], first["seconds"])
    with TemporaryDirectory() as folder:
        path = Path(folder) / "nameless.csv"
        whole.drop(columns="experiment").to_csv(path, index=False)
        again = int(whole.duplicated(["worker", "iteration"]).to_numpy().argmax())
        with pytest.raises(wb.SettingError, match=f"line {again + 2}: .*worker and step are those of a row"):
            recorded(str(path))


@pytest.mark.skipif(not ALIBABA.is_file(), reason="Alibaba's recorded jobs are not beside this checkout")
def test_recorded_job_of_another_cluster_is_replayed(tmp_path: Path) -> None:
    """The file is refused with its own column names. After renaming, each worker keeps its times, including ties."""
    with pytest.raises(wb.SettingError, match=r"lacks columns \['seconds', 'step'\]; it has"):
        recorded(str(ALIBABA))
    job = pd.read_csv(ALIBABA).rename(columns={"time": "iteration", "batch_time_norm": "seconds"})
    path = str(tmp_path / "job.csv")
    job.to_csv(path, index=False)
    _, lengths = recorded(path)
    assert lengths.tolist() == job.groupby("worker").size().tolist()
    e = wb.Experiment(
        scheme="SGD", scheme_args={"stragglers": 2}, workers=10, rounds=300, problem="unit",
        problem_args={"samples": 10}, delays={"kind": "replay", "path": path},
    )  # fmt: skip
    trace, f = wb.run(e), wb.forecast(e)
    np.testing.assert_allclose(f.seconds, np.diff(trace.rounds["time"], prepend=0.0))
    assert np.isin(np.round(f.seconds), job["seconds"]).all()


@pytest.mark.skipif(not TRACES.is_file(), reason="the recorded EC2 traces are not beside this checkout")
def test_recorded_ec2_workers_stay_slow() -> None:
    """One worker of fifteen is ten times slower for the whole run.

    UMW waits for this worker in each round, and a scheme that leaves out one worker does not.
    """
    delays = {"kind": "replay", "path": str(TRACES), "experiment": "ec2-7"}
    common: dict[str, Any] = {"workers": 15, "rounds": 30, "problem": "unit", "problem_args": {"samples": 15}}
    umw = wb.forecast(wb.Experiment(scheme="UMW", **common, delays=delays))
    ignore = wb.forecast(wb.Experiment(scheme="SGD", scheme_args={"stragglers": 1}, **common, delays=delays))
    assert umw.mean > 8 * ignore.mean


@given(
    st.sampled_from(sorted({"constant", "shifted_exponential", "pareto", "heterogeneous", "markov"})),
    st.floats(0, 1e4),
)
def test_law_of_counts_the_cost_of_a_task_once(kind: str, fixed: float) -> None:
    """`fixed` costs as much as that number of additional samples. A worker without samples has no cost."""
    plain, delay_model = law_of({"kind": kind}), law_of({"kind": kind, "fixed": fixed})
    draw = plain.draw(CounterRNG(3), 0, 4, 0, None)
    loads = np.array([0, 1, 7, 100])
    expected = np.where(loads > 0, plain.compute(draw, loads + fixed), 0.0)
    np.testing.assert_array_equal(delay_model.compute(draw, loads), expected)


def test_replay_resampled_in_blocks(tmp_path: Path) -> None:
    """Blocks of ten iterations keep their order and start at random places, which depend on the seed only."""
    path = table(tmp_path, "worker,iteration,seconds\n" + "".join(f"1,{i},{i + 1}\n" for i in range(100)))

    def times(**fields: Any) -> np.ndarray:
        stream = DelayStream(build({"kind": "replay", "path": path, **fields}), 3, 1, keep=100)
        return np.array([stream.draw(r)[0, 0] for r in range(100)])

    once, twice, other = times(resample_seed=1), times(resample_seed=1), times(resample_seed=2)
    np.testing.assert_array_equal(once, twice)
    assert (once != other).any()
    assert len(set(times())) == 100 > len(set(once))
    assert np.isin(np.diff(once), (1.0, -99.0)).sum() >= 100 - 2 * 10
    for seed in range(5):  # a run in blocks of the same length does not cut the blocks of the sample
        steps = np.diff(times(resample_seed=seed, block=10, resample_block=10))
        assert np.isin(steps[np.arange(1, 100) % 10 > 0], (1.0, -99.0)).all()


def test_heterogeneous_slow_workers_may_be_given() -> None:
    """The draws of a round are the same as if these workers had been drawn to be slow."""
    drawn = DelayStream(law_of({"kind": "heterogeneous"}), seed=4, workers=20)
    who = tuple((np.flatnonzero(drawn.draw(0)[1]) + 1).tolist())
    given_ = DelayStream(law_of({"kind": "heterogeneous", "slow_workers": who}), seed=4, workers=20)
    other = DelayStream(law_of({"kind": "heterogeneous", "slow_workers": who}), seed=5, workers=20)
    for r in range(5):
        np.testing.assert_array_equal(drawn.draw(r), given_.draw(r))
        np.testing.assert_array_equal(other.draw(r)[1], drawn.draw(r)[1])
    named = law_of({"kind": "heterogeneous", "slow_workers": who, "slow": 0.0})
    assert named.expected(1) is named.quantile(0.5, 1) is None  # unknown without the number of workers


def test_heterogeneous_slow_workers_must_exist() -> None:
    slow = {"kind": "heterogeneous", "slow_workers": (2, 6)}
    delay_models = {
        "slow_workers = [2, 6]": slow,
        "after.slow_workers = [2, 6]": {"kind": "changing", "after": slow},
        "worker = 6": {"kind": "changing", "at": 2, "worker": 6},
    }
    for where, delays in delay_models.items():
        assert wb.Experiment(scheme="UMW", workers=6, delays=delays).workers == 6
        with pytest.raises(SettingError) as error:
            wb.Experiment(scheme="UMW", workers=5, delays=delays)
        assert str(error.value) == f"delays.{where}: there are workers 1 to 5"
        with pytest.raises(SettingError, match=r": there is only worker 1$"):
            wb.Experiment(scheme="UMW", workers=1, delays=delays)
    for who in ((0, 2), (2, 2), (-1,)):
        with pytest.raises(SettingError, match=r"slow_workers = \[.*: take different ranks, from 1"):
            wb.Experiment(scheme="UMW", workers=6, delays={"kind": "heterogeneous", "slow_workers": who})


def replayed_rounds(path: str, engine: str = "sim", **fields: Any) -> np.ndarray:
    """Return the round times, s, of four workers with 250 samples each."""
    delays = {"kind": "replay", "path": path, **fields}
    e = wb.Experiment(scheme="UMW", workers=4, rounds=3, problem_args={"samples": 1000}, delays=delays)
    return np.diff(wb.run(e, engine=engine).columns["time"], prepend=0.0)


def test_replay_asks_how_many_samples_a_time_is_for(tmp_path: Path) -> None:
    """The number of samples of a recorded time must be given: 0.05 s could be for a round or for a sample."""
    rows = "".join(f"{w},{t},0.05\n" for w in range(4) for t in range(3))
    path = table(tmp_path, "worker,step,seconds\n" + rows)
    says = (
        rf"^delays\.samples: '{path}' does not say how many samples a recorded time is for; give the number"
    )
    with pytest.raises(wb.SettingError, match=says):
        replayed_rounds(path)
    np.testing.assert_allclose(replayed_rounds(path, samples=250), 0.05)
    # what version 1.0 wrote into every spec
    np.testing.assert_allclose(replayed_rounds(path, samples=1), 12.5)
    np.testing.assert_allclose(replayed_rounds(path, as_recorded=True), 0.05)
    with pytest.raises(wb.SettingError, match=says):
        replayed_rounds(path, as_recorded=True, slope=1e-3)
    for delay_model in ({}, {"samples": None}):
        stream = DelayStream(build({"kind": "replay", "path": path, **delay_model}), 0, 4)
        np.testing.assert_allclose(stream.whole(0, np.array([1, 0, 1, 1])), [0.05, 0, 0.05, 0.05])


def test_recorded_samples_may_be_a_column_of_the_table(tmp_path: Path) -> None:
    """Times for different loads are scaled to the same load. The delay model's field `samples` replaces the column."""
    rows = "".join(f"{w},{t},{0.05 * (1 + w % 2)},{250 * (1 + w % 2)}\n" for w in range(4) for t in range(3))
    path = table(tmp_path, "worker,step,seconds,samples\n" + rows)
    np.testing.assert_allclose(replayed_rounds(path), 0.05)
    # if all times are for 500 samples, the slowest workers take 0.1 s for 500, so 0.05 s for 250
    np.testing.assert_allclose(replayed_rounds(path, samples=500), 0.05)
    np.testing.assert_allclose(replayed_rounds(path, as_recorded=True), 0.1)


@pytest.mark.mpi
def test_replay_that_does_not_fit_starts_no_ranks(tmp_path: Path) -> None:
    path = table(tmp_path, "worker,step,seconds\n0,0,0.05\n")
    with pytest.raises(wb.SettingError, match=r"^delays\.samples: "):
        replayed_rounds(path, "mpi")
    with pytest.raises(wb.SettingError, match=r"^delays\.path = .*no such file"):
        replayed_rounds(str(tmp_path / "gone.csv"), "mpi")
    with pytest.raises(wb.SettingError, match=r"^delays\.as_recorded: 4 workers, and .* has 1; take 1"):
        replayed_rounds(path, "mpi", as_recorded=True)


def test_random_streams_of_a_seed_are_distinct() -> None:
    """Two streams with the same number would draw equal random numbers from one seed."""
    root = Path(wb.__file__).parent
    text = "\n".join(path.read_text() for path in sorted(root.rglob("*.py")))
    streams = {
        name: int(value) for name, value in re.findall(r"^([A-Z_]+_STREAM) = (\d+)", text, re.MULTILINE)
    }
    used = set(re.findall(r"CounterRNG\([\w.]+, ([A-Z]\w+)\)", text))
    assert used
    assert used <= set(streams)
    assert len({0, *streams.values()}) == 1 + len(streams)
