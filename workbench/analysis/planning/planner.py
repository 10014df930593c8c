"""The planner: find the fastest scheme and parameters on a measured cluster by forecasts, resampling and ranking.

A scheme provides parameters that are worth trying (`Scheme.candidates`) and its round times (`Scheme.round_times`).
Nothing here depends on a particular scheme. A choice's time is its round time, multiplied by its rounds to a loss.
Exact schemes with one optimiser need equally many. Others are simulated, with their own step sizes (`targets`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from workbench.analysis.planning.advice import Advice, Refusal
from workbench.analysis.planning.finer import FINER_PASSES, FINER_SETTINGS, MIN_SEEDS, affordable, finer
from workbench.analysis.planning.plan_notes import notes, step_notes
from workbench.analysis.planning.predicting import (
    FAR_BEHIND_RATIO,
    Candidate,
    Resampling,
    by_scheme,
    doubted,
    misfit,
    missed,
    screened,
    sharpened,
    told_apart,
)
from workbench.analysis.planning.profile import ClusterProfile, Task
from workbench.analysis.planning.ranking import ranked
from workbench.analysis.planning.targets import (
    MAX_BEHIND_RATIO,
    MAX_NUMBERS,
    Target,
    Trials,
    centre,
    leaves_step_open,
    portion,
    reference,
    stepped,
    stretched,
)
from workbench.core import schemes as known
from workbench.core.base.arguments import kinds_checked
from workbench.core.base.bar import Bar
from workbench.core.base.settings import SettingError
from workbench.core.experiment import Experiment
from workbench.core.forecasting import Forecast, settled
from workbench.core.problems.data import DataError
from workbench.core.running.precision import lost_digits

FORECAST_ROUNDS, FORECAST_SEEDS = 64, 4  # rounds and seeds of a forecast by which candidates are compared
MAX_ROUNDS_RATIO = 1.1  # max round time of a simulated scheme that is not numeric, relative to the best exact
MAX_BATCH_ROUNDS = 8  # max ratio of the rounds with mini-batches to those with full gradients
BYTES_PER_RANK = 45e6  # bytes of memory of a rank, without data


@kinds_checked
def plan(
    profile: ClusterProfile | str | Path,
    problem: str = "logistic",
    problem_args: Mapping[str, Any] | None = None,
    *,
    workers: int | None = None,
    rounds: int = 100,
    target: float | None = None,
    metric: str = "loss",
    tolerance: float = 0.02,
    schemes: Sequence[str] | None = None,
    seed: int = 0,
    effort: float = MAX_NUMBERS,
    seconds: float | None = None,
    machines: Literal["same", "new"] | None = None,
    replay: bool = False,
    batches: Sequence[int] = (),
    progress: bool = False,
    **fields: Any,
) -> Advice:
    """Rank schemes and their parameters by the time to a loss on a measured cluster. `refusals`: those not ranked.

    Parameters
    ----------
    profile, problem, problem_args, workers, seed
        `profile`: result of `wb.profile`, or its file. Others: an experiment's fields. Default `workers`: as measured.
    rounds, target, metric, tolerance
        Value to reach. Default: that of an exact scheme after `rounds` updates, less `tolerance` times its change.
    schemes, effort
        Names of schemes to consider (default: all). `effort`: max number of data values that all simulations together
        process. Default: 20 to 40 s of a core for 12 workers. 0: only exact schemes, with the automatic step size.
    seconds
        Max time of the search, s; candidates that were not tried by then are refused. None: unlimited.
    machines, replay
        "same": plan for the measured workers, each in its place. "new": plan for other workers of this kind, drawn from
        the fitted delay model. Default: "same" if as many workers are planned for as were measured. `replay`: use
        recorded times in place of the fitted delay model; on new machines they are reassigned at random.
    batches
        Sizes of mini-batches, `Experiment.batch`, to compare as well, each with every scheme. All have the same target.
    progress, **fields
        Show a bar; other fields of an experiment. By default, each scheme has its paper's `optimiser`.

    Raises `SettingError` if a field does not fit, a target is out of reach, or no scheme can be ranked.

    Examples
    --------
    >>> from workbench.analysis.planning.measuring import simulated
    >>> measured = simulated(Experiment(workers=6, scheme="UMW", link={"bandwidth": 1e5}), rounds=8)
    >>> plan(measured, problem_args={"samples": 600, "features": 500}, schemes=["UMW", "CR"], rounds=20).best.scheme
    'CR'
    """
    _check(0.0 if target is not None else tolerance, effort, schemes, seconds)
    cluster = profile if isinstance(profile, ClusterProfile) else ClusterProfile.load(profile)
    count, args = cluster.workers if workers is None else workers, dict(problem_args or {})
    base = _base(fields, problem=problem, problem_args=args, workers=count, rounds=rounds, seed=seed)
    placed = _planned(cluster, machines, count, replay)
    others = _with_batches(base, batches, effort)
    deadline = time.monotonic() + (seconds or float("inf"))
    search = _Search(placed, base, effort / (1 + len(others)), progress, metric, deadline)
    return search.advice(schemes, "optimiser" in fields, target, tolerance, others)


def _with_batches(base: Experiment, batches: Sequence[int], effort: float) -> list[Experiment]:
    """Return the experiment with each size of mini-batches, and more rounds for smaller ones."""
    if batches and not effort:
        raise SettingError(f"batches = {list(batches)}: their rounds must be simulated; take effort above 0")
    found = []
    for batch in batches:
        other = base.replace(batch=batch)
        more = max(min(round(base.share / other.share), MAX_BATCH_ROUNDS), 1)
        found.append(other.replace(rounds=more * base.rounds))
    return found


def _check(tolerance: float, effort: float, schemes: Sequence[str] | None, seconds: float | None) -> None:
    if not 0 <= tolerance < 1:
        raise SettingError(f"tolerance = {tolerance}: is a share of the decrease; take 0 or more, below 1")
    if not effort >= 0:
        raise SettingError(f"effort = {effort}: take 0 or more")
    if seconds is not None and not seconds > 0:
        raise SettingError(f"seconds = {seconds}: take more than 0, or None for no limit")
    if schemes is not None and not len(schemes):
        raise SettingError("schemes = []: name one at least, or take None for all")


def _planned(cluster: ClusterProfile, machines: str | None, count: int, replay: bool) -> ClusterProfile:
    """Return the cluster to plan for: the measured machines, or others of their kind."""
    if machines not in (None, "same", "new"):
        raise SettingError(
            f"machines = {machines!r}: take 'same' (those measured) or 'new' (others of their kind)"
        )
    if machines == "same" and count > cluster.workers:
        raise SettingError(
            f"machines = 'same': {cluster.workers} workers were measured, and workers = {count};"
            f" take {cluster.workers} or fewer, or machines = 'new'"
        )
    if machines == "new" and cluster.same_machines:
        raise SettingError(
            "machines = 'new': the profile is of these machines (`here`); give the measured one"
        )
    cluster = cluster.replayed() if replay else cluster
    same = machines == "same" or (machines is None and count == cluster.workers)
    return cluster.here(count) if same else cluster


def _base(fields: Mapping[str, Any], **common: Any) -> Experiment:
    """Return the fields that all candidates have in common."""
    if taken := {"scheme", "scheme_args", "delays", "link", "decode_rate", "faults"} & set(fields):
        raise SettingError(f"{min(taken)}: the planner fills it in; leave it out")
    base = Experiment(scheme="UMW", **common, **fields)
    base.problem_spec.check_exact("the planner")
    return base


class _NotSimulated(Exception):
    """Signal that nothing is simulated, so that the number of rounds is the field `rounds`."""


@dataclass(frozen=True)
class _Search:
    """Search among all schemes for those to rank. Reasons for refusing the others are collected."""

    cluster: ClusterProfile
    base: Experiment  # fields that all candidates have in common
    effort: float
    progress: bool
    metric: str = "loss"
    deadline: float = float("inf")  # end of the search on the monotonic clock, s
    refusals: list[Refusal] = field(default_factory=list)
    # scheme -> inexact candidates, the shortest round first
    simulable: dict[str, list[Candidate]] = field(default_factory=dict)

    def refuse(self, name: str, reason: str) -> None:
        """Record why a scheme, a configuration (scheme with parameters) or a size of batches is refused."""
        self.refusals.append(Refusal(name, reason))

    def advice(
        self,
        schemes: Sequence[str] | None,
        chosen: bool,
        target: float | None,
        tolerance: float,
        others: Sequence[Experiment],
    ) -> Advice:
        """Collect candidates, choose a target, predict times and rank. `chosen`: the user chose the optimiser."""
        aim, found = self.aimed(self.candidates(schemes, chosen), target, tolerance)
        all_ = Resampling(self.cluster, aim, self.base.seed)
        found = self.refined(all_, self.screened(all_, found), aim)
        for other in others:
            found += replace(self, base=other, simulable={}).with_batch(schemes, chosen, aim)
        found = self.reaching(found, aim)
        found = self.reaching(sharpened(all_, found, self.progress, self.deadline), aim)
        found = self.reaching(told_apart(all_, found), aim) if not self.over else found
        doubt = doubted(all_, found) if not self.over else None
        found = [replace(c, misfit=misfit(self.cluster, c)) for c in found]
        found_notes = (*notes(self.cluster, self.base, aim), *step_notes(self.base, self.effort))
        aim_text = f"for {self.base.rounds} rounds" if aim.loss is None else f"to {_aim_text(aim)}"
        return Advice(
            tuple(ranked(self.cluster, found, aim)),
            tuple(self.refusals),
            aim_text,
            found_notes,
            aim.loss,
            doubt,
        )

    def with_batch(self, schemes: Sequence[str] | None, chosen: bool, aim: Target) -> list[Candidate]:
        """Return the candidates with mini-batches, simulated up to the target that full gradients have."""
        try:
            every = self.candidates(schemes, chosen)
            own, found = self.aimed(every, aim.loss, 0.0, aim.samples)
        except SettingError as error:
            self.refuse(f"batch {self.base.batch}", str(error))
            return []
        all_ = Resampling(self.cluster, own, self.base.seed)
        if alike := [c for c in found if c.trials is None]:
            need = Trials(own, own.times).need([all_.again(alike[0], k) for k in range(MIN_SEEDS)], own.times)
            found = [
                replace(c, need=need, optimiser=need.optimiser) if c.trials is None else c for c in found
            ]
        return self.refined(all_, self.screened(all_, found), own)

    @property
    def over(self) -> bool:
        """Whether the time of the search is used up."""
        return time.monotonic() > self.deadline

    def screened(self, all_: Resampling, found: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates with a few predictions; refuse those that were not tried in time."""
        found = sorted(found, key=lambda c: c.forecast.mean) if self.deadline < float("inf") else found
        for c in found[len(some := screened(all_, found, self.progress, self.deadline)) :]:
            self.refuse(c.name, "not tried: the time of the search was used up; raise seconds")
        return some

    def refined(self, all_: Resampling, found: Sequence[Candidate], aim: Target) -> list[Candidate]:
        """Return the candidates, and further ones with parameters near the best of each scheme.

        Schemes whose best candidate is far behind get no further ones.
        """
        known_ones = list(found)
        front = FAR_BEHIND_RATIO * min((c.mean for c in found if not missed(c)), default=float("inf"))
        for simulated in (False, True):
            for some in by_scheme([c for c in found if (c.trials is not None) == simulated]).values():
                if min((c.mean for c in some if not missed(c)), default=0.0) <= front:
                    known_ones += self.nearby(all_, some, aim)
        return known_ones

    def nearby(self, all_: Resampling, some: Sequence[Candidate], aim: Target) -> list[Candidate]:
        """Return more candidates of a scheme, found in passes. Each pass begins near the best so far."""
        tried = list(some)
        for _ in range(FINER_PASSES):
            more = FINER_SETTINGS if some[0].more is None else some[0].more + len(some) - len(tried)
            if all(map(missed, tried)):
                more = max(more, 1)  # these candidates get no further seeds, so the effort allows one more
            near = self.near(tried)[: max(more, 0)]
            new = [] if self.over else self.screened(all_, self.like(tried[0], near, aim))
            if not new:
                break
            tried += new
        return tried[len(some) :]

    def near(self, tried: Sequence[Candidate]) -> list[dict[str, Any]]:
        """Return parameters near the best of a scheme.

        If all miss the target, return those of one candidate with longer rounds, if there is one.
        """
        scheme, args = tried[0].experiment.scheme, [dict(c.experiment.scheme_args) for c in tried]
        if reached := [c for c in tried if not missed(c)]:
            best = min(reached, key=lambda c: c.mean)
            grid = list(known.get(scheme).candidates(self.base.workers))
            return finer(grid, args, best.experiment.scheme_args)
        slowest = max(c.forecast.mean for c in tried)
        rest = [c for c in self.simulable.get(scheme, []) if c.forecast.mean > slowest]
        return [dict(rest[len(rest) // 2].experiment.scheme_args)] if rest else []

    def like(self, best: Candidate, near: Sequence[dict[str, Any]], aim: Target) -> list[Candidate]:
        """Return candidates with other parameters of a candidate's scheme, without those that do not fit.

        They are simulated if `best` is. Otherwise only exact ones are returned.
        """
        own, found = self.base.replace(optimiser=best.experiment.optimiser), list[Candidate]()
        for args in near:
            with suppress(SettingError):
                c = _candidate(self.cluster, own, best.experiment.scheme, args)
                if best.trials is not None:
                    found.append(replace(c, optimiser=best.optimiser, seeds=best.seeds, more=best.more))
                elif c.exact:
                    found.append(replace(c, optimiser=best.optimiser, need=best.need))
        return found if best.trials is None else self.with_trials(self.large_enough(found, aim), aim)

    # ------------------------------------------------------------ candidates

    def candidates(self, names: Sequence[str] | None, chosen: bool) -> list[Candidate]:
        """Return the possible candidates, each with a forecast. Unless `chosen`, each scheme uses its own optimiser."""
        wanted = [
            (name, list(known.get(name).candidates(self.base.workers))) for name in names or known.names()
        ]
        found: list[Candidate] = []
        done = 0
        with Bar("forecasting", "candidate", sum(len(args) for _, args in wanted), self.progress) as bar:
            for name, candidates in wanted:
                own = self.base if chosen else self.base.replace(optimiser=known.get(name).optimiser)
                reasons = []
                for args in candidates:
                    if found and self.over:
                        reasons.append("not tried: the time of the search was used up; raise seconds")
                        continue
                    try:
                        found.append(_candidate(self.cluster, own, name, args))
                    except SettingError as error:
                        reasons.append(str(error))
                    done += 1
                    bar.update(done)
                if len(reasons) == len(candidates):
                    self.refuse(name, reasons[0] if reasons else f"{self.base.workers} workers are too few")
        return found

    def aimed(
        self, found: list[Candidate], loss: float | None, tolerance: float, samples: int | None = None
    ) -> tuple[Target, list[Candidate]]:
        """Choose the target. Return it, and the candidates: exact ones, and those that are worth simulating."""
        exact, others = list[Candidate](), list[Candidate]()
        for c in found:  # an exact scheme with an optimiser of its own visits other models than the others
            (exact if c.exact and c.experiment.optimiser == self.base.optimiser else others).append(c)
        share = self.effort / (1 + sum(not s.exact or s.delayed for s in map(known.get, known.names())))
        tuned = bool(self.effort) and leaves_step_open(self.base)
        try:
            if loss is None and not (self.effort and self.base.problem != "unit"):
                raise _NotSimulated("unit has no loss" if self.effort else "effort = 0: nothing is simulated")
            effort, rounds = share or MAX_NUMBERS, self.base.rounds
            aim = reference(self.base, rounds, loss, tolerance, effort, tuned, self.metric, samples)
        except (DataError, OSError, ImportError, _NotSimulated) as error:
            if loss is not None:
                raise
            for name in by_scheme(others):
                self.refuse(name, f"its rounds cannot be simulated: {error}")
            return Target(self.base.rounds), exact
        exact = [replace(c, optimiser=stepped(c.optimiser, aim.times, aim.smoothness)) for c in exact]
        fastest = min((c.forecast.mean for c in exact), default=float("inf"))
        aim = replace(aim, seconds=aim.rounds * fastest)
        return aim, exact + self.with_trials(self.worth(self.tried(others, aim, share), exact), aim)

    # ------------------------------------------------------------ rounds to the target

    def tried(self, others: Sequence[Candidate], aim: Target, share: float) -> list[Candidate]:
        """Return some configurations of every scheme, with the number of seeds to simulate them on.

        The share of a scheme does not depend on other schemes, so its result hardly does.
        """
        chosen = []
        for scheme, every in by_scheme(self.large_enough(others, aim)).items():
            self.simulable[scheme] = sorted(every, key=lambda c: c.forecast.mean)
            some, more, seeds = affordable(self.simulable[scheme], aim, share)
            if not some:
                self.refuse(scheme, "not simulated: it takes too long here; raise effort")
            chosen += [replace(c, seeds=seeds, more=more) for c in some]
        return chosen

    def large_enough(self, others: Sequence[Candidate], aim: Target) -> list[Candidate]:
        """Return the candidates whose schemes can run on the few samples of the simulations."""
        found = []
        for c in others:
            try:
                c.experiment.built_scheme.check_samples(c.experiment.workers, aim.samples)
                found.append(c)
            except SettingError as error:
                self.refuse(c.name, f"not simulated on {aim.samples} samples: {error}; raise effort")
        return found

    def worth(self, others: Sequence[Candidate], exact: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates that could win with about as many rounds as an exact scheme, and all numeric ones."""
        best = MAX_ROUNDS_RATIO * min((c.forecast.mean for c in exact), default=float("inf"))
        able = [c for c in others if c.forecast.mean < best or c.experiment.built_scheme.numeric]
        for scheme in [name for name in by_scheme(others) if name not in by_scheme(able)]:
            ratio = MAX_ROUNDS_RATIO * min(c.forecast.mean for c in by_scheme(others)[scheme]) / best
            reason = f"it still takes {ratio:.3g} times as long as the best"
            self.refuse(scheme, f"with as many rounds as an exact scheme {reason}")
        return able

    def with_trials(self, others: Sequence[Candidate], aim: Target) -> list[Candidate]:
        """Return the candidates with the step size to begin from. Refuse those whose optimiser misses the target."""
        centres = {self.base.optimiser: aim.times}
        ready = []
        for c in others:
            name, around = c.experiment.optimiser, None
            if (
                aim.times is not None
                and (step := c.experiment.built_scheme.own_step(aim.smoothness)) is not None
            ):
                around = step * aim.smoothness
            elif aim.times is not None:
                if name not in centres:
                    centres[name] = centre(c.experiment, aim)
                if (best := centres[name]) is None:
                    self.refuse(c.name, _too_far(aim))
                    continue
                around = best * portion(c.experiment)
            ready.append(replace(c, trials=Trials(stretched(aim, c.experiment, c.forecast.mean), around)))
        return ready

    def reaching(self, found: Sequence[Candidate], aim: Target) -> list[Candidate]:
        """Return the candidates that reach the target. Raise `SettingError` if none does."""
        for c in filter(missed, found):
            self.refuse(c.name, _too_far(aim if c.trials is None else c.trials.aim))
        reaching = [c for c in found if not missed(c)]
        if not reaching:
            reasons = "; ".join(f"{each.name}: {each.reason}" for each in self.refusals[:3])
            raise SettingError(f"schemes: none can be ranked ({reasons})")
        return reaching


# ---------------------------------------------------------------- candidates


def _candidate(cluster: ClusterProfile, base: Experiment, scheme: str, args: dict[str, Any]) -> Candidate:
    """Return a candidate. Raise `SettingError` if it does not fit."""
    e = base.replace(scheme=scheme, scheme_args=args)
    built = e.built_scheme
    loads = built.loads(e.workers, e.shape()[0])
    if not loads.min():
        raise SettingError(
            f"samples = {e.shape()[0]}: {scheme} would leave workers without any; take more samples"
        )
    lost_digits(built, e.workers, e.problem_spec.width)  # raises the same errors as a run
    task = cluster.task(e)
    check_memory(cluster, e, float(loads.mean()))
    placed = settled(cluster.placed(e, task))
    follows = built.is_exact and not built.delayed
    return Candidate(placed, task, _expected(cluster, placed, task), follows, e.build_optimiser())


def _expected(cluster: ClusterProfile, e: Experiment, task: Task) -> Forecast:
    """Return the forecast over several seeds. Permanently slow workers are drawn once per seed."""
    seeds = FORECAST_SEEDS if e.delays.per_run or e.delays.markovian else 1
    found = [cluster.forecast_of(e, task, FORECAST_ROUNDS // seeds, e.seed + k) for k in range(seeds)]
    messages, size = (float(np.mean([getattr(f, name) for f in found])) for name in ("messages", "bytes"))
    return Forecast(np.concatenate([f.seconds for f in found]), found[0].load, messages, size)


def check_memory(cluster: ClusterProfile, e: Experiment, load: float) -> None:
    """Raise `SettingError` if a host lacks memory for its ranks, their data and messages.

    Hosts whose free memory is unknown are not limited.
    """
    shape = getattr(e.problem_spec, "known", lambda: None)()
    samples, floats = e.shape()
    row = 8.0 * (shape[1] if shape else 0)
    measured = max(sum(host.ranks for host in cluster.hosts), 1)
    for place, host in enumerate(cluster.hosts):
        ranks = host.ranks * e.workers / measured
        data = min(ranks * load, samples) * row  # ranks of one host share its copy of the data
        messages = 8.0 * floats * (4 * ranks + (e.workers if place == 0 else 0))
        room = (ranks * BYTES_PER_RANK + data + messages) / 2**30
        if host.free is not None and room > host.free:
            raise SettingError(
                f"workers: {ranks:.0f} on {host.name} need about {room:.1f} GiB and {host.free:.1f} GiB are free;"
                " take fewer workers, fewer samples, or a smaller load"
            )


# ---------------------------------------------------------------- rounds to the target


def _too_far(aim: Target) -> str:
    late = f", or in {MAX_BEHIND_RATIO:g} times the time of the fastest exact scheme"
    return f"does not come to {_aim_text(aim)} in {aim.longest} rounds{late * (aim.seconds < float('inf'))}"


def _aim_text(aim: Target) -> str:
    article = "an" if aim.metric[0] in "aeiou" else "a"
    return f"{article} {aim.metric.replace('_', ' ')} of {aim.loss:.4g}"
