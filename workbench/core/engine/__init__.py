"""Two engines answer the same programs."""
