"""The search of sequential gradient coding's paper: every setting on the same delays, the soonest through first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from workbench.base.settings import SettingError
from workbench.experiment import Experiment
from workbench.forecasting import forecast


def search(
    experiment: Experiment, settings: Iterable[Mapping[str, Any]]
) -> list[tuple[float, dict[str, Any]]]:
    """Seconds of a whole run with each of some settings of its scheme, least first; what does not fit is left out.

    All meet the experiment's own stragglers: those of its seed, or those that were recorded. Its scheme's other numbers
    stay. As in Krishnan et al. 2023, Appendix, where the delays are those of some rounds without a code. No data is
    touched.

    >>> from workbench.schemes.sequential import SRSGC
    >>> e = Experiment(scheme="SR-SGC", workers=4, rounds=20, delays={"kind": "markov", "enter": 0.1})
    >>> found = search(e, SRSGC.settings(workers=4, longest=2, widest=4))
    >>> found[0][0] == min(seconds for seconds, _ in found), sorted(found[0][1])
    (True, ['burst', 'stragglers', 'window'])

    Raises
    ------
    SettingError
        None of the settings fits.
    """
    found, refused = [], None
    for args in settings:
        try:
            e = experiment.replace(scheme_args={**experiment.scheme_args, **args})
            found.append((float(forecast(e).seconds.sum()), dict(args)))
        except SettingError as error:
            refused = error
    if not found:
        raise SettingError(f"settings: none fits the experiment ({refused or 'there are none'})")
    return sorted(found, key=lambda each: each[0])
