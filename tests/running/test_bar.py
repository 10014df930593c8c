"""A bar that nobody wants costs nothing; one that is wanted counts up and says what is going on."""

from __future__ import annotations

import subprocess
import sys

from workbench.running.bar import Bar


def test_a_bar_that_is_not_wanted_does_not_even_load_one() -> None:
    code = (
        "import sys\nfrom workbench.running.bar import Bar\n"
        "with Bar('x', 'y', 3, False) as bar:\n    bar.update(1), bar.note('z')\nprint('tqdm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_one_that_is_wanted_counts() -> None:
    with Bar("x", "y", 3, True) as bar:
        bar.update(2)
        bar.note("under way")
        assert (bar.bar.n, bar.bar.postfix) == (2, "under way")
        bar.update(3)
        assert bar.bar.n == 3
