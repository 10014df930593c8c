"""Pure matrices: encode, decode, residual, conditioning. No nodes, no time."""

from workbench.codes.base import Decoding, GradientCode, Span
from workbench.codes.cyclic import cyclic
from workbench.codes.fractional import fractional
from workbench.codes.graph import GraphCode, random_regular
from workbench.codes.lagrange import Lagrange, lagrange
from workbench.codes.mds import mds
from workbench.codes.multi_message import MultiMessage, correlated, uncorrelated
from workbench.codes.quality import amplification, measured_error, report, warning
from workbench.codes.sparse import bernoulli, circulant
from workbench.codes.ye_abbe import YeAbbe, ye_abbe

__all__ = [
    "Decoding", "GradientCode", "GraphCode", "Lagrange", "MultiMessage", "Span", "YeAbbe",
    "amplification", "bernoulli", "circulant", "correlated", "cyclic", "fractional", "lagrange", "mds",
    "measured_error", "random_regular", "report", "uncorrelated", "warning", "ye_abbe",
]  # fmt: skip
