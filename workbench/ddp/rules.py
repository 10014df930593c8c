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


def rule(name: str, args: Mapping[str, Any], ranks: int) -> ExchangeRule:
    """Return the rule of a scheme. Raises `SettingError` for a scheme or parameters that scripts cannot use.

    `name`: a registered scheme, or FILE.py:CLASS.

    >>> rule("GC", {"stragglers": 1}, 4).matrix.astype(int).tolist()[0]
    [1, 1, 0, 0]
    >>> rule("H-SGD", {"local_steps": 4, "levels": ((2, 2),)}, 4).group(event=2, rank=3)
    (0, 1)
    """
    kind = schemes.get(name)
    if not kind.has_rule():
        usable = ", ".join(other for other in schemes.names() if schemes.get(other).has_rule())
        raise SettingError(
            f"scheme = {name!r}: has no exchange_rule for training scripts; take one of {usable}"
        )
    with within("scheme_args"):
        scheme = kind(**args)
    scheme.check(ranks)
    return scheme.exchange_rule(ranks)
