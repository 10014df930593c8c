"""Starting, watching and ending the processes of real runs."""
