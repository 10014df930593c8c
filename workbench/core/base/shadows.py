"""User files that shadow a module: a file random.py, for example, is imported in place of Python's random.

Python searches the folder of the script, or the current folder, first.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from traceback import walk_tb


def shadowed(error: BaseException) -> str:
    """Return a sentence about the file that shadows a module and so caused an error, or empty if there is none.

    >>> shadowed(ImportError("no module of that name"))
    ''
    """
    first = Path(sys.path[0] if sys.path else "").resolve()
    known = {*sys.stdlib_module_names, *_installed()}
    for path in _involved(error):
        if path.parent.resolve() == first and path.stem in known:
            return (
                f"{path}: has the name of a module that is needed, and is found first; give it another name"
            )
    return ""


def _installed() -> set[str]:
    """Return the module names of installed packages; none if a file shadows a module that this function imports."""
    try:
        from importlib.metadata import packages_distributions

        return set(packages_distributions())
    except Exception:
        return set()


def _involved(error: BaseException) -> Iterator[Path]:
    """Yield files that may shadow a module: those of loaded modules, and those that the error names."""
    modules = [*sys.modules.items(), ("", getattr(error, "obj", None))]
    files = [getattr(module, "__file__", None) for name, module in modules if name != "__main__"]
    files.append(getattr(error, "path", None))
    files += [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)]
    for file in files:
        if isinstance(file, str) and file:
            yield Path(file).parent if Path(file).name == "__init__.py" else Path(file)
