"""Files of a wheel besides the packages: notebooks, cluster files and examples. Called by hatchling."""

from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PATTERNS = ("notebooks/**/*.ipynb", "clusters/**/*", "examples/*")


class WheelFiles(BuildHookInterface):
    """Add the files where `workbench.lab.notebooks.shipped` searches. An editable installation has the clone itself."""

    def initialize(self, version, build_data):
        if version == "standard":
            build_data["force_include"].update(carried(Path(self.root)))


def carried(root):
    """Return the files to add: path in the clone -> path in the wheel."""
    files = [file for pattern in PATTERNS for file in sorted(root.glob(pattern))]
    names = [file.relative_to(root) for file in files if file.is_file()]
    shown = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    return {str(root / name): f"workbench/shipped/{name.as_posix()}" for name in shown}
