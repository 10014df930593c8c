"""Diagnosis of long steps: which workers, hosts and links cost time, how much, and since when.

The cost of a cause is the time that steps would save if it were like the others. In a recording, a step ends with its
slowest worker (`attribution`). In a run, it ends by its scheme's rule (`run_model`). In a pipelined job, it follows
from the dependencies of operations (`pipeline`). All tests of workers, hosts and links share one level.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.analysis.recordings.attribution import p_values
from workbench.analysis.recordings.averages import AVERAGED, Averages
from workbench.analysis.recordings.hangs import dumps
from workbench.analysis.recordings.hangs.hang import Hang
from workbench.analysis.recordings.late_steps import Spells
from workbench.analysis.recordings.loading import load
from workbench.analysis.recordings.mitigations import Candidate, Steps, mitigations
from workbench.analysis.recordings.phases import Phases
from workbench.analysis.recordings.pipeline import COMPUTING, OPTIMISER, TRANSFERS, Pipeline
from workbench.analysis.recordings.recording import MAX_RATIO, Recording
from workbench.analysis.recordings.run_model import (
    COMPUTE,
    DECODING,
    LINK,
    MAX_CAUSES,
    PORT,
    Cause,
    Rounds,
)
from workbench.analysis.recordings.sources import bytedance, runs
from workbench.analysis.recordings.suspects import MIN_COST_SHARE, late_causes, longer, suspects
from workbench.analysis.recordings.verdict import FIX_TEXTS, UNEVEN, Culprit, Diagnosis, label_of
from workbench.core.base.settings import SettingError, check_kind, user_path
from workbench.core.base.types import Array
from workbench.core.contract.delays import resampled
from workbench.core.experiment import Description
from workbench.core.trace.trace import Trace

BALANCED = "the same work for every worker"
CODE_LEFT_OUT = "the scheme's rule, as the folder names code (trust=True, --trust)"
BOOTSTRAP_DRAWS, BAND_QUANTILES = 400, (0.05, 0.95)
FALSE_ALARM_LEVEL = 0.01  # probability of naming a culprit if all are equal
# a cost is chronic (present in most steps) if its median is at least this share of its mean
CHRONIC_MEDIAN_SHARE = 0.5


def diagnose(
    what: Recording | Trace | str | Path, seed: int = 0, *, trust: bool = False
) -> Diagnosis | Hang | Averages:
    """Find the workers, hosts and links that make steps long.

    Parameters
    ----------
    what
        A recording, a run, or the path of one. A job in ByteDance's format is modelled operation by operation. Flight
        recorder dumps give a `Hang`, the ranks for which a hanging job waits; summaries of averages give `Averages`.
    seed
        Seed of the draws for bands and p-values.
    trust
        Run the code that a run folder names. Without it, such a run is diagnosed by its recorded computing times alone.

    Raises
    ------
    SettingError
        There is nothing to compare: one worker, several jobs, or no time above 0. Or `seed` is not a whole number
        from 0.

    Examples
    --------
    >>> import pandas as pd
    >>> times = [(w, t, (2.0 if w == 3 else 1.0) + 0.01 * ((7 * t + 3 * w) % 5)) for t in range(40) for w in range(8)]
    >>> rows = pd.DataFrame(times, columns=["worker", "step", "seconds"])
    >>> [one.who for one in diagnose(Recording.of_rows(rows, "one slow")).culprits]
    ['worker 3']
    """
    check_kind("seed", seed, int)
    if seed < 0:
        raise SettingError(f"seed = {seed}: take 0 or more")
    check_kind("trust", trust, bool)
    if isinstance(what, str | Path) and runs.SOURCE.tells(folder := user_path(what, "path")):
        what = Trace.load(folder, trust=trust)
    if isinstance(what, str | Path) and dumps.tells(folder := user_path(what, "path")):
        return Hang.of(folder)
    if isinstance(what, Trace) and isinstance(what.experiment, Description):
        times = Recording.of_rows(runs.of_trace(what).query("worker > 0"), what.label)
        found = _of_recording(times, np.random.default_rng(seed))
        return replace(found, left_out=f"{found.left_out}; {CODE_LEFT_OUT}")
    if isinstance(what, Trace):
        return _of_run(what, np.random.default_rng(seed))
    job = (what if isinstance(what, Recording) else load(what)).job()
    if AVERAGED in job.source:
        return Averages.of(job)
    operations = _operations(job)
    if operations is not None:
        return _of_pipeline(job.names[0], operations, np.random.default_rng(seed))
    return _of_recording(job, np.random.default_rng(seed))


def _operations(job: Recording) -> pd.DataFrame | None:
    """Return the operations from which a recording was made, if the file exists and still gives the same recording."""
    file = Path(job.source.get("file", ""))
    if job.source.get("title") == bytedance.SOURCE.title and file.is_file():
        with suppress(SettingError):
            return bytedance.operations(file) if load(file).frame.equals(job.frame) else None
    return None


def _of_recording(job: Recording, rng: np.random.Generator) -> Diagnosis:
    """Diagnose a recording by the slowest worker of every step, and by causes that delay answers, if recorded."""
    parts = Phases.of(job)
    times, now = parts.own_seconds, parts.lasting()
    level = FALSE_ALARM_LEVEL / (1 + (len(parts.hosts) > 1))
    causes = suspects(parts.computing | {COMPUTE: times}, float(now.sum()), parts.hosts, level, rng)
    players = {cause.name: list(cause.workers) for cause in causes if cause.name}
    gone = {i for who in players.values() for i in who}
    players |= {name: [i] for i, name in enumerate(parts.names) if i not in gone}
    even, like, slow_links = parts.even_without(causes), "the median", parts.slow_links()
    late = sorted({i for cause in causes for i in cause.workers})
    alike = parts.like_others(late, rng.spawn(1)[0]) if causes or slow_links else even
    if parts.exchange.any() and (causes or slow_links):
        even, like = alike, f"the other {'workers' if causes else 'links'}"
    over = np.maximum(times - even[:, None], 0.0)
    share, *rest = parts.shares(np.stack([over[:, at].max(axis=1) for at in players.values()], axis=1), even)
    found, costs, usual = [], {}, []
    for (who, columns), gain in zip(players.items(), share.T, strict=True):
        shared_causes = {cause.what: cause for cause in causes if {*cause.workers} == {*columns}}
        what = parts.why(columns)
        # a cause that was not tested is replaced by the one that was
        if what in parts.computing and what not in shared_causes:
            what = next(iter(shared_causes), what)
        if shared_causes:
            spells = Spells.of(times, columns, parts.steps)
            found.append(_culprit(who, gain, now, rng, what, spells, _more(parts.computing, what, columns)))
            if what in FIX_TEXTS:
                usual.append((found[-1], np.maximum(parts.without(shared_causes[what]).max(axis=1), alike)))
        costs[label_of(who, what if shared_causes else COMPUTE)] = gain
    parts_of_steps = zip((PORT, DECODING, UNEVEN), (*rest, parts.uneven), strict=True)
    others = {str(cause): gain for cause, gain in parts_of_steps if gain.any()}
    found += [_culprit(who, gain, now, rng, who) for who, gain in others.items()]
    after = [*parts.names[1:], *parts.names[:1]]  # the worker to which each one sends
    links = {f"the link from {parts.names[i]} to {after[i]}": gain for i, gain in slow_links.items()}
    found += [_culprit(who, gain, now, rng, LINK) for who, gain in links.items()]
    # an exchange passes all links at once, so that only the slowest of several makes it longer
    slow = np.max([np.zeros(len(now)), *links.values()], axis=0)
    repaired, without = (parts.repaired(each - slow) for each in (even, alike))
    # With a mitigation, a step takes at least as long as if the named workers were like the others. Without recorded
    # exchanges, a code may save more if the others' lateness costs more than that of the named workers.
    beyond = 0.0 if parts.exchange.any() else (alike - np.median(times, axis=1)).sum()
    least = without if (late or links) and (now - without).sum() >= beyond else parts.least
    steps = Steps(times, parts.names, besides=parts.besides, least=least)
    helped = _help(usual) + [Candidate(BALANCED, now - parts.uneven, "UMW", {})] * bool(parts.uneven.any())
    tried = partial(mitigations, steps, times.max(axis=1) + parts.besides, rng, helped)
    return _summary(
        job.names[0],
        now,
        repaired,
        costs | others | links,
        found,
        left_out=parts.left_out,
        notice=_notice(parts.names, times),
        tried=tried,
        last=parts.steps[-1],
        like=like,
    )


def _notice(names: Sequence[str], times: Array) -> str:
    """Return a notice about workers whose usual times are so long that their units may differ, or ""."""
    own = np.median(times, axis=0)
    # shorter times are not named: those that overlap with an exchange have a lower bound, or are 0
    who = ", ".join(np.array(names)[own > MAX_RATIO * np.quantile(own, 0.5, method="lower")])
    return f"{who}: times are over {MAX_RATIO:g} times as long as others'; check their units" * bool(who)


def _more(computing: Mapping[str, Array], what: str, who: Sequence[int]) -> float:
    """Return the excess of a worker's waiting or computing over the median of the other workers, as a share."""
    return longer(computing[what], who) if what in FIX_TEXTS else float("nan")


