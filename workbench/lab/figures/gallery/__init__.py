"""Every figure: one file, with a function of the file's name that draws it."""
