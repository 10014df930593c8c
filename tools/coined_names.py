"""Report identifiers of workbench/ that were replaced by the terms of docs/glossary.md.

python tools/coined_names.py [FOLDER ...]
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

REPLACED = """
AGAIN ALIKE FEW FEWEST HASTY HELD HIGHEST KEPT LEAST LONGEST LOOKS MOST MOSTLY NOBODY OFTEN RUNG SOON TOLD WITNESSES
adopt be_a_rank bell bury drowsy ear eases farewell firm go_on heed law laws letter naps nursery own_pace
patient_program rung seal straightline twin unbegun unseal vandals ways_of wolves
Bell Contest Desk Draws Far Film Habits Holder Keyed Law Naps News Nursery Odds Pace Remedy Said Stalled Steering
There Turned Unwanted Vandal Waited Way Wish
"""


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of all that a module defines: names, arguments, attributes, functions and classes."""
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


def main(folders: list[str]) -> int:
    """Print what was found; return 1 if that is anything."""
    replaced = set(REPLACED.split())
    found = [
        f"{path}:{line}: {name}: take the term of docs/glossary.md"
        for folder in folders
        for path in sorted(Path(folder).rglob("*.py"))
        for line, name in identifiers(ast.parse(path.read_text(encoding="utf-8")))
        if name.strip("_") in replaced
    ]
    for line in found:
        print(line)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["workbench"]))
