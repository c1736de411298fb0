"""Stand-in: H5's."""
def rows_at_once(attempt, device, most):
    return min(64, most)
