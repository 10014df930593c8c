"""A look into the ranks of a real run from a notebook."""
