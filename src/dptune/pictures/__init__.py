"""Pictures with labels: folders, files and known data sets, read one picture at a time."""
