"""The explorer's tabs: one file each."""
