"""How many threads the linear algebra library uses."""

import sys
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

# numbers in a matrix up to which OpenBLAS takes one thread of its own accord
MAX_SINGLE_THREAD_NUMBERS = 9000


@lru_cache(maxsize=2)
def _controller(scipy: bool) -> Any:
    """Finds the libraries that are there; SciPy brings one of its own."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_thread(numbers: int = MAX_SINGLE_THREAD_NUMBERS + 1) -> AbstractContextManager[Any]:
    """Let BLAS use one thread of this process meanwhile, for matrices of so many numbers.

    Its threads wait for one another by spinning. In many short calls, beside other busy processes, that costs
    up to a hundred times the work.

    >>> with one_thread():
    ...     pass
    """
    return (
        _controller("scipy.linalg" in sys.modules).limit(limits=1)
        if numbers > MAX_SINGLE_THREAD_NUMBERS
        else nullcontext()
    )
