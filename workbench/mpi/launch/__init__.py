"""Start, watch and end the processes of real runs."""
