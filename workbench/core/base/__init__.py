"""General helpers that do not depend on the domain: settings, text, files, errors."""
