"""Figures: pure functions from traces, plans and experiments to plotly figures in one house style."""

from workbench.figures.bands import bands
from workbench.figures.code import code
from workbench.figures.contest import Contest, winners
from workbench.figures.convergence import convergence
from workbench.figures.convergence_bands import convergence_bands
from workbench.figures.gantt import gantt
from workbench.figures.moments import Moment, moments
from workbench.figures.profile import cluster
from workbench.figures.ranking import ranking
from workbench.figures.round_times import round_times
from workbench.figures.save import NoBrowser, save
from workbench.figures.speedups import speedups
from workbench.figures.style import Style, register, scheme_style
from workbench.figures.tree import tree
from workbench.figures.weights import held, weights

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
