"""Four real tables, from CSV to a private model, beside what people prepare by hand."""
