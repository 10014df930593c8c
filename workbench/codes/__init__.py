"""Pure matrices: encode, decode, residual, conditioning. No nodes, no time."""

from workbench.codes.base import Decoding, GradientCode
from workbench.codes.cyclic import cyclic
from workbench.codes.fractional import fractional

__all__ = ["Decoding", "GradientCode", "cyclic", "fractional"]
