"""Measure the regret of adaptive runs against the best fixed configuration in hindsight, for the same rounds.

    python benchmarks/adaptive_selection.py [--rounds 300] [--seeds 10] [--workers 10] [--data FOLDER] [--only REGEX]
    [--real N]

Every scheme here commits the full gradient. Equal rounds therefore give equal models and losses. Regret is the time of
the run with `adaptive = True`, divided by the time of the fastest configuration, minus 1. The configurations are those
that the run may change to (`Experiment.adaptive_controller().configurations`), each used for all rounds with the same
seed. Regret below 0 means that the adaptive run was faster than all fixed configurations. With a fixed configuration,
each worker has its samples at the start. In the adaptive run, each worker has those of the first configuration.

Recordings (FOLDER: files that `wb.traces.load` reads) are replayed in recorded order ("recorded") and in random blocks
("blocks"). Both orders keep bursts. Other delay models have change points.

`--real 3`: three runs on real processes in which a change of scheme saves time, and three in which nothing changes,
beside the same runs without adaptive selection.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import workbench as wb
from workbench.core.contract.configurations import Configuration
from workbench.core.contract.delays import DelayStream
from workbench.core.contract.round_times import SampledTimes
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.running.simulated import timeline

FEATURES = 20
FAST = {"kind": "shifted_exponential", "shift": 1e-4, "rate": 5e4}  # s per sample
SLOW = {"kind": "shifted_exponential", "shift": 8e-4, "rate": 6e3}
BURSTS = {"kind": "markov", "shift": 1e-4, "p_slow": 0.02, "p_recover": 0.15, "factor": 8}
CALM = {"kind": "shifted_exponential", "shift": 1e-4, "rate": 1e6}
SEND = {"kind": "two_part", "t1": 1e-4, "lambda1": 1e5, "t2": 2e-3, "lambda2": 1e4}
CROWDED = {"kind": "two_part", "t1": 1e-4, "lambda1": 1e5, "t2": 0.4, "lambda2": 50.0}


def changing(before: dict[str, Any], after: dict[str, Any], at: int, **more: Any) -> dict[str, Any]:
    """Return a delay model that is replaced by another one in round `at`."""
    return {"kind": "changing", "before": before, "after": after, "at": at, **more}


def stationary(rounds: int) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield name, delays and link of delay models that do not change, except for calm spells in the last one."""
    tail = {"kind": "pareto"}
    turns: dict[str, Any] = tail
    for k, at in enumerate(range(50, rounds, 50)):
        turns = changing(turns, tail if k % 2 else CALM, at)
    yield "shifted exponential", FAST, {}
    yield "exponential, any load", {"kind": "exponential", "mean": 1e-2}, {}
    yield "pareto", tail, {}
    yield "pareto, heavier", {"kind": "pareto", "shape": 1.2}, {}
    yield "heterogeneous", {"kind": "heterogeneous"}, {}
    yield "markov", BURSTS, {}
    yield "two part", SEND, {}
    yield "pareto and calm in turn", turns, {}


def synthetic(rounds: int) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield name, delays and link of delay models with change points."""
    third = rounds // 3
    yield "nothing changes", FAST, {}
    yield "one worker becomes slow", changing(FAST, SLOW, third, worker=3), {}
    once = changing(FAST, SLOW, third, worker=3)
    yield "slow, then well again", changing(once, FAST, 2 * third), {}
    yield "bursts begin", changing(CALM, BURSTS, third), {}
    yield "stragglers vanish", changing(BURSTS, CALM, third), {}
    yield "the bandwidth falls", changing(SEND, CROWDED, third), {}
    yield "slow, moves cost", changing(FAST, SLOW, third, worker=3), {"bandwidth": 2e6}
    yield "bursts, moves cost", changing(CALM, BURSTS, third), {"bandwidth": 2e6}


def recorded(
    folder: Path, samples: int, workers: int
) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield name, delays and link of each recording. A recorded task counts as samples / workers samples."""
    for file in sorted(path for path in folder.rglob("*") if path.suffix in (".csv", ".parquet")):
        recording = wb.traces.load(file)
        for name in recording.names:
            for how in ("recorded", "blocks"):
                delay_model = recording.job(name).delays(how, samples=samples / workers)
                yield f"{name}, {how}", delay_model.model_dump(), {}


def fixed(e: wb.Experiment, way: Configuration, stream: DelayStream) -> float:
    """Return the seconds of all rounds with one configuration, on sampled times that all configurations share."""
    floats = e.shape()[1]
    loads = way.plan.loads[1:]

    def send(length: float) -> Any:
        rows = [stream.sending(r, length / floats) for r in range(e.rounds)]
        return 0.0 if rows[0] is None else np.array(rows)

    def ties(which: Any) -> Any:
        return np.stack([stream.ties(int(r)) for r in which])

    seconds = np.stack([stream.whole(r, loads) for r in range(e.rounds)])
    return float(
        way.scheme.round_times(SampledTimes(seconds, send, e.line, floats, ties), e.workers).seconds.sum()
    )


