"""Known data sets: their usual files, and how to read them."""
