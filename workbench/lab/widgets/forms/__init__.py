"""Forms made from the fields of settings."""
