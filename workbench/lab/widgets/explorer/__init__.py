"""Explorer: choose settings, forecast, run, compare."""
