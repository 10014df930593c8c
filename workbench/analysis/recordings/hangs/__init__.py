"""Hangs of training jobs, from the flight recorder dumps of their ranks.

`dumps` reads the files. `waits` finds the operations that have not ended, and which rank waits for which. `hang` states
the cause.
"""
