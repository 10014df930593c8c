"""`wb.check`: does a scheme, delay model, problem or optimiser have the properties that others count on?

The properties are in a file each for schemes, delay models, problems and optimisers; the project's own tests try the
same ones on its own classes.

>>> import workbench as wb
>>> wb.check("UMW", examples=5).ok
True
"""

from workbench.core.checking.check import Checked, check
from workbench.core.checking.property import Property, PropertyFailed, Row

__all__ = ["Checked", "Property", "PropertyFailed", "Row", "check"]
