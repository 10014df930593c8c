"""Number of threads of the linear algebra library."""

import sys
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

# Size of a matrix, in numbers, up to which OpenBLAS uses one thread by default.
MAX_SINGLE_THREAD_NUMBERS = 9000


@lru_cache(maxsize=2)
def _controller(scipy: bool) -> Any:
    """Return a controller of the loaded libraries; the argument is a key, because SciPy loads a second library."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_thread(numbers: int = MAX_SINGLE_THREAD_NUMBERS + 1) -> AbstractContextManager[Any]:
    """Limit BLAS to one thread within a block, for matrices of that many numbers.

    Its threads busy-wait for one another. For many short calls beside other busy processes, this takes up to a hundred
    times the time of the work.

    >>> with one_thread():
    ...     pass
    """
    return (
        _controller("scipy.linalg" in sys.modules).limit(limits=1)
        if numbers > MAX_SINGLE_THREAD_NUMBERS
        else nullcontext()
    )
