"""Real runs on engines of ipyparallel, whose ranks can be inspected from a notebook."""
