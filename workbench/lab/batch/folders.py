"""Folder of a sweep: the plan that is stored in it, and the code that it may run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from workbench.analysis.tables.status import is_run, read_plan
from workbench.core.base.by_value import sent
from workbench.core.base.files import sha256
from workbench.core.base.settings import SettingError, check_kind, path_of
from workbench.core.base.trust import limit, limited
from workbench.core.base.user_code import run_hash
from workbench.core.trace.definitions import definitions_of
from workbench.core.trace.layout import PLAN
from workbench.core.trace.trust import code_names, permitted
from workbench.lab.batch.executors import ExecutorSettings
from workbench.lab.batch.sweeps import Item, Sweep
from workbench.mpi import clusters


@contextmanager
def opened(
    plan: Sweep | Mapping[str, Any] | str | Path,
    folder: str | Path | None,
    trust: bool = False,
    **changes: Any,
) -> Iterator[tuple[Sweep, Path]]:
    """Yield a sweep and its folder (`plan`, `folder`: as in `sweep`). `changes`: values that replace its fields.

    Within the block, code that a folder names runs only if it is signed or trusted, see `trace.trust`.
    """
    check_kind("trust", trust, bool)
    if isinstance(plan, Sweep | Mapping):
        chosen = plan if isinstance(plan, Sweep) else Sweep(**{str(k): v for k, v in plan.items()})
        yield chosen.replace(**changes), _no_run(path_of(folder or Path("runs") / "sweep", "folder"))
        return
    path = path_of(plan, "sweep")
    if not path.is_dir():
        where = _no_run(path_of(folder or Path("runs") / path.stem, "folder"))
        yield Sweep.read(path).replace(**changes), where
        return
    chosen = read_folder(path).replace(**changes)
    with limited(_permitted(chosen, path, trust)):
        yield chosen, _no_run(path_of(folder or path, "folder"))


def read_folder(path: Path) -> Sweep:
    """Read the sweep of a folder without running code. Raises `SettingError` if the folder has none."""
    found = read_plan(path).get("sweep")
    if found is None:
        wanted = "give a .yaml file, or a sweep's folder"
        raise SettingError(f"sweep = {str(path)!r}: is a folder without {PLAN}; {wanted}")
    if not isinstance(found, dict):
        raise SettingError(f"{path / PLAN}: is damaged ('sweep' has no fields)")
    return Sweep(**found)


def _permitted(plan: Sweep, folder: Path, trust: bool) -> dict[str, str]:
    """Return the code that a sweep's folder may run, name -> hash. It is empty if the sweep names no code.

    Raises `SettingError` for code that is neither signed nor trusted.
    """
    odd = elsewhere(plan)
    if not (names := code_names(noted(plan))) and not odd:
        return {}
    with limited() as now, suppress(SettingError):  # invalid settings of the sweep are reported later
        plan.items()
    if not now.names and not odd:  # kernels may run the code that this process has run
        return {name: found for name in names if (found := run_hash(name)) is not None}
    why = f"{odd}: is neither a cluster of yours nor this machine" if odd else now.refused[0]
    how = f"look at it, then trust=True (--trust) runs it and trusts {str(folder)!r} from then on"
    return permitted("sweep", folder, signed(plan), trust, SettingError(f"{folder / PLAN}: {why}; {how}"))


def elsewhere(plan: Sweep) -> str:
    """Return the field that names an address, or a cluster that the user has no file of, else ""."""
    executor, own = plan.executor or ExecutorSettings(), ["", *clusters.names()]
    given = {
        "cluster": (plan.cluster, own),
        "executor.cluster": (executor.cluster, own),
        "executor.address": (executor.address, [""]),
        "executor.listen": (executor.listen, [ExecutorSettings().listen]),
    }
    return next((f"{name} = {value!r}" for name, (value, known) in given.items() if value not in known), "")


def signed(plan: Sweep) -> dict[str, Any]:
    """Return the signed contents of a sweep: all its fields, and hashes of the cluster files that it names by path."""
    known = ["", *clusters.names()]
    given = [plan.cluster, plan.executor.cluster if plan.executor else ""]
    files = [name for name in given if name not in known and Path(name).is_file()]
    hashes = ",".join(f"{name}:{sha256(name)}" for name in files)
    return {**noted(plan), "cluster_file": hashes or (plan.executor.address if plan.executor else "")}


def noted(plan: Sweep) -> dict[str, Any]:
    """Return the fields of a sweep as they are written into its folder."""
    return plan.model_dump(mode="json", by_alias=True, exclude_unset=True)


def own_of(items: Iterable[Item]) -> str:
    """Return the user's definitions that kernels cannot read from a file, by value, or "" if there are none."""
    found: dict[Any, None] = {}
    for e in (item.experiment for item in items):
        parts = {e.scheme: e.built_scheme, e.problem: e.problem_spec, e.optimiser: e.build_optimiser()}
        read = {type(kind) for name, kind in parts.items() if ".py:" in name}
        found |= dict.fromkeys(obj for obj in definitions_of(e) if obj not in read)
    return sent(list(found)) if found else ""


def allowed() -> dict[str, str] | None:
    """Return the code that kernels may run, by name and hash, or None without a limit (see `base.trust`)."""
    return None if (now := limit()) is None else dict(now.allowed)


def _no_run(folder: Path) -> Path:
    """Reject the folder of a run, because tables of runs treat it as one run and do not look for runs inside."""
    for each in (folder, *folder.absolute().parents):
        if each.is_dir() and is_run([path.name for path in each.iterdir()]):
            raise SettingError(
                f"folder = {str(folder)!r}: {each} holds a run; choose another for a sweep's runs"
            )
    return folder
