"""Data sets that have a name: which files they usually come as, and how those are read."""
