"""An import that takes a second, put off until it is needed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType

_GRAMMAR = "rfc3987_syntax"


class _Later(ModuleType):
    """Stands in for the grammar of internationalised addresses."""

    @staticmethod
    def is_valid_syntax(rule: str, text: str) -> bool:
        _let_in()
        from rfc3987_syntax import is_valid_syntax

        return bool(is_valid_syntax(rule, text))


@contextmanager
def grammar_put_off() -> Iterator[None]:
    """Import nbformat, papermill or jsonschema in here: they import a grammar of addresses, which notebooks never need.

    It takes a second to build, once per process. Whoever asks jsonschema to check an address later waits for it then.
    """
    if _GRAMMAR in sys.modules or find_spec(_GRAMMAR) is None:
        yield
        return
    sys.modules[_GRAMMAR] = _Later(_GRAMMAR)
    try:
        yield
    finally:
        _let_in()


def _let_in() -> None:
    if isinstance(sys.modules.get(_GRAMMAR), _Later):
        sys.modules.pop(_GRAMMAR, None)
