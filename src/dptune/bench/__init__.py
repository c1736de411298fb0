"""Measurements: what dptune claims about speed and accuracy, taken anew on this machine."""
