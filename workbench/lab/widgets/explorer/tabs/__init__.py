"""Tabs of the explorer, one file each."""
