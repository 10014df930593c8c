"""Rounds of sequential gradient coding in plain loops, as in the paper and its simulator.

Delays (workers, rounds) do not depend on the load. `gradient_coding`, `selective_repeat` and `multiplexed` return the
seconds of every round. The last two also return the round after which each job is decoded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Delays = Sequence[Sequence[float]]
Seen = list[set[int]]  # for each round, the stragglers that count


def late_ones(times: Sequence[float], mu: float) -> set[int]:
    return {i for i, seconds in enumerate(times) if seconds > min(times) * (1 + mu)}


def conforms(seen: Seen, late: set[int], burst: int, window: int, most: int) -> bool:
    """Return whether the workers in `late`, after the rounds in `seen`, keep to the model of bursts.

    In `window` rounds, at most `most` workers straggle. The rounds in which one worker straggles span at most `burst`.
    """
    r = len(seen)
    lately = set(late)
    for k in range(max(0, r - window + 1), r):
        lately |= seen[k]
    if len(lately) > most:
        return False
    return all(not seen[k] & late for k in range(max(0, r - window + 1), max(0, r - burst + 1)))


def wait(times: Sequence[float], mu: float, fits: Callable[[set[int]], bool]) -> tuple[float, set[int]]:
    late = late_ones(times, mu)
    if fits(late):
        return min(min(times) * (1 + mu), max(times)), late
    return max(times), set()


def gradient_coding(delays: Delays, spare: int, mu: float, jobs: int) -> list[float]:
    rounds = [[row[r] for row in delays] for r in range(jobs)]
    return [wait(times, mu, lambda late: len(late) <= spare)[0] for times in rounds]


def selective_repeat(
    delays: Delays, burst: int, window: int, stragglers: int, mu: float, jobs: int
) -> tuple[list[float], list[int]]:
    n = len(delays)
    spare = math.ceil(burst * stragglers / (window - 1 + burst))
    seen: Seen = []
    done: list[list[int | None]] = []  # for each round and worker, the job that it delivered
    seconds: list[float] = []
    ready: list[int] = []

    def results(job: int) -> int:
        return sum(task == job for r in (job, job + burst) if r < len(done) for task in done[r])

    for r in range(jobs + burst):
        old = r - burst
        if r >= jobs and results(old) >= n - spare:
            seconds.append(0.0)
            done.append([None] * n)
            seen.append(set())
            continue
        tasks = [r] * n
        if old >= 0:
            missing = [i for i in range(n) if done[old][i] != old]
            for i in missing[: max(0, len(missing) - spare)]:
                tasks[i] = old
        took, late = wait(
            [row[r] for row in delays], mu, lambda late: conforms(seen, late, burst, window, stragglers)
        )
        seconds.append(took)
        done.append([None if i in late else task for i, task in enumerate(tasks)])
        exempt = all(task in (r, None) for task in done[r]) and len(late) <= spare
        seen.append(set() if exempt else late)
        while len(ready) < jobs and len(ready) <= r and results(len(ready)) >= n - spare:
            ready.append(r)
        assert old < 0 or len(ready) > old
    return seconds, ready


def multiplexed(
    delays: Delays, burst: int, window: int, stragglers: int, mu: float, jobs: int
) -> tuple[list[float], list[int]]:
    seen: Seen = []
    seconds: list[float] = []
    delay = window - 2 + burst
    for r in range(jobs + delay):
        took, late = wait(
            [row[r] for row in delays], mu, lambda late: conforms(seen, late, burst, window, stragglers)
        )
        seconds.append(took)
        seen.append(late)
    return seconds, [job + delay for job in range(jobs)]
