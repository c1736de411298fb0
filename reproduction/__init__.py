"""The linear scaling paper's tables and figures, and the map of best noise, measured with dptune.

Not part of what users install: `python -m reproduction`, in a clone of the repository.
"""
