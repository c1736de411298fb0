"""Tables of features: usual ones, and the worst there are."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

# Zeros, denormals and the largest numbers among them.
FINITE = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, 5e-324, -1e-310, 1.7e308, -1.7e308]),
)
TABLES = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=FINITE)


def a_table(rows: int = 20, columns: int = 3, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(2.0, 3.0, (rows, columns))
