"""The card of a diagnosis: who, how much, since when, what to do; the details are folded."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd

import workbench as wb
from tests.support.recorder_folders import job, write
from workbench.analysis.recordings.mitigations import Mitigation
from workbench.analysis.recordings.verdict import UNTRIED, USELESS, Diagnosis, advice, facts, headline


def recorded(slow: int | None, since: int = 0) -> wb.traces.Recording:
    """Return a recording of 8 workers, one of which takes twice as long from a step on."""
    rows = [
        (w, t, (2.0 if w == slow and t >= since else 1.0) + 0.01 * ((7 * t + 3 * w) % 5))
        for t in range(60)
        for w in range(8)
    ]
    return wb.traces.Recording.of_rows(pd.DataFrame(rows, columns=["worker", "step", "seconds"]), "<one>")


def test_verdict_names_who_how_much_since_when() -> None:
    found = wb.diagnose(recorded(3, since=20))
    assert re.fullmatch(r"Worker 3 costs \d+% of the time, since step 20", headline(found))
    values = {fact.about: fact for fact in facts(found)}
    assert values["Who"].value == "Worker 3"
    assert values["Who"].note == "1 of 8, by computing"
    assert values["When"].value == "Since step 20"
    assert "saves" in advice(found)


def test_verdict_counts_workers_only_and_names_what_to_look_at(tmp_path: Path) -> None:
    """The port and links have costs, too, but are not workers. Without a mitigation, there is advice all the same."""
    links = [[[step, 0.02 if rank == 2 else 0.001] for step in range(5, 60, 5)] for rank in range(4)]
    slow = wb.diagnose(write(tmp_path / "slow", job(backward={3: 0.03})))
    link = wb.diagnose(write(tmp_path / "link", job(), links=links))
    assert isinstance(slow, Diagnosis)
    assert isinstance(link, Diagnosis)
    with_port = replace(slow, costs={**slow.costs, "the port": 0.01})
    assert facts(with_port)[0].note == "1 of 4, in the backward pass"
    assert link.mitigations == ()
    who = "the link from worker 2 to worker 3"
    assert advice(link) == f"look at {who}, which costs 9% of the time; {USELESS}"
    assert advice(replace(link, tried=None)) == f"look at {who}, which costs 9% of the time; {UNTRIED}"


def test_verdict_of_even_workers_is_that_nobody_stands_out() -> None:
    found = wb.diagnose(recorded(None))
    assert headline(found) == "No worker stands out: lateness is by chance"
    assert facts(found)[0].value == "Nobody"
    assert advice(found) == f"nothing to repair; {USELESS}"


def test_headline_puts_lateness_by_chance_before_a_small_cost_of_the_port() -> None:
    """Steps take many times as long because of heavy tails. The port's few percent are not the main cause."""
    e = wb.Experiment(
        scheme="UMW",
        workers=84,
        rounds=100,
        delays={"kind": "pareto", "shift": 5e-4, "shape": 1.3},
        link={"latency": 1e-3, "bandwidth": 1e6},
        problem="softmax",
        problem_args={"data": "digits"},
    )
    found = wb.diagnose(wb.run(e))
    assert [one.who for one in found.culprits] == ["the port"]
    assert found.culprits[0].cost < 0.5 * (1 - 1 / found.slowdown)
    assert re.fullmatch(
        r"No worker stands out: lateness is by chance; the port costs \d+% of the time", headline(found)
    )
    assert "no worker stands out" in str(found)


def test_verdict_without_mitigations_says_so() -> None:
    none = Diagnosis("none", 1.0, (), {}, "links")
    assert "was not computed" in advice(none)
    assert "save no time" in advice(replace(none, tried=lambda: ()))
    two = tuple(Mitigation(what, 0.4, 0.3, 0.5, "GC", {}) for what in ("GC with 1", "leaving 3 out"))
    assert (
        advice(replace(none, tried=lambda: two))
        == "GC with 1 saves 40% of the time (30% to 50%); leaving 3 out 40%"
    )


def test_verdict_card_escapes_and_folds() -> None:
    found = wb.diagnose(recorded(3))
    html = found._repr_html_()
    assert "<one>" not in html
    assert "&lt;one&gt;" in html
    assert html.count("<details>") == 1
    assert found.card([("More", "a\nb")]).count("<li>b</li>") == 1


def test_verdict_of_a_run_in_memory_with_one_very_slow_worker_is_not_refused() -> None:
    """A trace is in seconds, so times may be 400 times as long as others'."""
    slow = {
        "kind": "heterogeneous",
        "shift": 1e-3,
        "slow_workers": [1],
        "slow_straggles": 1.0,
        "factor": 400.0,
    }
    slow |= {"active_straggles": 0.0}
    trace = wb.run(wb.Experiment(scheme="UMW", workers=6, rounds=60, delays=slow))
    found = wb.diagnose(trace)
    assert headline(found).startswith("Worker 1 costs")
