"""The explorer: choose, look ahead, run, compare."""
