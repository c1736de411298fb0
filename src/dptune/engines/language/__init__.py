"""Language models of the package transformers, as modules whose rows are token numbers."""
