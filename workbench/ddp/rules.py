"""Rule of a scheme for the ranks of a script: see `Scheme.exchange_rule`.

The schemes are those of `workbench.core.schemes`, with the same fields. In gradient schemes each step has one exchange.
In `LocalSGD` and `H-SGD`, ranks take steps of the script's own optimiser, and an exchange averages their models and the
states of their optimisers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.core import schemes
from workbench.core.base.settings import SettingError, within
from workbench.core.contract.exchanges import ExchangeRule
from workbench.core.contract.scheme import Scheme


def rule(name: str, args: Mapping[str, Any], ranks: int) -> ExchangeRule:
    """Return the rule of a scheme. Raises `SettingError` for a scheme or parameters that scripts cannot use.

    `name`: a registered scheme, or FILE.py:CLASS.

    >>> rule("GC", {"stragglers": 1}, 4).matrix.astype(int).tolist()[0]
    [1, 1, 0, 0]
    >>> rule("H-SGD", {"local_steps": 4, "levels": ((2, 2),)}, 4).group(event=2, rank=3)
    (0, 1)
    """
    kind = schemes.get(name)
    if not has_rule(kind):
        usable = ", ".join(other for other in schemes.names() if has_rule(schemes.get(other)))
        raise SettingError(
            f"scheme = {name!r}: has no exchange_rule for training scripts; take one of {usable}"
        )
    with within("scheme_args"):
        scheme = kind(**args)
    scheme.check(ranks)
    return scheme.exchange_rule(ranks)


def has_rule(scheme: type[Scheme]) -> bool:
    """Return whether scripts can use a scheme.

    A rule that is inherited does not fit a scheme that replaces the inherited program.

    >>> [has_rule(schemes.get(name)) for name in ("Backup", "PGC", "CR")]
    [True, False, False]
    """
    order = scheme.__mro__
    rule, program = (
        next(place for place, base in enumerate(order) if name in vars(base))
        for name in ("exchange_rule", "program")
    )
    return order[rule] is not Scheme and rule <= program
