"""The version of the package, for all that writes it down."""

__version__ = "1.0.0"
