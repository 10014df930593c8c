"""Results of a run: its rounds and its folder."""
