"""The tables and figures of the linear scaling paper, grouped by what they are about."""
