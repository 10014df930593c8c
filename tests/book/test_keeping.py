"""Stored results of the book: used again only if all their inputs are unchanged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workbench_book import Claim, Entry, Line, Misprint, Result, Setting, find, find_traces, get, reproduce
from workbench_book.keeping import key, place
from workbench_book.running import Steps, _one

from workbench import RunError, SettingError

NAME = "cada-misprints"
texts = st.text(max_size=20)
values = st.floats(allow_nan=False)


@given(texts, values, st.none() | values, st.booleans())
def test_a_result_survives_json(text: str, value: float, published: float | None, holds: bool) -> None:
    import json

    result = Result(
        lines=(Line(text, published, {"ours": value}, errors={"ours": value}),),
        claims=(Claim(text, holds, text),),
        misprints=(Misprint(text, text, text, text, holds),),
        facts={"a": {"b": value}},
    )
    found_text = json.dumps(result.to_json())
    assert Result.from_json(json.loads(found_text)).to_json() == result.to_json()


def test_every_input_is_in_the_key(traces: Path, tmp_path: Path) -> None:
    base, entry = Setting(), get("fig8")
    other = tmp_path / "other.csv"
    other.write_text(traces.read_text() + "two,12,0,1.0\n")
    facts = {"ec2": {"crowded": {"latency": 1.0}}}
    changed = [
        base, replace(base, quick=True), replace(base, seed=1), replace(base, measure=False),
        replace(base, download=True), replace(base, traces=traces), replace(base, traces=other),
        replace(base, facts=facts), replace(base, facts={"ec2": {"crowded": {"latency": 2.0}}}),
    ]  # fmt: skip
    keys = [key(entry, each) for each in changed]
    assert len(set(keys)) == len(keys)
    assert key(entry, replace(base, facts={"table3": {}})) == keys[0]  # facts that the entry does not use
    unmeasured = get(NAME)
    assert key(unmeasured, base) == key(unmeasured, replace(base, measure=False))


def test_find_uses_a_finished_entry_and_rebuilds_a_damaged_one(tmp_path: Path, quick: Setting) -> None:
    first = find(NAME, quick, tmp_path)[0]
    again = find(NAME, quick, tmp_path)[0]
    assert (first.reused, again.reused) == (False, True)
    assert again.result == first.result
    assert not find(NAME, quick, tmp_path, fresh=True)[0].reused
    file = place(tmp_path / "kept", get(NAME), key(get(NAME), quick))
    file.write_text(file.read_text()[:100])
    assert not find(NAME, quick, tmp_path)[0].reused
    assert find(NAME, quick, tmp_path)[0].reused


def test_one_reports_a_failing_entry_and_keeps_nothing(tmp_path: Path, quick: Setting) -> None:
    def fail(setting: Setting) -> Result:
        raise RunError("round 3: nothing works")

    broken = Entry("broken", "Broken", fail)
    found = _one(broken, quick, tmp_path, fresh=False)
    assert (found.result, found.error) == (None, "round 3: nothing works")
    assert not (tmp_path / "kept").exists()
    dependent = _one(replace(broken, name="later", needs=("broken",)), quick, tmp_path, fresh=False)
    assert dependent.error == "needs the entry broken, which failed"


@pytest.mark.slow
def test_find_passes_facts_to_the_next_entry(tmp_path: Path, quick: Setting) -> None:
    """`gcada-numbers` uses facts of `gcada-sweep` and `gcada-fig2`, whether these are stored or computed."""
    first = {each.entry.name: each for each in find("gcada-numbers", quick, tmp_path)}
    assert list(first) == ["gcada-sweep", "gcada-fig2", "gcada-numbers"]
    again = {each.entry.name: each for each in find("gcada-numbers", quick, tmp_path)}
    assert all(each.reused for each in again.values())
    assert again["gcada-numbers"].result == first["gcada-numbers"].result


def test_steps_bar_never_decreases() -> None:
    with Steps([1.0, 3.0], wanted=True) as steps:
        places = []
        for name in ("a", "b"):
            steps.begin(name)
            for done in (1, 2, 2, 4):
                steps.within(done, 4)
                places.append(steps.bar.bar.n)
            steps.end()
    assert places == sorted(places)
    assert get("fig12").weight > get("table3").weight


def test_reproduce_writes_a_page_for_one_name(tmp_path: Path, quick: Setting) -> None:
    text: list[str] = []
    (outcome,) = reproduce(NAME, quick, tmp_path, progress=False, message=text.append)
    assert outcome.entry.name == NAME
    assert text == [f"written to {tmp_path / (NAME + '.html')}"]
    assert "12292" in (tmp_path / f"{NAME}.html").read_text()


def test_find_traces_looks_in_the_documented_places(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORKBENCH_EC2_TRACES", raising=False)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert find_traces() is None
    assert find_traces(traces) == find_traces(traces.parent) == traces
    with pytest.raises(SettingError, match=r"traces = .*no such file"):
        find_traces(tmp_path / "missing.csv")
    monkeypatch.setenv("WORKBENCH_EC2_TRACES", str(traces.parent))
    assert find_traces() == traces
    monkeypatch.setenv("WORKBENCH_EC2_TRACES", str(tmp_path / "missing.csv"))
    with pytest.raises(SettingError, match=r"WORKBENCH_EC2_TRACES = .*no such file"):
        find_traces()
    monkeypatch.delenv("WORKBENCH_EC2_TRACES")
    (tmp_path / "elsewhere" / "data").mkdir()
    (tmp_path / "elsewhere" / "data" / "ec2_traces.csv").write_text(traces.read_text())
    assert find_traces() == Path("data") / "ec2_traces.csv"
