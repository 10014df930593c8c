"""The command `workbench`, also as `python -m workbench`. It handles Ctrl-C even while other modules are loaded."""

import signal
import sys


def main() -> None:
    """Run the command line. Ctrl-C ends it with one sentence, also while modules are loaded or processes are ended."""
    try:
        from workbench.cli.main import main as command

        command()
    except KeyboardInterrupt:
        print("workbench: interrupted", file=sys.stderr)
        sys.exit(130)
    finally:  # the exit handlers end the started ranks, which takes seconds and must not be interrupted
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    # move the current folder to the end of the path, so that its files hide no modules
    if not sys.flags.safe_path:
        sys.path.append(sys.path.pop(0))
    main()
