"""General helpers without knowledge of schemes or runs: settings, text, files, errors."""
