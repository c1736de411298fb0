"""What is told about a finished run: a picture, a model card."""
