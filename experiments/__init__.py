"""What the documentation claims, measured: the linear scaling paper's tables and figures, the law
of best noise, the default on public sets, language models, pictures, networks and tables.

Not part of what users install: `python -m experiments`, in a clone of the repository.
"""
