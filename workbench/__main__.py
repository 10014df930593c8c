"""The command `workbench`, also as `python -m workbench`; light, so that it is there before all else is loaded."""

import signal
import sys


def main() -> None:
    """Run the command line. Ctrl-C ends it with a sentence, be it while modules are loaded or processes are ended."""
    try:
        from workbench.cli.main import main as command

        command()
    except KeyboardInterrupt:
        print("workbench: interrupted", file=sys.stderr)
        sys.exit(130)
    finally:  # what follows ends the ranks that were started, which takes seconds and should be done
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    if not sys.flags.safe_path:  # the current folder comes first; none of its files may hide another module
        sys.path.append(sys.path.pop(0))
    main()
