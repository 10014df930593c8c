"""Starting ranks, on the machine of whoever asks."""
