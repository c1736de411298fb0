"""The public sets behind the figures, each a file of numbers: benchmarks/SETS.md lists them."""
