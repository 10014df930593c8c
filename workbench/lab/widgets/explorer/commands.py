"""Settings as text: YAML for `workbench run`, and the papermill command that runs them in a notebook."""

import shlex

from workbench.core.base import text
from workbench.core.experiment import Experiment
from workbench.lab.notebooks import shipped

NOTEBOOK = shipped("notebooks/run.ipynb")  # an absolute path, so that the command works in any folder


def yaml_of(experiment: Experiment) -> str:
    """Return the experiment as YAML for `Experiment.read`.

    >>> yaml_of(Experiment(scheme="UMW", workers=4)).splitlines()[0]
    'scheme: UMW'
    """
    return text.dump(experiment.model_dump(mode="json"))


def papermill_command(
    experiment: Experiment, engine: str = "sim", cluster: str = "", output: str = "out.ipynb"
) -> str:
    """Return one line for a shell, in any folder: the notebook run.ipynb with every setting of the experiment.

    >>> papermill_command(Experiment(scheme="UMW", workers=4)).split(" -p ")[1:3]
    ['scheme UMW', 'problem logistic']
    """
    dump = experiment.model_dump(mode="json")
    argv = ["papermill", str(NOTEBOOK), output]
    parameters = {
        name: value for name, value in dump.items() if value or value == 0 or isinstance(value, dict)
    }
    where = {"engine": engine, "cluster": cluster}
    parameters |= {name: option for name, option in where.items() if option not in ("", "sim")}
    nested = [name for name, value in parameters.items() if isinstance(value, dict | list)]
    for name, value in parameters.items():
        argv += [] if name in nested else ["-p", name, str(value)]
    for name in nested:
        line = text.dump({name: dump[name]}, default_flow_style=True, width=10**6)
        argv += ["-y", line.strip().removesuffix("...").strip()]
    return " ".join(shlex.quote(option) for option in argv)
