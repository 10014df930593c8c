"""The data room: named, bundled and own data sets as prepared, memory-mapped arrays.

>>> from workbench.core.problems.data import load
>>> load("breast_cancer", "binary").X.shape
(569, 30)
"""

from .cache import hashes, trust
from .dataset import PREPARED_PREFIX, DataSet, catalogue, load, reopen
from .options import DataError, check_test, held_out_count
from .sources import SourceInfo
from .table import held_out

__all__ = [
    "PREPARED_PREFIX", "DataError", "DataSet", "SourceInfo", "catalogue", "check_test", "hashes", "held_out",
    "held_out_count", "load", "reopen", "trust",
]  # fmt: skip
