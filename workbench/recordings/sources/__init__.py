"""Where recordings come from: a file each, with a `SOURCE`."""
