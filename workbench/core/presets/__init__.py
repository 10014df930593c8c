"""The papers' own settings."""
