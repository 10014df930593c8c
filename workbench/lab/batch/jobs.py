"""Steps of `notebooks/run.ipynb`: from parameters to an experiment, a run and a run folder."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.core import schemes
from workbench.core.base.arguments import kinds_checked
from workbench.core.base.errors import RunError
from workbench.core.base.settings import SettingError, unknown_name
from workbench.core.base.text import YAMLError, parse
from workbench.core.experiment import Experiment
from workbench.core.problems.data import DataError
from workbench.core.running.start import run
from workbench.core.trace.trace import Trace
from workbench.lab.batch.sweeps import cluster_of

OTHER_PARAMETERS = ("engine", "cluster", "folder")  # parameters besides the fields of an Experiment
_PLAIN_TYPES = (str, int, float, bool, list, tuple, dict, type(None))
_IPYTHON = {"In", "Out"}


@dataclass(frozen=True)
class Job:
    """Checked experiment with its engine and the path of its run folder (empty: it is not saved).

    `engine`, `cluster`: as in `wb.run`.

    >>> job({"scheme": "UMW", "workers": 4}).experiment.workers
    4
    """

    experiment: Experiment
    engine: str
    cluster: str
    folder: str

    def run(self) -> Trace:
        """Run the experiment, and save the run folder."""
        where: dict[str, Any] = {"cluster": self.cluster} if self.cluster else {}
        with one_sentence():
            trace = run(self.experiment, self.engine, **where)
            if self.folder:
                trace.save(self.folder)
        return trace


@kinds_checked
def job(names: Mapping[str, Any], usual: Mapping[str, Any] | None = None) -> Job:
    """Check the parameters of a notebook.

    names: the notebook's globals(), which contain the parameters of papermill, valid or not. A name that is not a
    parameter must be a field of the chosen scheme: `-p stragglers 3` is scheme_args.stragglers. Text is read as YAML
    where a field has fields of its own: `-p delays "{kind: pareto}"`.

    usual: a default experiment. If its other fields equal those of the notebook, its scheme_args are used.

    Raises `SettingError`, shown in the notebook as one sentence.

    >>> job({"scheme": "GC", "workers": 6, "stragglers": 2}).experiment.scheme_args
    {'stragglers': 2}
    """
    with one_sentence():
        variables = {n: v for n, v in names.items() if n[0] != "_" and n not in _IPYTHON}
        given = {n: v for n, v in variables.items() if isinstance(v, _PLAIN_TYPES)}
        fields = {n: _value(n, given.pop(n)) for n in Experiment.model_fields if n in given}
        engine, cluster, folder = (
            str(given.pop(n, d)) for n, d in zip(OTHER_PARAMETERS, ("sim", "", ""), strict=True)
        )
        cluster = cluster_of(engine, cluster)
        fields["scheme_args"] = _scheme_args(fields, given, usual or {})
        if folder and Path(folder).exists():
            raise SettingError(f"folder = {folder!r}: exists already; choose a new name")
        return Job(Experiment(**fields), engine, cluster, folder)


def _scheme_args(
    fields: Mapping[str, Any], given: Mapping[str, Any], usual: Mapping[str, Any]
) -> dict[str, Any]:
    args = fields.get("scheme_args", {})
    if not isinstance(args, dict):
        raise SettingError(f"scheme_args = {args!r:.60}: give fields and values, such as {{stragglers: 2}}")
    scheme = str(fields.get("scheme", Experiment.model_fields["scheme"].default))
    known = list(schemes.get(scheme).model_fields)
    for name in given:
        if name not in known:
            raise unknown_name("parameter", name, [*Experiment.model_fields, *OTHER_PARAMETERS, *known])
        if name in args:
            raise SettingError(f"{name}: is given twice, by itself and in scheme_args; drop one of them")
    fits = all(fields.get(name) == value for name, value in usual.items() if name != "scheme_args")
    return {**(usual.get("scheme_args", {}) if fits else {}), **args, **given}


def _value(name: str, value: Any) -> Any:
    default = Experiment.model_fields[name].default
    if isinstance(value, str) and not isinstance(default, str | int | float | None):
        try:
            return parse(value)
        except YAMLError:
            raise SettingError(f"{name} = {value!r:.60}: is not YAML, such as {{stragglers: 2}}") from None
    return value


@contextmanager
def one_sentence() -> Iterator[None]:
    """In a notebook, show mistakes of the user, and reasons why a run stopped, without a traceback."""
    try:
        yield
    except (SettingError, RunError, DataError) as error:
        lines = [f"{type(error).__name__}: {error}"]
        error.__dict__["_render_traceback_"] = lambda: lines  # read by IPython
        raise
