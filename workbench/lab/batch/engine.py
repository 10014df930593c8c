"""A papermill engine that writes the notebook once, at its end, however it ends.

Papermill's own writes all of it before and after every cell, which costs more than the kernel's start.
"""

from typing import Any

from papermill.engines import NBClientEngine, NotebookExecutionManager, papermill_engines
from papermill.iorw import write_ipynb

NAME = "workbench"


class WriteOnce(NBClientEngine):
    """Use with `request_save_on_cell_execute=False`, and the notebook's path as `remains` too.

    What a cell raises, papermill writes; `remains` is for a kernel that dies and a cell that takes too long.
    """

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: NotebookExecutionManager, kernel_name: str, remains: str = "", **options: Any
    ) -> None:
        """Run all cells."""
        try:
            super().execute_managed_notebook(nb_man, kernel_name, **options)
        except Exception:
            nb_man.notebook_complete()
            write_ipynb(nb_man.nb, remains)
            raise


papermill_engines.register(NAME, WriteOnce)
