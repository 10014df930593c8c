"""Table of runs, and its exports."""
