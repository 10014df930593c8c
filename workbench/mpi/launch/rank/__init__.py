"""Inside a rank."""
