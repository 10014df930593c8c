"""Random draws of an experiment's fields."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from workbench.core.base.settings import SettingError, Settings, setting, within
from workbench.core.base.text import plain


class Span(Settings):
    """Range of numbers to draw from.

    >>> Span(low=1.0, high=10.0)
    Span(low=1.0, high=10.0, scale='linear', whole=False)
    """

    low: float = setting(description="smallest value")
    high: float = setting(description="largest value")
    scale: Literal["linear", "log"] = setting("linear", "log: all factors of ten are equally likely")
    whole: bool = setting(False, "draw whole numbers, both ends included")

    def draw(self, rng: np.random.Generator) -> float | int:
        """Draw one number."""
        high = self.high + 1 if self.whole else self.high
        if self.scale == "log":
            value = float(np.exp(rng.uniform(np.log(self.low), np.log(high))))
        else:
            value = float(rng.uniform(self.low, high))
        return min(int(value), int(self.high)) if self.whole else value

    @model_validator(mode="after")
    def _ends(self) -> Self:
        """Reject empty ranges."""
        if self.low > self.high:
            raise SettingError(f"low = {self.low:g}: is above high = {self.high:g}")
        if self.scale == "log" and self.low <= 0:
            raise SettingError(f"low = {self.low:g}: a logarithmic scale needs low > 0")
        return self


def _span(name: str, values: Any) -> Any:
    if not isinstance(values, Mapping):
        return listed(name, values)
    with within(name):
        return Span(**{str(key): value for key, value in values.items()})


def listed(name: str, values: Any) -> Any:
    """Return the values if they are a non-empty list. Raise an error otherwise."""
    if not isinstance(values, list | tuple):
        raise SettingError(f"{name} = {values!r:.60}: give a list of values, such as [{values!r:.40}]")
    if not len(values):
        raise SettingError(f"{name} = []: is empty; give at least one value, or drop the field")
    return values


def spans(fields: Any) -> Any:
    """Make a Span of every dict, so that an error names only the field."""
    fields = plain(fields)
    return (
        {name: _span(name, values) for name, values in fields.items()} if isinstance(fields, dict) else fields
    )


Spans = Annotated[dict[str, Span | tuple[Any, ...]], BeforeValidator(spans)]


class Sample(Settings):
    """Random draws of some fields, each drawn independently.

    >>> Sample(count=3, fields={"workers": [4, 8]}, seed=1)
    Sample(count=3, seed=1, fields_={'workers': (4, 8)})
    """

    model_config = ConfigDict(populate_by_name=True)

    count: int = setting(description="number of draws", ge=1)
    seed: int = setting(0, "seed of the draws; a larger count keeps the first draws", ge=0)
    fields_: Spans = Field(
        alias="fields", min_length=1, description="field -> list to choose from, or {low, high, scale, whole}"
    )

    def draws(self) -> list[dict[str, Any]]:
        """Return one dict of changes per draw; the values of a field do not depend on the other fields."""
        found: list[dict[str, Any]] = [{} for _ in range(self.count)]
        for name, values in self.fields_.items():
            rng = np.random.default_rng([self.seed, *name.encode()])
            for draw in found:
                if isinstance(values, Span):
                    draw[name] = values.draw(rng)
                else:
                    draw[name] = values[int(rng.integers(len(values)))]
        return found