def _help(usual: Iterable[tuple[Culprit, Array]], scheme: str = "UMW", **args: Any) -> list[Candidate]:
    """Return mitigations for workers that wait for a processor, or whose processor is slow.

    `usual`: each such culprit, and the steps' seconds if it were like the others.
    """
    known = [(FIX_TEXTS[one.what].format(one.who), seconds) for one, seconds in usual if _counts(one)]
    return [Candidate(text, seconds, scheme, args) for text, seconds in known]


def _of_run(trace: Trace, rng: np.random.Generator) -> Diagnosis:
    """Diagnose a run. Its times show which workers are slow. The scheme's round times show what they cost."""
    run = Rounds.of(trace)
    if run.seconds.shape[1] < 2:
        raise SettingError(f"run {trace.label!r}: has one worker, which cannot be compared with others")
    e, now, hosts = trace.experiment, run.lasting(), runs.hosts_of(trace)
    late, transits, computing = run.late.astype(np.float64), run.transit.any(), run.computing
    level = FALSE_ALARM_LEVEL / (1 + run.late.any() + transits + (len(hosts) > 1))
    causes = suspects(computing, float(now.sum()), hosts, level, rng)
    if run.late.any():
        known = {i for cause in causes for i in cause.workers}
        cut = np.flatnonzero(p_values(late, rng) <= level).tolist()
        causes += [Cause(COMPUTE, (i,)) for i in cut if i not in known]
    causes += late_causes(LINK, run.transit, float(now.sum()), {}, level, rng) if transits else []
    others = [PORT] * (run.link != run.link.without(transfers=True)) + [DECODING] * (
        run.decode_rate is not None
    )
    gains = run.shapley([*run.dearest(causes, MAX_CAUSES - len(others)), *others])
    found = [
        _culprit(
            str(cause),
            gain,
            now,
            rng,
            cause.what,
            _spells_of(run, cause),
            _more(computing, cause.what, cause.workers),
        )
        for cause, gain in gains.items()
    ]
    usual = [
        (one, run.lasting([cause]) + run.lasted - now)
        for one, cause in zip(found, gains, strict=True)
        if cause.what in FIX_TEXTS
    ]
    helped = _help(usual, e.scheme, **e.scheme_args)
    everybody = tuple(range(e.workers))
    even = run.lasting([Cause(COMPUTE, everybody), Cause(LINK, everybody), *others])
    waiting_share = float(now.sum() / run.lasted.sum())
    seen = run.decode_rate is not None or run.link == e.line
    unseen = "" if seen else "; decoding, which real runs do not record"
    return _summary(
        trace.label,
        now,
        even,
        {one.label: gain for one, gain in zip(found, gains.values(), strict=True)},
        found,
        left_out=f"{run.late.mean():.0%} of the work was cut off, and is taken to have ended with its round; the"
        f" scheme's rounds with these times are {waiting_share:.1%} of the run, and the rest is taken to stay{unseen}",
        # The full time of interrupted work is unknown.
        tried=None if run.late.any() else partial(mitigations, _even(run, now), run.lasted, rng, helped),
        last=int(run.trace.columns["round"][0]) + len(now) - 1,
        harmless=tuple(one.who for one in found if not _counts(one) and one.what in (COMPUTE, *FIX_TEXTS)),
    )


