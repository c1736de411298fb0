"""The noise of sums as it is drawn: what its last bits tell, and what it costs."""
