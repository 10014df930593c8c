"""Planning: measurement of a cluster, and ranking of schemes on it."""