def _even(run: Rounds, now: Array) -> Steps:
    """Return the run's steps, on which mitigations are tried, with times for equal shares of the data.

    The time of a real round beyond its scheme's rule (wake-ups, work of the master) is assumed to stay.
    """
    e = run.trace.experiment
    count = e.problem_spec.count()
    shares = e.built_scheme.loads(e.workers, count) * e.workers / count
    names = [str(Cause(COMPUTE, (i,))) for i in range(e.workers)]
    besides = run.lasted - now
    return Steps(run.seconds / shares, names, run.link, e.shape()[1], run.decode_rate, run.transit, besides)


def _spells_of(run: Rounds, cause: Cause) -> Spells:
    """Return the spells in which a worker or a host computes slowly. Other causes have no spells."""
    if (times := run.computing.get(cause.what)) is None:
        return Spells()
    first = int(run.trace.columns["round"][0])
    return Spells.of(times, cause.workers, range(first, first + len(times)))


def _summary(
    name: str, now: Array, repaired: Array, costs: Mapping[str, Array], found: list[Culprit], **more: Any
) -> Diagnosis:
    """Make a diagnosis from the seconds of the steps, recorded and without delays, and the cost of each cause."""
    worst = tuple(one for one in sorted(found, key=lambda one: -one.cost) if _counts(one))
    share = {who: float(gain.sum() / now.sum()) for who, gain in costs.items()}
    return Diagnosis(name, float(now.sum() / repaired.sum()), worst, share, **more)


