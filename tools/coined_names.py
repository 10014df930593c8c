"""Report coined identifiers and long sentences of workbench/, and words of all texts that have a plain replacement.

    python tools/coined_names.py [PATH ...]

Identifiers are checked in Python files of workbench/ and notebooks/, and in code cells: docs/glossary.md has their
replacements. Words are checked in comments, docstrings and other strings of Python files, and in Markdown, notebooks,
JavaScript and CSS as a whole.
"""

import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

REPLACED = """
AGAIN ALIKE CONTEST FEW FEWEST HASTY HELD HIGHEST KEPT LEAST LONGEST LOOKS MOST MOSTLY NOBODY OFTEN RIVALS RUNG SOON
TOLD WITNESSES
adopt be_a_rank bell bells bury contest contest_table door drowsy ear eases farewell firm go_on heed law laws
letter luck may_be_late nap naps nursery odds own_pace part_of patient_program remedies remedy rivals rung seal
straightline thing things twin unbegun unseal vandals ways_of winner winners wolves
Bell Contest Desk Draws Far Film Habits Holder Keyed Law Naps News Nursery Odds Pace Remedy Said Stalled Steering
There Turned Unwanted Vandal Waited Way Wish
"""
EXAMPLES = {"Naps", "nap"}  # names of a user-defined delay model in the notebooks

# Pattern of a word or phrase -> its replacement. Blanks also match line breaks.
WORDS = {
    r"(?<!here\s)is no (?!longer|more|less|better|worse|one|matter|need|doubt|such)[a-z]+": "is not a ...",
    r"(?<!here\s)are no (?!longer|more|less|better|worse|matter)[a-z]+": "are not ...",
    r"any more(?! [a-z]+s\b)": "no longer",
    r"anew": "again",
    r"mend(?:s|ed|ing)?": "fix",
    r"whoever": "who that is, such as the user",
    r"rung": "notified, woken",
    r"dear(?:er|est)?": "expensive",
    r"of one's own": "user-defined",
    r"(?:go|goes|going|gone|went) on with": "continue with, resume",
    r"gone on": "continued, resumed",
    r"so many(?! that)": "the number of ...",
    r"kept ones": "saved ...",
    r"post office": "transport",
    r"warm ranks?": "ranks of a pool",
    r"loose files?": "user file",
    r"(?:breaks|broke|broken|break) off": "aborted, interrupted",
    r"dark ground": "dark background",
}
# in docstrings and comments of workbench/, without names in backticks and text in parentheses
MAX_SENTENCE_WORDS = 25
# Items that are not sentences: doctests, tables, entries of lists, and citations.
_DOCTEST = re.compile(r">>>.*?(?:\n[ \t]*\n|\Z)", re.DOTALL)
_BREAK = re.compile(
    r"\n[ \t]*\n|\n[ \t]*[*-] |\n[ \t]*[\w, *]+(?: : [^\n]*)?\n(?=[ \t]{4,})"
    r"|(?<=[.?!:;])\)?\s+(?=[A-Z\"`'(\d])|\. (?=\w+: )"
)
_SKIPPED = re.compile(r"====|----|et al\.|\b[A-Z]\. [A-Z]")
ALLOWED = {  # files that list the old words
    "docs/glossary.md",
    "docs/moving-from-1.0.md",
    "tools/coined_names.py",
    "tests/test_coined_names.py",
}
PATHS = [
    "workbench",
    "notebooks",
    "tools",
    "examples",
    "benchmarks",
    "tests",
    "docs",
    "README.md",
    "CONTRIBUTING.md",
]
SKIPPED = {  # folders: written by 1.0, quoted, generated from docstrings, or caches
    "corpus",
    "old",
    "decisions",
    "reference",
    ".ipynb_checkpoints",
}
SUFFIXES = {".py", ".md", ".ipynb", ".js", ".css"}
STRINGS = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of each variable, argument, attribute, function and class that a module defines."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield line, node.name
        elif isinstance(node, ast.arg):
            yield line, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield line, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield line, node.attr


def programs(path: Path) -> Iterator[str]:
    """Yield the Python code of a module, or of each code cell of a notebook without the commands of IPython."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield text
    elif path.suffix == ".ipynb":
        for cell in json.loads(text)["cells"]:
            if cell["cell_type"] == "code":
                yield re.sub(r"^[%!].*$", "", "".join(cell["source"]), flags=re.MULTILINE)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each piece of prose in a file."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in STRINGS:
                yield token.start[0], token.string
    else:
        yield 1, source


def words(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line, word and replacement of each word of a file that has a replacement."""
    for first, text in texts(path):
        for pattern, replacement in WORDS.items():
            spaced = pattern.replace(" ", r"\s+")
            for match in re.finditer(rf"\b(?:{spaced})\b", text, re.IGNORECASE):
                yield first + text.count("\n", 0, match.start()), " ".join(match[0].split()), replacement


def long_sentences(path: Path) -> Iterator[tuple[int, int, str]]:
    """Yield line, number of words and beginning of each long sentence in docstrings and blocks of comments."""
    for line, text in _prose(path):
        for sentence in _BREAK.split(_DOCTEST.sub("\n\n", text)):
            plain = re.sub(r"`[^`]*`|\([^()]*\)", "x", sentence)
            count = len(re.findall(r"[A-Za-z][A-Za-z'-]+", plain))
            if count > MAX_SENTENCE_WORDS and not _SKIPPED.search(sentence):
                yield line, count, " ".join(sentence.split())[:40]


def _prose(path: Path) -> Iterator[tuple[int, str]]:
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            text := ast.get_docstring(node, clean=False)
        ):
            yield node.body[0].lineno, text
    block: list[str] = []
    for number, line in enumerate([*source.splitlines(), ""], 1):
        if line.strip().startswith("# "):
            block.append(line.strip()[2:])
        elif block:
            yield number - len(block), "\n".join(block)
            block = []


def files(path: Path) -> list[Path]:
    """Return the files with prose in a folder, or the file itself."""
    if path.is_file():
        return [path]
    found = (file for file in sorted(path.rglob("*")) if file.suffix in SUFFIXES)
    return [file for file in found if SKIPPED.isdisjoint(file.parts) and file.as_posix() not in ALLOWED]


def found_in(path: Path) -> Iterator[str]:
    """Yield one line per finding in a file: identifiers and words to replace, and long sentences."""
    if path.parts[0] in ("workbench", "notebooks"):
        names = set(REPLACED.split()) - (EXAMPLES if path.suffix == ".ipynb" else set())
        for code in programs(path):
            for line, name in identifiers(ast.parse(code)):
                if name.strip("_") in names:
                    yield f"{path}:{line}: {name}: take the term of docs/glossary.md"
    if path.suffix == ".py" and path.parts[0] == "workbench":
        for line, count, sentence in long_sentences(path):
            yield f"{path}:{line}: {sentence}...: {count} words; at most {MAX_SENTENCE_WORDS}, so make two sentences"
    for line, word, replacement in words(path):
        yield f"{path}:{line}: {word}: write {replacement}"


def main(paths: list[str]) -> int:
    """Print all findings. Return 1 if there are any, else 0."""
    found = [line for path in paths for file in files(Path(path)) for line in found_in(file)]
    for line in found:
        print(line)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or PATHS))
