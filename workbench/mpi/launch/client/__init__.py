"""Client side of real runs."""
