"""Figures: pure functions from traces, plans and experiments to plotly figures in one house style."""

from workbench.figures.bands import bands
from workbench.figures.contest import Contest, winners
from workbench.figures.curves import convergence
from workbench.figures.distributions import round_times
from workbench.figures.instants import Moment, moments
from workbench.figures.matrix import code
from workbench.figures.mixtures import held, weights
from workbench.figures.profile import cluster
from workbench.figures.ranking import ranking
from workbench.figures.repetitions import convergence_bands
from workbench.figures.saving import NoBrowser, save
from workbench.figures.speedup import speedups
from workbench.figures.style import Style, register, scheme_style
from workbench.figures.timeline import gantt
from workbench.figures.topology import tree

register()

__all__ = [
    "Contest",
    "Moment",
    "NoBrowser",
    "Style",
    "bands",
    "cluster",
    "code",
    "convergence",
    "convergence_bands",
    "gantt",
    "held",
    "moments",
    "ranking",
    "round_times",
    "save",
    "scheme_style",
    "speedups",
    "tree",
    "weights",
    "winners",
]
