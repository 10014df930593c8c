"""A slow import that waits until it is needed."""

from __future__ import annotations

import subprocess
import sys

ASK = """
import sys
from workbench.lab.notebooks import grammar_put_off
with grammar_put_off():
    import papermill
assert not any(name.startswith("rfc3987_syntax") for name in sys.modules)
from jsonschema import Draft202012Validator as Validator
check = Validator({"format": "iri"}, format_checker=Validator.FORMAT_CHECKER)
print(check.is_valid("http://example.org/\u00fc"), check.is_valid("no address"), "rfc3987_syntax" in sys.modules)
"""


def test_addresses_are_still_checked_for_who_asks() -> None:
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "True"]
