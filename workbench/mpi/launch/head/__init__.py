"""Start of ranks, on the machine that keeps a pool alive."""
