"""`tools/coined_names.py`: it reports coined identifiers and words with their line, and accepts this repository."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.coined_names import PATHS, WORDS, long_sentences, main, words

ROOT = Path(__file__).parents[1]

REPORTED = [
    ("a.py", '"""It is no worker."""\n', 1, "is no worker"),
    ("a.py", 'x = 1\n# run it anew\ny = f"{x} {2} anew"\n', 2, "anew"),
    ("a.py", 'def f():\n    """Return.\n\n    It is not\n    there any more.\n    """\n', 5, "any more"),
    ("a.md", "One.\n\nTwo is\nno tree.\n", 3, "is no tree"),
    ("a.md", "Mend it.\n", 1, "Mend"),
    ("a.ipynb", '{"cells": [\n{"source": "Whoever comes"}]}\n', 2, "Whoever"),
    ("a.js", "f(); // they are no ranks\n", 1, "are no ranks"),
    ("a.css", "\n/* dear */\n", 2, "dear"),
]
ACCEPTED = [
    ("a.py", "anew = mend(whoever)\n"),
    ("a.md", "There is no worker, there are no ranks, and it is no longer a tree.\n"),
    ("a.md", "Are any more rounds needed? Recommended: amend it, deary.\n"),
    ("a.md", "There\nis no worker.\n"),
    ("a.txt", "It is no text.\n"),
]


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("name", "text", "line", "word"), REPORTED)
def test_words_have_their_line(tmp_path: Path, name: str, text: str, line: int, word: str) -> None:
    assert (line, word) in [found[:2] for found in words(written(tmp_path, name, text))]


@pytest.mark.parametrize(("name", "text"), ACCEPTED)
def test_names_and_plain_phrases_are_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    written(tmp_path, name, text)
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""


def test_output_names_place_word_and_replacement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "a.md", "Run it\nanew.\n")
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == f"{path}:2: anew: write {WORDS['anew']}\n"


def test_coined_identifiers_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workbench").mkdir()
    written(tmp_path / "workbench", "a.py", "def go_on(naps):\n    MOST = naps\n")
    (tmp_path / "notebooks").mkdir()
    cells = [("markdown", "luck = 1"), ("code", "%pip list\nluck = nap = 1")]
    content = {"cells": [{"cell_type": kind, "source": source} for kind, source in cells]}
    written(tmp_path / "notebooks", "b.ipynb", json.dumps(content))
    written(tmp_path / "notebooks", "c.py", "def odds(nap):\n    pass\n")
    assert main(["workbench", "notebooks"]) == 1
    found = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[:2] for line in found] == [
        ["workbench/a.py:1", "go_on"],
        ["workbench/a.py:1", "naps"],
        ["workbench/a.py:2", "MOST"],
        ["notebooks/b.ipynb:2", "luck"],
        ["notebooks/c.py:1", "odds"],
        ["notebooks/c.py:1", "nap"],
    ]


@pytest.mark.slow  # `make lint` checks the same
def test_repository_has_none_of_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    main(PATHS)
    assert capsys.readouterr().out == ""


LONG = "the master waits for the answers of all workers and adds them up in the order of their ranks " * 2


@pytest.mark.parametrize("text", [f'"""{LONG}."""\n', f"# {LONG}\n# again.\n"])
def test_long_sentences_are_reported_with_their_length(tmp_path: Path, text: str) -> None:
    [(line, count, start)] = long_sentences(written(tmp_path, "a.py", text))
    assert (line, start) == (1, LONG[:40])
    assert count in (38, 39)


@pytest.mark.parametrize(
    "text",
    [
        f'"""{LONG[:90]}.\n\n{LONG[:90].capitalize()}."""\n',  # two short sentences
        f'"""Return ({LONG}) the sum of `{LONG}`."""\n',  # text in parentheses and names in backticks
        f'"""Return.\n\n>>> x = 1  # {LONG}\n"""\n',
    ],
)
def test_short_sentences_code_and_parentheses_are_accepted(tmp_path: Path, text: str) -> None:
    assert list(long_sentences(written(tmp_path, "a.py", text))) == []
