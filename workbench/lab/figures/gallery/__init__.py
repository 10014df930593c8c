"""All figures: one file each, with a function of the file's name that draws it."""
