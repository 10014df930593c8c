"""Progress bars: nothing is imported for a disabled bar.

An enabled one shows count and current step, also in notebooks.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from workbench.core.base.bar import Bar


def test_bar_that_is_not_wanted_imports_no_library() -> None:
    code = (
        "import sys\nfrom workbench.core.base.bar import Bar\n"
        "with Bar('x', 'y', 3, False) as bar:\n    bar.update(1), bar.note('z')\nprint('tqdm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_bar_counts() -> None:
    with Bar("x", "y", 3, True) as bar:
        bar.update(2)
        bar.note("under way")
        assert (bar.bar.n, bar.bar.postfix) == (2, "under way")
        bar.update(3)
        assert bar.bar.n == 3


class Output:
    """Output of a notebook cell. `shown`: all its texts so far."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, data: dict[str, str], raw: bool) -> None:
        self.shown.append(data["text/plain"])


@pytest.mark.parametrize("leave", [True, False])
def test_bar_in_a_notebook_replaces_one_plain_text_output(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], leave: bool
) -> None:
    outputs: list[Output] = []

    def display(data: dict[str, str], raw: bool, **_: bool) -> Output:
        outputs.append(Output())
        outputs[-1].update(data, raw)
        return outputs[-1]

    monkeypatch.setattr("workbench.core.base.bar._in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", display)
    with Bar("reading", "file", 4, None, done=1, leave=leave) as bar:
        # two seconds have passed, so that the bar is shown
        monkeypatch.setattr(bar.bar, "start_t", bar.bar.start_t - 2)
        bar.note("under way")
        bar.update(3)
        bar.update(4)
    (output,) = outputs
    assert output.shown[0].startswith("reading:  25%")
    assert "1/4" in output.shown[0]
    # the text that a saved notebook contains
    assert ("4/4" in output.shown[-1]) if leave else output.shown[-1] == ""
    assert capfd.readouterr().err == ""


def test_bar_is_not_written_to_a_file() -> None:
    with Bar("x", "y", 3, None) as bar:
        assert bar.bar is None


def test_bar_is_not_shown_within_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar("x", "y", 15, True) as bar:
        bar.update(8)
        bar.note("round 8 of 15")
        bar.update(15)
    assert capsys.readouterr().err == ""


def test_bar_ends_at_the_total(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar("x", "y", 15, True) as bar:
        bar.bar.start_t -= 2  # two seconds have passed, so that the bar is shown
        bar.note("round 8 of 15")
        bar.bar.last_print_t += 60  # the next update comes too soon to be drawn
        bar.update(15)
    assert "15/15" in capsys.readouterr().err.split("\r")[-1]