def _counts(one: Culprit) -> bool:
    """Return whether the cost is large enough to report, and its lower limit above zero."""
    return one.cost >= MIN_COST_SHARE and one.low > 0


def _culprit(
    who: str,
    gain: Array,
    now: Array,
    rng: np.random.Generator,
    what: str,
    spells: Spells = Spells(),  # noqa: B008
    more: float = np.nan,
) -> Culprit:
    draws = [resampled(len(now), rng) for _ in range(BOOTSTRAP_DRAWS)]
    low, high = np.quantile([gain[d].sum() / now[d].sum() for d in draws], BAND_QUANTILES).tolist()
    within = gain if spells.late is None else gain[spells.late]
    chronic = float(np.median(within)) > CHRONIC_MEDIAN_SHARE * float(within.mean())
    cost = float(gain.sum() / now.sum())
    return Culprit(who, cost, low, high, chronic, spells.onset, what, more, spells.steps)


def _of_pipeline(name: str, rows: pd.DataFrame, rng: np.random.Generator) -> Diagnosis:
    """Diagnose a job of stages and replicas.

    A cost is the time that one worker or stage, with its recorded durations, adds to a step with average durations. If
    all replicas of the worst worker's stage cost at least half as much as this worker, the stage is reported as too
    long. Costs that the work of micro-batches explains are reported separately.
    """
    job = Pipeline.of(rows)
    even = job.even()
    real, ideal, work = job.seconds(job.durations), job.seconds(even), job.even_work()
    ranks = rows.groupby(["stage", "dp_rank"])["rank"].first()

    def cost(stage: int, replica: int | slice, kinds: Collection[str] = ()) -> Array:
        mixed = {
            k: _mixed(even[k], d, replica) if k[2] == stage and (not kinds or k[0] in kinds) else even[k]
            for k, d in (work or job.durations).items()
        }
        return np.asarray(job.seconds(mixed) - ideal)

    workers = {key: cost(*key) for key in ranks.index}
    stages = {stage: cost(stage, slice(None)) for stage in range(job.stages)}
    costs = {f"worker {ranks[key]} (stage {key[0]})": each for key, each in workers.items()}
    costs |= {f"stage {stage}": each for stage, each in stages.items()}
    worst = max(workers, key=lambda key: float(workers[key].mean()))
    alike = [float(each.mean()) for key, each in workers.items() if key[0] == worst[0]]
    one = f"worker {ranks[worst]} (stage {worst[0]})"
    long = len(alike) > 1 and min(alike) >= 0.5 * max(alike)
    who, series = (f"stage {worst[0]}", stages[worst[0]]) if long else (one, workers[worst])
    stage, replica = worst[0], slice(None) if long else worst[1]
    kinds = {COMPUTE: (*COMPUTING, OPTIMISER), LINK: tuple(TRANSFERS)}
    by = {what: float(cost(stage, replica, some).mean()) for what, some in kinds.items()}
    found = [_culprit(who, series, real, rng, max(by, key=by.__getitem__))]
    if work is not None:
        costs[str(UNEVEN)] = real - job.seconds(work)
        found.append(_culprit(str(UNEVEN), costs[str(UNEVEN)], real, rng, str(UNEVEN)))
    left_out = "what the processor does between operations, and model chunks that share a stage"
    return _summary(name, real, ideal, costs, found, left_out=left_out, like="the average of their kind")


def _mixed(even: Array, real: Array, replica: int | slice) -> Array:
    mixed = even.copy()
    mixed[:, replica] = real[:, replica]
    return mixed
