"""`wb.check`: test whether a scheme, delay model, fault, problem, optimiser or schedule fulfils the contract.

The properties of each kind are in one file. The tests of the package check the same properties for its own classes.

>>> import workbench as wb
>>> wb.check("UMW", examples=5).ok
True
"""

from workbench.core.checking.check import Checked, check
from workbench.core.checking.property import Property, PropertyFailed, Row

__all__ = ["Checked", "Property", "PropertyFailed", "Row", "check"]
