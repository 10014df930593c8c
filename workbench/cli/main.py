"""Command line: finds the commands, calls one, and prints an error as one sentence."""

import ast
import sys
import warnings
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint
from pathlib import Path

import click

from workbench.core.base.errors import WorkbenchError, sentence_of
from workbench.core.base.extras import not_installed
from workbench.core.base.plugins import loaded, owner, points
from workbench.core.base.settings import SettingError

GROUP = "workbench.commands"
_MODULES = {  # module of this package -> commands in it
    "batch": ("sweep", "runs", "restore"),
    "cluster": ("cluster",),
    "diagnose": ("diagnose",),
    "explore": ("explore",),
    "lab": ("lab",),
    "plan": ("profile", "plan"),
    "report": ("report",),
    "run": ("run", "attach", "resume", "stop"),
    "show": ("forecast", "code", "presets", "schemes", "delays", "faults", "optimisers", "schedules"),
}


def main() -> None:
    """Run the command line. An error of the user ends with one sentence instead of a traceback."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warned  # type: ignore[assignment]  # only the message is needed
            cli(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        click.echo("workbench: interrupted", err=True)
        sys.exit(130)
    except ModuleNotFoundError as error:
        known = not_installed(sys.argv[1] if sys.argv[1:] else "workbench", error)
        if known is error:
            raise
        _exit_with(str(known))
    except (WorkbenchError, ValueError) as error:  # `SettingError` is a ValueError
        _exit_with(str(error))
    except OSError as error:
        _exit_with(sentence_of(error))
    except OverflowError as error:
        _exit_with(f"a number is too large ({error}); take fewer workers, rounds or samples")
    except MemoryError as error:
        more = str(error) or "more was needed"
        _exit_with(f"not enough memory ({more}); take fewer workers, rounds, samples or runs")


def _exit_with(text: str) -> None:
    click.echo(f"workbench: {text}", err=True)
    sys.exit(2)


def _warned(message: Warning | str, *where: object) -> None:
    """Print a warning as one sentence, without its place in the code."""
    click.echo(f"workbench: warning: {message}", err=True)


class Commands(click.Group):
    """Commands of this package and of plug-ins. A command's module is imported only when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, sorted."""
        return sorted(_every())

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return a command. Raises `SettingError` if a plug-in's command cannot be used."""
        if (point := _every().get(name)) is None:
            return None
        command = loaded(point)
        if not isinstance(command, click.Command):
            why = f"{point.name} = {point.value} of {GROUP} is not a click command"
            raise SettingError(f"{owner(point)}: {why}")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, each with the first sentence of its help."""
        every = sorted(_every().items())
        room = formatter.width - 6 - max(len(name) for name, _ in every)
        commands = [click.Command(name, help=_help(point)) for name, point in every]
        with formatter.section("Commands"):
            formatter.write_dl([(str(each.name), each.get_short_help_str(room)) for each in commands])


def _every() -> dict[str, EntryPoint]:
    """Return all commands by name."""
    ours = [(name, f"workbench.cli.{module}:{name}") for module, names in _MODULES.items() for name in names]
    return {p.name: p for p in points(GROUP)} | {name: EntryPoint(name, where, GROUP) for name, where in ours}


def _help(point: EntryPoint) -> str:
    """Return a command's help, read from the source of its function, or else the name of its package."""
    functions = (node for node in ast.parse(_source(point.module)).body if isinstance(node, ast.FunctionDef))
    text = next((ast.get_docstring(node) for node in functions if node.name == point.attr), None)
    return text or f"of {owner(point)}"


def _source(module: str) -> str:
    """Return the source of a module without importing it, or "" if there is none."""
    places, names = None, module.split(".")
    for end in range(1, len(names) + 1):
        spec = PathFinder.find_spec(".".join(names[:end]), places)
        if spec is None:
            return ""
        places = spec.submodule_search_locations
    return Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Experiments with straggler-tolerant gradient aggregation."""
