"""BLAS is limited to one thread where several threads would wait for each other."""

from __future__ import annotations

import numpy as np
import scipy.linalg
import threadpoolctl

from workbench.core.base.blas import MAX_SINGLE_THREAD_NUMBERS, one_thread


def threads() -> list[int]:
    scipy.linalg.lapack.dgetrf(np.eye(2))  # loads the library
    return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]


def test_one_thread_limits_every_library() -> None:
    with threadpoolctl.threadpool_limits(2):
        before = threads()
        with one_thread():
            assert set(threads()) == {1}
        assert threads() == before


def test_one_thread_ignores_small_arrays() -> None:
    with threadpoolctl.threadpool_limits(2):
        before = threads()
        with one_thread(MAX_SINGLE_THREAD_NUMBERS):
            assert threads() == before
