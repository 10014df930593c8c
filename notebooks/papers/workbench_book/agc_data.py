"""Data and stragglers of paper 4's figure 2: real ones if available, or else a named replacement."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.core.base.text import upper
from workbench.core.contract.delays import recorded
from workbench_book import standins
from workbench_book.agc import P_AS, P_SLOW, P_SS, S
from workbench_book.ec2_traces import ABSENT
from workbench_book.real_data import at_hand
from workbench_book.setting import TRACES, Setting

BOSTON = "openml:boston"
EC2_WORKERS, LATEST = 20, 1.5  # number of workers; deadline as a multiple of the median recorded time


def ec2(setting: Setting) -> tuple[dict[str, Any], float, str, str]:
    """Return delays and deadline, a sentence about the delays, and a reason why shuffling may gain little."""
    if setting.traces is None:
        factor = {"slow": P_SLOW, "slow_straggles": P_SS, "active_straggles": P_AS, "factor": 10.0}
        model = {"kind": "heterogeneous", "shift": 1 / 16, **factor}
        reason = "with a stand-in for the recorded times"
        return model, LATEST, f"Stragglers: the paper's heterogeneous model as a stand-in; {ABSENT}.", reason
    times, _ = recorded(str(setting.traces))
    whole = 150 / EC2_WORKERS * S  # samples of a worker, since a recorded task represents all of them
    model = {"kind": "replay", "path": str(setting.traces), "samples": whole}
    deadline = LATEST * float(np.nanmedian(times))
    late = 100 * float(np.mean(times[~np.isnan(times)] > deadline))
    return (
        model,
        deadline,
        f"Stragglers: {TRACES}, recorded on EC2 (real), replayed; each experiment's times are scaled to the median of"
        " the first one's.",
        f"a part is missed only if both of its workers are late, and {late:.2g} % of the recorded times are over the"
        " deadline, which the paper does not state",
    )


def boston(setting: Setting) -> tuple[str, dict[str, Any], str, str]:
    """Return problem and arguments, a sentence about the data of figure 2a, and their name for captions."""
    if not setting.quick and at_hand(BOSTON, setting):
        real = "Boston house prices (real)"
        return "least_squares", {"data": BOSTON, "intercept": True}, f"{real}.", real
    text, short = standins.BOSTON, "scikit-learn's diabetes set in Boston's place"
    return "least_squares", {"data": "diabetes", "intercept": True}, upper(text) + ".", short


def diabetes() -> tuple[str, dict[str, Any], str, str]:
    """Return problem and arguments, a sentence about the data of figure 2b, and their name for captions."""
    text, short = standins.DIABETES, "scikit-learn's diabetes set, two classes (real)"
    return "logistic", {"data": standins.diabetes_halves(), "intercept": True}, f"Real: {text}.", short