def regret(e: wb.Experiment) -> tuple[float, int, str]:
    """Return the regret, the number of changes, and the best configuration."""
    stream = DelayStream(e.delays, e.seed, e.workers, e.rounds)
    times = {str(way): fixed(e, way, stream) for way in e.adaptive_controller().configurations}
    best = min(times, key=lambda way: times[way])
    simulated = timeline(e, Coefficients(e.plan), events=False)  # the models do not depend on the delays
    return simulated.times[-1] / times[best] - 1, len(simulated.changes), best


def show(name: str, found: list[tuple[float, int, str]]) -> None:
    """Print the mean regret with its 95 % interval, changes per run, and the best configurations."""
    regrets = np.array([one for one, _, _ in found])
    half = 1.96 * regrets.std(ddof=1) / len(regrets) ** 0.5 if len(regrets) > 1 else float("nan")
    best = sorted({b for _, _, b in found}, key=lambda way: -sum(b == way for _, _, b in found))
    print(
        f"{name:32}{regrets.mean():8.1%} ± {half:5.1%}{regrets.max():9.1%}"
        f"{np.mean([n for _, n, _ in found]):8.1f}   {', '.join(best[:2])}",
        flush=True,
    )


def real(repeat: int) -> None:
    """Print the times of real runs with and without adaptive selection, and the changes of scheme.

    One worker of six is slow for a third of the run, or no worker is slow. Times are in s, by the run's own clock, and
    include changes and planning. The runs of a setting alternate, so that other load of the machine affects them all.
    """
    calm, third = {"kind": "shifted_exponential", "shift": 6e-4, "rate": 2e4}, 80
    slow = {"kind": "shifted_exponential", "shift": 6e-3, "rate": 2e3}
    spell = changing(changing(calm, slow, third, worker=3), calm, 2 * third)
    code, uncoded = {"scheme": "GC", "scheme_args": {"stragglers": 1}}, {"scheme": "UMW"}
    common = {"workers": 6, "rounds": 3 * third, "problem": "least_squares", "problem_args": {"samples": 600}}
    for name, delays in (("worker 3 slow for a while", spell), ("nothing happens", calm)):
        plans = {"adaptive": {**uncoded, "adaptive": True}, "GC": code, "UMW": uncoded}
        runs: dict[str, list[wb.Trace]] = {label: [] for label in plans}
        for _ in range(repeat):
            for label, plan in plans.items():
                e = wb.Experiment(**common, delays=delays, **plan)
                runs[label].append(wb.run(e, engine="mpi", events=False))
        times = {label: [float(t.columns["time"][-1]) for t in found] for label, found in runs.items()}
        for label, took in times.items():
            print(f"{name:26} {label:9} {np.mean(took):6.2f} s ({', '.join(f'{x:.2f}' for x in took)})")
        best = min(np.mean(took) for label, took in times.items() if label != "adaptive")
        first, other = runs["adaptive"][0], runs["UMW"][0]
        apart = float(np.abs(first.model - other.model).max())
        print(
            f"{'':26} adaptive over the best fixed: {np.mean(times['adaptive']) / best:.3f}; models {apart:.0e} apart"
        )
        for change in first.changes:
            print(
                f"{'':26} round {change.round}: {change.before} -> {change.after}: {change.reason}",
                flush=True,
            )


def main() -> None:
    """Print the regret for each recording and each delay model, over all seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--stragglers", type=int, default=2, help="stragglers of the first gradient code")
    parser.add_argument(
        "--real", type=int, default=0, help="number of runs of each kind on real processes instead"
    )
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--only", default="", help="regular expression: run only cases with a matching name")
    parser.add_argument("--data", type=Path, default=None, help="folder of recordings")
    chosen = parser.parse_args()
    if chosen.real:
        return real(chosen.real)
    n = chosen.workers
    samples = 100 * n
    cases = [*stationary(chosen.rounds), *synthetic(chosen.rounds)]
    if chosen.data is not None:
        cases += recorded(chosen.data, samples, n)
    print(f"{'':32}{'regret':>16}{'worst':>11}{'changes':>8}   best fixed")
    for name, delays, link in [case for case in cases if re.search(chosen.only, case[0])]:
        e = wb.Experiment(
            scheme="GC" if chosen.stragglers else "UMW",
            scheme_args={"stragglers": chosen.stragglers} if chosen.stragglers else {},
            workers=n,
            rounds=chosen.rounds,
            problem="least_squares",
            problem_args={"samples": samples, "features": FEATURES},
            delays=delays,
            link=link,
            adaptive=True,
        )
        seeds = tqdm(
            range(chosen.first, chosen.first + chosen.seeds),
            desc=name,
            leave=False,
            disable=not sys.stderr.isatty(),
        )
        show(name, [regret(e.replace(seed=seed)) for seed in seeds])


if __name__ == "__main__":
    main()
