"""Number of threads of the linear algebra library."""

import sys
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

# Number of matrix entries up to which OpenBLAS uses one thread by default.
MAX_SINGLE_THREAD_NUMBERS = 9000


@lru_cache(maxsize=2)
def _controller(scipy: bool) -> Any:
    """Return a controller of the loaded libraries.

    `scipy`: whether SciPy is loaded. The argument only distinguishes cached controllers: SciPy loads a second library.
    """
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_thread(numbers: int = MAX_SINGLE_THREAD_NUMBERS + 1) -> AbstractContextManager[Any]:
    """Limit BLAS to one thread within a block, if matrices with this number of entries would use several.

    BLAS threads busy-wait for each other. If other processes use the cores, short calls can take a hundred times as
    long.

    >>> with one_thread():
    ...     pass
    """
    return (
        _controller("scipy.linalg" in sys.modules).limit(limits=1)
        if numbers > MAX_SINGLE_THREAD_NUMBERS
        else nullcontext()
    )
