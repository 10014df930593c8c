"""The version of the package, for all that writes it down."""

__version__ = "2.0.0"
