"""The explorer's diagnosis as a card: who, how much, since when, what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.support.browser.explorer_user import User
from tests.support.browser.jupyterlab import Noise, Server
from tests.support.browser.viewed import EXPLORER, AsPage
from tests.support.recorder_folders import job, wait
from tests.support.recorder_folders import write as write_steps
from tests.support.sampled_cases import rotated

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("alone")]

FACTS = """() => Object.fromEntries([...document.querySelectorAll('.wb-card dl > div')].map((e) =>
  [e.querySelector('dt').innerText, e.querySelector('dd').innerText.split('\\n')]))"""


def recordings(folder: Path) -> dict[str, Path]:
    """Write a recording for each kind of verdict: a slow worker, uneven work, a slow link, nobody."""
    rows = [
        f"{w},{t},{1 + (w == 3 and t >= 20) + 0.01 * ((7 * t + 3 * w) % 5)}"
        for t in range(60)
        for w in range(8)
    ]
    (folder / "slow.csv").write_text("worker,step,seconds\n" + "\n".join(rows))
    uneven, rng = job(), np.random.default_rng(1)
    for rank in uneven:
        rank["tokens"] = rng.integers(100, 900, len(rank))
        rank["forward"] += 1e-4 * rank["tokens"]
    wait(uneven)
    links = [[[step, 0.02 if rank == 2 else 0.001] for step in range(5, 60, 5)] for rank in range(4)]
    return {
        "slow": folder / "slow.csv",
        "uneven": write_steps(folder / "uneven", uneven),
        "link": write_steps(folder / "link", job(), links=links),
        "nobody": write_steps(folder / "nobody", job()),
    }


LINK = "link from worker 2 to worker 3"
VERDICTS = {  # what is read: headline, who, when, what to do
    "slow": (
        r"Worker 3 costs \d+% of the time, since step 20",
        ["Worker 3", "1 of 8, by computing"],
        "Since step 20",
        r"What to do: .+ saves \d+% of the time \(\d+% to \d+%\).*\.",
    ),
    "uneven": (
        r"Uneven work costs \d+% of the time",
        ["Uneven work", "as its amount differs, for example the lengths of sequences"],
        "From the first step on",
        r"What to do: the same work for every worker saves \d+% of the time \(\d+% to \d+%\)\.",
    ),
    "link": (
        rf"The {LINK} costs \d+% of the time",
        [f"The {LINK}", "on its way"],
        "From the first step on",
        rf"What to do: look at the {LINK}, which costs \d+% of the time; a code, or leaving out a worker, would .+\.",
    ),
    "nobody": (
        "No worker stands out: lateness is by chance",
        ["Nobody", "late workers change by chance"],
        "",
        r"What to do: nothing to repair; a code, or leaving out a worker, would save no time\.",
    ),
}


@rotated
def test_diagnosis_is_a_card_of_who_how_much_since_when_and_what_to_do(
    page: Page, noise: Noise, server: Server, write: Callable[..., str], tmp_path: Path, screens: Path
) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    AsPage(page, server, write(EXPLORER))
    me = User(page)
    me.drawn("Time per round")
    me.tab("Who is late?")
    for name, path in recordings(tmp_path).items():
        headline, who, when, to_do = VERDICTS[name]
        page.get_by_label("or a file", exact=True).fill(str(path))
        page.get_by_label("or a file", exact=True).press("Enter")
        me.press("Look")
        card = page.get_by_role("group", name="diagnosis")
        expect(card.locator("h3")).to_have_text(re.compile(f"^{headline}$"))
        page.screenshot(path=screens / f"card-{name}.png")
        facts = page.evaluate(FACTS)
        assert facts["Who"] == who
        assert re.fullmatch(r"[\d.]+ times as long", facts["Steps take"][0])
        if when:
            value, band = facts["Cost"]
            assert re.fullmatch(r"\d+% of the time", value)
            assert re.fullmatch(r"90% band: \d+% to \d+%", band)
            assert facts["When"][0] == when
        assert re.fullmatch(to_do, card.locator("p").inner_text())
        # details are folded, and open by a click
        details = card.locator("details")
        assert [each.get_attribute("open") for each in details.all()] == [None, None]
        expect(card.locator("li").first).not_to_be_visible()
        details.first.locator("summary").click()
        expect(card.locator("li").first).to_be_visible()
    assert noise.ours() == []
