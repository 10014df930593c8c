"""Starting ranks, on every machine that has some."""
