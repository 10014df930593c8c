"""Hangs of training jobs, from the flight recorder dumps of their ranks.

`dumps` reads the files, `waits` finds which operations have not ended and who waits for whom, `hang` states the cause.
"""
