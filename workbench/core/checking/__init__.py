"""`wb.check`: does a scheme, delay law, problem or optimiser keep the laws that engines, planner and figures count on?

The laws stand in a file each for schemes, delay laws, problems and optimisers; the project's own tests try the same
ones on its own classes.

>>> import workbench as wb
>>> wb.check("UMW", examples=5).ok
True
"""

from workbench.core.checking.check import Checked, check
from workbench.core.checking.law import Broken, Law, Row

__all__ = ["Broken", "Checked", "Law", "Row", "check"]
