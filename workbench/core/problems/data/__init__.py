"""Named, bundled and user-defined data sets as prepared, memory-mapped arrays.

>>> from workbench.core.problems.data import load
>>> load("breast_cancer", "binary").X.shape
(569, 30)
"""

from .cache import hashes, trust
from .dataset import PREPARED_PREFIX, DataSet, catalogue, load, reopen
from .options import DataError
from .sources import SourceInfo

__all__ = [
    "PREPARED_PREFIX",
    "DataError",
    "DataSet",
    "SourceInfo",
    "catalogue",
    "hashes",
    "load",
    "reopen",
    "trust",
]
