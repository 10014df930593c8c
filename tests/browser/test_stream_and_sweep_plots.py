"""Live plots in JupyterLab: the stream of rounds, and a sweep that is filled in."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser.jupyterlab import Lab, Noise, Server, nameless
from tests.support.clusters.ssh_hosts import missing, standing, write_yaml
from tests.support.sampled_cases import sampled_test

pytestmark = pytest.mark.browser

STREAM = """import workbench as wb
tree = {"children": 12, "layers": 2, "stragglers": 2}
e = wb.Experiment(scheme="CR", workers=156, scheme_args=tree, rounds=20_000, delays={"kind": "heterogeneous"},
                  link={"latency": 1e-3, "bandwidth": 1e6}, faults=[{"worker": 30, "round": 40}], problem="unit")
rounds = wb.stream(wb.start(e))
rounds"""
SWEEP = """import workbench as wb
plan = {"base": {"workers": 12, "rounds": 100}, "seeds": 2,
        "cases": [{"scheme": "UMW"}, {"scheme": "UMW", "faults": [{"worker": 1, "round": 1}]}],
        "grid": {"delays.rate": [1e3, 1e4]}}
sweep = wb.batch.start(plan, "watched", pictures=False)
sweep"""
ON_HOSTS = """import workbench as wb
plan = {"base": {"workers": 12, "rounds": 100}, "seeds": 12,
        "cases": [{"scheme": "UMW"}, {"scheme": "UMW", "faults": [{"worker": 1, "round": 1}]}],
        "grid": {"delays.rate": [1e3, 1e4]},
        "executor": {"kind": "ipyparallel", "cluster": "CLUSTER", "engines": 2}}
sweep = wb.batch.start(plan, "on-hosts", pictures=False)
sweep"""
ON_DASK = """import workbench as wb
plan = {"base": {"workers": 12, "rounds": 100}, "seeds": 20, "executor": {"kind": "dask", "engines": 2}}
sweep = wb.batch.start(plan, "on-dask", pictures=False)
sweep"""
ROUNDS = "() => Number(document.querySelector('.wb-stream canvas')?.dataset.rounds ?? 0)"
BUSY = "() => [...document.querySelectorAll('.wb [role=status], [role=status].wb')].map(e => e.innerText).join(' ')"


@sampled_test("what one watches", 0, 2)
def test_stream_of_rounds_opens_by_a_click(
    page: Page, noise: Noise, server: Server, write: Callable[..., str], picture: Callable[[str], Path]
) -> None:
    lab = Lab(page, server, write(STREAM, "print(rounds.round, rounds.stream.run.state)"))
    lab.run_all()
    page.wait_for_function(f"() => ({ROUNDS})() > 60")
    before = page.evaluate(ROUNDS)
    # the stream continues by itself
    page.wait_for_function(f"(before) => ({ROUNDS})() > before + 10", arg=before)
    canvas = page.locator(".wb-stream canvas")
    box = canvas.bounding_box()
    assert box is not None
    picture("stream-light")
    assert nameless(page, ".wb-pane") == []
    # plotly.js, which blocks the page while it loads, is loaded with the first opened round
    assert page.locator(".wb-plot").count() == 0
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator(".wb-stream .wb-note")).to_contain_text("stopped")
    canvas.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowDown")
    at = page.evaluate(ROUNDS) - 2
    expect(page.locator(".wb-read")).to_contain_text(f"round {at}, worker 2:")
    page.keyboard.press("Enter")
    page.locator(f'[role=figure][aria-label*="round {at}"] .wb-plot[data-drawn]').wait_for()
    lab.await_answer(1, lambda text: text == f"{at} stopped")
    lab.dark()
    canvas.click(position={"x": box["width"] - 200, "y": 40})  # open another round: the chart is drawn again
    page.locator(
        f'[role=figure][aria-label*="workers: round"]:not([aria-label*="round {at}"]) .wb-plot'
    ).wait_for()
    canvas.scroll_into_view_if_needed()
    picture("stream-dark")
    assert noise.errors == []
    assert lab.failures() == []


@sampled_test("what one watches", 1, 2)
def test_sweep_plot_updates_stops_and_resumes(
    page: Page,
    noise: Noise,
    server: Server,
    root: Path,
    write: Callable[..., str],
    picture: Callable[[str], Path],
) -> None:
    lab = Lab(page, server, write(SWEEP, "print(wb.batch.attach('watched').state)"))
    lab.run_all()
    page.locator('[role=figure][aria-label*="Time of the whole run"] .wb-plot[data-drawn]').wait_for()
    picture("sweep-light")
    assert nameless(page, ".wb-pane") == []
    page.get_by_role("button", name="Stop", exact=True).click()
    # another object for the same sweep, from its folder alone
    lab.await_answer(1, lambda text: text == "stopped" or text == "failed")
    page.get_by_role("button", name="Resume", exact=True).click()
    page.wait_for_function(f"() => /^.*failed: 4 of 8 runs done/m.test(({BUSY})())")
    expect(page.get_by_role("alert").filter(has_text="QuorumLost").first).to_be_visible()
    lab.dark()
    page.get_by_label("Figure").select_option("parallel coordinates")
    page.locator('[role=figure][aria-label*="of 4 runs"] .wb-plot[data-drawn]').wait_for()
    picture("sweep-dark")
    assert noise.errors == []
    assert lab.failures() == []


@pytest.mark.slow
def test_sweep_on_two_hosts_shows_what_each_does(
    page: Page,
    noise: Noise,
    server: Server,
    write: Callable[..., str],
    picture: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    if why := missing():
        pytest.skip(why)
    with standing(tmp_path / "pair", 2) as hosts:
        cell = ON_HOSTS.replace("CLUSTER", str(write_yaml(hosts)))
        lab = Lab(page, server, write(cell))
        lab.run_all()
        for host in ("w1", "w2"):
            expect(page.get_by_role("status").filter(has_text=re.compile(f"{host}: .*ended"))).to_be_visible()
        page.locator('[role=figure][aria-label*="Time of the whole run"] .wb-plot[data-drawn]').wait_for()
        picture("sweep-hosts-light")
        lab.dark()
        picture("sweep-hosts-dark")
        assert nameless(page, ".wb-pane") == []
        page.get_by_role("button", name="Stop", exact=True).click()
        expect(page.get_by_role("button", name="Resume", exact=True)).to_be_enabled()
    assert noise.errors == []


@pytest.mark.slow
def test_sweep_on_dask_links_its_dashboard(
    page: Page, noise: Noise, server: Server, write: Callable[..., str], picture: Callable[[str], Path]
) -> None:
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    lab = Lab(page, server, write(ON_DASK))
    lab.run_all()
    link = page.get_by_role("link", name="dashboard of the executor")
    expect(link).to_be_visible()
    address = str(link.get_attribute("href"))
    assert address.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(address) as answer:
        assert answer.status == 200
    page.locator('[role=figure][aria-label*="Time of the whole run"] .wb-plot[data-drawn]').wait_for()
    picture("sweep-dask-light")
    lab.dark()
    picture("sweep-dask-dark")
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_role("button", name="Resume", exact=True)).to_be_enabled()
    assert noise.errors == []
