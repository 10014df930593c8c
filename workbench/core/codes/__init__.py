"""Matrices of gradient codes: encoding, decoding, residual and conditioning. Nodes and times are elsewhere."""

from workbench.core.codes.base import Decoding, GradientCode, Span
from workbench.core.codes.cyclic import cyclic
from workbench.core.codes.fractional import fractional
from workbench.core.codes.graph import GraphCode, random_regular
from workbench.core.codes.lagrange import Lagrange, lagrange
from workbench.core.codes.mds import mds
from workbench.core.codes.multi_message import MultiMessage, correlated, uncorrelated
from workbench.core.codes.quality import amplification, measured_error, report, warning
from workbench.core.codes.sparse import bernoulli, circulant, hybrid
from workbench.core.codes.ye_abbe import YeAbbe, ye_abbe

__all__ = [
    "Decoding", "GradientCode", "GraphCode", "Lagrange", "MultiMessage", "Span", "YeAbbe",
    "amplification", "bernoulli", "circulant", "correlated", "cyclic", "fractional", "hybrid", "lagrange",
    "mds", "measured_error", "random_regular", "report", "uncorrelated", "warning", "ye_abbe",
]  # fmt: skip
