"""Synthetic replacements of data sets: right shapes, repeatable, and learnable."""

from __future__ import annotations

import numpy as np
import pytest
from workbench_book import Setting, standins
from workbench_book.real_data import at_hand, for_preset

import workbench as wb
from workbench.core.presets.codedreduce import presets
from workbench.core.problems.data import cache


def test_standins_have_fixed_shapes_and_are_repeatable() -> None:
    digits = np.load(standins.regression_on_digits(40))
    assert digits.shape == (40, 785)
    assert 0 <= digits[:, :-1].min() < digits[:, :-1].max() <= 1.2
    images = np.load(standins.coloured_digits(30))
    assert images.shape == (30, 3 * 32 * 32 + 1)
    assert set(images[:, -1]) <= set(range(10))
    np.testing.assert_array_equal(standins.pixels(5), standins.pixels(5))
    halves = np.load(standins.diabetes_halves())
    assert halves.shape == (442, 11)
    assert abs(halves[:, -1].mean() - 0.5) < 0.01


def test_standins_access_is_sparse_and_mostly_granted() -> None:
    table = np.load(standins.access(400, 100))
    X, y = table[:, :-1], table[:, -1]
    assert X.shape == (400, 100)
    assert set(np.unique(X)) == {0.0, 1.0}
    assert 1 < X.sum(axis=1).mean() < 45
    assert 0.6 < y.mean() < 0.97


def test_standins_are_written_once() -> None:
    path = standins.access(50, 10)
    assert standins.kept("access-50-10", lambda: np.zeros((1, 1))) == path
    assert np.load(path).shape == (50, 11)


def test_standins_images_can_be_classified() -> None:
    e = wb.Experiment(
        scheme="UMW", workers=4, rounds=60, problem="softmax", optimiser="amsgrad", optimiser_args={"rate": 1e-3},
        problem_args={"data": standins.coloured_digits(300), "intercept": True},
    )  # fmt: skip
    assert wb.run(e).columns["accuracy"][-1] > 0.8


def test_standins_give_way_to_real_data(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    small = presets["fig8"].replace(problem_args={"data": "synthetic", "samples": 60, "features": 5})
    same, note, caption = for_preset(small, Setting())
    assert same == small
    assert "stand-in" in note
    assert "stand-in" in caption
    rng = np.random.default_rng(0)
    (cache.root() / "openml").mkdir(parents=True)
    table = np.column_stack([rng.standard_normal((80, 5)), rng.integers(0, 2, 80)])
    np.save(cache.root() / "openml" / "gisette.npy", table)
    assert at_hand("openml:gisette", Setting())
    real, note, caption = for_preset(small, Setting())
    assert real[0].problem_args["data"] == "openml:gisette"
    assert "(real data)" in note
    assert caption == "GISETTE (real)"
    assert for_preset(small, Setting(quick=True))[0] == small
