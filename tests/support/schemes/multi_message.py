"""Strategies for the multi-message schemes and Lagrange coded computing."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.support.specs import Case


def _shape(draw: st.DrawFn) -> tuple[dict[str, Any], int, int]:
    """Draw the fields that UC-MMC and GC-MMC share, the workers of a cluster, and all workers."""
    size, clusters = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    # At most four parts, so that a straggler's time for one part, ten times as long, equals no other worker's time.
    fields = {
        "load": draw(st.integers(1, min(size, 4))),
        "clusters": clusters,
        "when_done": draw(st.sampled_from(["stop", "go on"])),
    }
    return fields, size, size * clusters


@st.composite
def uc_mmc(draw: st.DrawFn) -> Case:
    fields, _, workers = _shape(draw)
    return fields, workers


@st.composite
def gc_mmc(draw: st.DrawFn) -> Case:
    fields, size, workers = _shape(draw)
    load = fields["load"]
    fields["hybrid"] = load == size and draw(st.booleans())
    fields["code_seed"] = draw(st.integers(0, 3))
    if draw(st.booleans()):
        return {**fields, "order": draw(st.integers(1, load))}, workers
    orders = draw(st.sets(st.integers(1, load), min_size=1)) | (set() if fields["hybrid"] else {load})
    fields["construction"] = draw(st.sampled_from(["separate", "joint"]))
    return {**fields, "order": draw(st.permutations(sorted(orders)))}, workers


@st.composite
def lcc(draw: st.DrawFn) -> Case:
    workers = draw(st.integers(1, 16))
    fits = [load for load in range(1, workers + 1) if 2 * -(-workers // load) - 1 <= workers]
    return {"load": draw(st.sampled_from(fits))}, workers


CASES = {"UC-MMC": uc_mmc(), "GC-MMC": gc_mmc(), "LCC": lcc()}
