"""Report names that no module, notebook, test or benchmark uses. The exit status is 1 if there are any."""

import json
import re
import sys
from itertools import chain
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).resolve().parent.parent
CODE = ["workbench", "notebooks", "tests", "benchmarks", "tools"]
# Names that libraries call or read.
DECORATORS = [
    "@*_validator*",
    "@*_serializer*",
    "@*.command*",
    "@*.group*",
    "@*fixture*",
    "@*hookimpl*",
    "@overload",
]
NAMES = {
    "our own messages": ["do_*", "job_*", "init_rank"],
    "one for each kind of Python's syntax": ["s_*", "x_*"],
    "python": ["__getattr__", "__dir__", "__signature__", "showwarning", "category", "filename", "lineno"],
    "its libraries": ["log_message", "handle_starttag", "find_class"],
    "click": ["list_commands", "get_command", "format_commands", "ctx"],
    "hatchling": ["initialize"],
    "widgets": ["recalled", "scale_x", "display_page", "folded"],  # read by the page's JavaScript
    "stand-ins of batch commands": ["qsub", "qdel", "qstat"],
    "optuna": ["sampler"],
    "lightning and transformers": ["on_*", "training_step", "configure_optimizers"],
    "tqdm": ["last_print_t"],
    "pandas": ["_constructor"],
    "plotly": ["_validate"],
    "pytest": ["test_*", "pytest_*", "pytestmark", "collect_ignore_glob"],
    "pydantic": ["model_config", "model_post_init", "__pydantic_*"],
    "pyyaml": ["yaml_implicit_resolvers"],
    "jupyter_client": ["connection_file", "transport", "pgid"],
    "ipyparallel": ["controller_cmd", "mpi_cmd", "mpi_args", "engine_cmd", "engine_args"],
}


def notebook_code(path):
    """Return the code cells of a notebook, without magics and other lines that only IPython can run."""
    cells = json.loads(path.read_text())["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return re.sub(r"^\s*[%!].*$", "", text, flags=re.MULTILINE)


def dead():
    """Return unused definitions, as vulture's items. Classes are left out: subclasses register themselves."""
    looker = Vulture(ignore_decorators=DECORATORS, ignore_names=list(chain(*NAMES.values())))
    looker.scavenge([str(ROOT / folder) for folder in CODE])
    for path in (ROOT / "notebooks").rglob("*.ipynb"):
        looker.scan(notebook_code(path), filename=path)
    return [item for item in looker.get_unused_code(min_confidence=60) if item.typ != "class"]


if __name__ == "__main__":
    found = dead()
    for item in found:
        print(item.get_report())
    sys.exit(bool(found))
