"""A user's file with a rule by which a worker answers wrongly."""

ADVERSARY = """
import numpy as np
from workbench.core.base.settings import setting
from workbench.core.contract.faults import WrongAnswer

class Largest(WrongAnswer):
    \"\"\"Sends the largest number of its answer only.\"\"\"

    kind = "largest"
    times: float = setting(1.0, "magnitude", gt=0)

    def answer(self, value, round, number):
        return np.where(np.abs(value) == np.abs(value).max(), self.times * value, 0.0)
"""
