"""Reproduction book: every figure and table of the papers, with the paper's numbers beside computed ones.

`workbench reproduce all` on the command line; here, entries by name:

>>> import workbench_book as book
>>> book.get("table3").title
'Table 3: expected iteration time for every load d and reduction m'
"""

from workbench_book.catalogue import PAPERS, Entry, Outcome, entries, get, names, of_paper
from workbench_book.running import find, reproduce
from workbench_book.setting import Setting, find_traces
from workbench_book.values import Claim, Line, Misprint, Picture, Result

__all__ = [
    "PAPERS", "Claim", "Entry", "Line", "Misprint", "Outcome", "Picture", "Result", "Setting", "entries", "find",
    "find_traces", "get", "names", "of_paper", "reproduce",
]  # fmt: skip
