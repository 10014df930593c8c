"""What came of a run: its rounds, its folder, the table of all runs."""
