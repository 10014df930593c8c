"""Paper 3: its inconsistencies, each with the computation that shows it."""

from __future__ import annotations

from workbench.core import theory
from workbench_book.cada import PUBLISHED
from workbench_book.catalogue import Entry
from workbench_book.setting import Setting
from workbench_book.values import Misprint, Result

GROUPED = {name: int(value) for name, value in PUBLISHED["G-CADA"].items() if name != "time"}


def find(setting: Setting) -> Result:
    """Check all misprints of the paper."""
    return Result(misprints=[_groups(), _class_zero(), _age()], seed=None)


def _groups() -> Misprint:
    ratio = GROUPED["communication"] / GROUPED["computation"]
    uploads = {size: GROUPED["communication"] / (size + 1) for size in (3, 4)}
    fits = [size for size in range(1, 13) if abs(theory.communication_ratio(size) - ratio) < 1e-12]
    return Misprint(
        "Section VI, G = 3 and M_G = 4",
        f"communication {GROUPED['communication']}, computation {GROUPED['computation']}",
        f"their ratio is {ratio:.6g} = (M_G + 1)/M_G for M_G = {', '.join(map(str, fits))}; M_G = 4 would give"
        f" {theory.communication_ratio(4):g}. A selected group makes M_G + 1 messages: {uploads[4]:g} selections with"
        f" M_G = 4 are not a whole number, {uploads[3]:g} with M_G = 3 are",
        "wb.theory.communication_ratio(3), 12292 / 9219, 12292 / (4 + 1)",
        fits == [3] and uploads[4] % 1 != 0 and uploads[3] % 1 == 0,
    )


def _class_zero() -> Misprint:
    often = [3.0] * 3  # L_m^2 = 9 > c, so the worker is selected in every round
    published = theory.cada_selected(often, c=2.0, max_age=10, form="published")
    right = theory.cada_selected(often, c=2.0, max_age=10)
    return Misprint(
        "Equations (12) and (15), Lbar_0 = 0",
        f"three workers that are selected in every round count as {published:g}",
        f"they count as {right:g}: Lbar_0 must be infinite",
        "wb.theory.cada_selected([3, 3, 3], c=2, max_age=10, form=...)",
        published == 0 and right == 3,
    )


def _age() -> Misprint:
    never = [1e-6]  # the model hardly changes, so only the age of the gradient counts
    found = theory.cada_selected(never, c=2.0, max_age=10)
    return Misprint(
        "Sections III and IV, tau > D or tau >= D",
        "a worker that only its age selects: 1/(D + 1) of the time in (12), so 1/11 for D = 10",
        f"algorithm 1 has tau >= D: {found:g} of the time, 1/D",
        "wb.theory.cada_selected([1e-6], c=2, max_age=10)",
        abs(found - 0.1) < 1e-12,
    )


PLACE = (3, 4)  # paper, and position in its chapter of the book
ENTRIES = (Entry("cada-misprints", "Misprints of the CADA paper", find),)
