"""Paper 1: its inconsistencies, each with the computation that shows it."""

from __future__ import annotations

import math

from workbench.core import theory
from workbench.core.forecasting import forecast
from workbench.core.presets.codedreduce import presets
from workbench.core.schemes.coded_reduce import tree_size
from workbench_book.catalogue import Entry
from workbench_book.ec2_model import Constants, ratios
from workbench_book.setting import Setting
from workbench_book.values import Misprint, Result


def find(setting: Setting) -> Result:
    """Check all misprints of the paper."""
    found = [
        _tree(),
        _features(setting),
        _ring(setting),
        _harmonic(),
    ]
    return Result(misprints=found, seed=setting.seed)


def _tree() -> Misprint:
    sizes = {(12, 2): tree_size(12, 2), (4, 3): tree_size(4, 3)}
    return Misprint(
        "Section IV-A, item 5",
        "CR on the (12,2) tree, for 84 and for 156 workers",
        f"(12,2) has {sizes[12, 2]} workers; 84 = 4 + 16 + 64 are the (4,3) tree, which has {sizes[4, 3]}",
        "tree_size(12, 2), tree_size(4, 3)",
        sizes == {(12, 2): 156, (4, 3): 84},
    )


def _features(setting: Setting) -> Misprint:
    """Compare both sizes on the cluster that is fitted to other figures. With a short vector, only latency remains."""
    preset, cluster = presets["fig12"], Constants(**setting.facts["ec2"]["crowded"])
    published = preset.published["RAR"]
    sizes = {p: preset.replace(problem_args={**preset[0].problem_args, "features": p}) for p in (500, 5000)}
    found = {p: ratios(e, cluster, setting.pick(100, 400), setting.seed)["RAR"] for p, e in sizes.items()}
    off = {p: abs(math.log(ratio / published)) for p, ratio in found.items()}
    return Misprint(
        "Remark 5 against figure 12's caption",
        "(d, p) = (32760, 500), and (32760, 5000)",
        f"RAR takes {found[500]:.3g} times CR's time with p = 500 and {found[5000]:.3g} with p = 5000 (published"
        f" {published:g}; the cluster of the entry ec2): the caption is right",
        "ratios(wb.presets['fig12'].replace(problem_args=...), constants)['RAR']",
        off[5000] < min(0.5, 0.5 * off[500]),
    )


def _ring(setting: Setting) -> Misprint:
    preset = presets["fig13"]
    times = {name: forecast(preset[name], 500, setting.seed).mean for name in ("RAR", "CR")}
    ratio, published = times["RAR"] / times["CR"], preset.published["RAR"]
    step = (published * times["CR"] - times["RAR"]) / (2 * 155)
    return Misprint(
        "Figure 13, RAR",
        f"CR is {published:g} times as fast as RAR",
        f"by the paper's own model RAR takes {ratio:.3g} of CR's time; {published:g} needs {1e3 * step:.2g} ms a step",
        "wb.forecast(wb.presets['fig13']['RAR']).mean / wb.forecast(wb.presets['fig13']['CR']).mean",
        ratio < 0.5,
    )


def _harmonic() -> Misprint:
    first = theory.harmonic(1)
    return Misprint(
        "Appendix D",
        "H_i < log(i + 1)",
        f"H_i is larger: H_1 = {first:g}, log 2 = {math.log(2):.4f}",
        "wb.theory.harmonic(1), math.log(2)",
        first > math.log(2),
    )


PLACE = (1, 5)  # paper, and position in its chapter of the book
ENTRIES = (Entry("cr-misprints", "Misprints and contradictions of the CodedReduce paper", find, ("ec2",)),)
