"""Papermill engine that writes the notebook once, when its execution has ended or failed.

Papermill's own engine writes the whole notebook before and after every cell. That takes longer than the start of the
kernel.
"""

from itertools import groupby
from typing import Any

from nbformat import NotebookNode
from papermill.engines import NBClientEngine, NotebookExecutionManager, papermill_engines
from papermill.iorw import write_ipynb

NAME = "workbench"


class WriteOnce(NBClientEngine):
    """Engine for papermill's option `request_save_on_cell_execute=False`. A further option `remains` is a path.

    If a cell raises, papermill itself writes the notebook. If the kernel dies or a cell takes too long, the engine
    writes the notebook to `remains`.
    """

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: NotebookExecutionManager, kernel_name: str, remains: str = "", **options: Any
    ) -> None:
        """Run all cells. If the kernel dies or a cell takes too long, write the notebook to `remains`."""
        try:
            super().execute_managed_notebook(nb_man, kernel_name, **options)
        except Exception:
            nb_man.notebook_complete()
            join_streams(nb_man.nb)
            write_ipynb(nb_man.nb, remains)
            raise
        join_streams(nb_man.nb)


def join_streams(notebook: NotebookNode) -> None:
    """Join consecutive outputs of one stream, because every flush makes an output of its own."""
    for cell in notebook.cells:
        outputs: list[NotebookNode] = []
        for stream, some in groupby(cell.get("outputs", []), lambda output: output.get("name")):
            first, *others = some
            if stream is None:  # not a stream but a figure, table or error
                outputs += [first, *others]
            else:
                first["text"] = "".join(each["text"] for each in (first, *others))
                outputs.append(first)
        if "outputs" in cell:
            cell.outputs = outputs


papermill_engines.register(NAME, WriteOnce)
