"""Files of the user's that have the name of another module, such as random.py, and are imported in its place.

Modules are looked for beside the script, or in the current folder, before anywhere else.
"""

import sys
from collections.abc import Iterator
from pathlib import Path


def shadowed(error: BaseException) -> str:
    """Return a sentence on the file that an import took for another module, as an error shows it; empty: none.

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
    """Return the names of other packages' modules; none where even this import finds a wrong file."""
    try:
        from importlib.metadata import packages_distributions

        return set(packages_distributions())
    except Exception:
        return set()


def _involved(error: BaseException) -> Iterator[Path]:
    """Yield the files of loaded modules, of the module that lacks something, and of the calls that led to the error."""
    modules = [*sys.modules.items(), ("", getattr(error, "obj", None))]
    files = [getattr(module, "__file__", None) for name, module in modules if name != "__main__"]
    files.append(getattr(error, "path", None))
    step = error.__traceback__
    while step is not None:
        files.append(step.tb_frame.f_code.co_filename)
        step = step.tb_next
    for file in files:
        if isinstance(file, str) and file:
            yield Path(file).parent if Path(file).name == "__init__.py" else Path(file)
