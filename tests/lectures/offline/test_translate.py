"""Translation of Python into JavaScript: code without an equivalent is refused with its line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from workbench_lectures.offline.natives import known, natives
from workbench_lectures.offline.translate import Translator, Untranslatable


def translated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> list[str]:
    (tmp_path / "workbench_piece.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "workbench_piece", raising=False)
    monkeypatch.setattr("workbench_lectures.offline.translate.OURS", ("workbench_piece",))
    translator = Translator(natives(), known())
    translator.of(__import__("workbench_piece"), "f")
    return translator.lines


def test_translate_includes_what_a_function_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "LEAST = 2.5\ndef g(x): return x + LEAST\ndef f(new, k=3): return [g(i) for i in range(new) if i < k]\n"
    g, f = translated(tmp_path, monkeypatch, source)
    assert "2.5" in g
    assert "new_" in f  # `new` is a keyword of JavaScript
    assert "py.call(g$" in f


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("def f():\n    yield 1\n", "line 2: Yield"),
        ("def f():\n    try:\n        pass\n    finally:\n        pass\n", "line 2: Try"),
        ("from pathlib import Path\ndef f(): return Path()\n", "pathlib.Path has no counterpart"),
        ("import numpy as np\ndef f(x): return np.sinc(x)\n", "sinc has no counterpart"),
        ("def f(): return nowhere\n", "nowhere is not known"),
    ],
)
def test_translate_names_what_has_no_counterpart(
    source: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Untranslatable, match=text):
        translated(tmp_path, monkeypatch, source)
