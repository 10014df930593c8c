"""What knows nothing of the subject: settings, text, files, errors."""
