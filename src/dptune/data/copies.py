"""Whether one table holds rows copied from another, in any order and any type of number; and the
hashes of rows that this takes.

Two tables drawn from one source share rows by chance too: with few columns of few values, most of
them. What chance gives is read off a table itself. Take one of its rows away: is exactly one such
row left, or none? (Rows that are there more often are common, and tell nothing.) If the rows of the
other table find exactly one so much more often that luck explains it less than once in 10,000,
some of them are copies. Both tables are asked in turn, because a few rows of a large table show
nothing when all of a small one are among them.

Of very many private rows a share is compared, chosen by the hash: of a row and its copies all or
none, so that what chance gives is the same in the share.

Hashes use a new key each time and stay in memory. The answer is computed from private rows: only
their holder sees a refusal, and no output contains it.
"""

import secrets
from collections.abc import Iterable
from hashlib import shake_256
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln, logsumexp

LUCK = 1e-4
_AT_ONCE = 1 << 22  # numbers
_MOST_ROWS = 1 << 22  # whose hashes are in memory at a time, give or take a few


def has_copies(of: Iterable[NDArray[Any]], among: Iterable[NDArray[Any]], *, rows: int = 0) -> bool:
    """Whether the rows `among`, one table or several, hold copies of the private rows `of`, beyond
    what chance explains; `rows` is how many private ones there are, if these are many.

    Numbers are compared as float32.
    """
    key = secrets.token_bytes(32)
    one_in = np.uint64(1 << max(0, (rows - 1) // _MOST_ROWS).bit_length())
    theirs, others = (
        np.concatenate([_some(row_hashes(table, key), one_in) for table in tables])
        for tables in (of, among)
    )
    if not len(others):
        return False
    distinct, numbers = np.unique(np.concatenate([theirs, others]), return_inverse=True)
    private = np.bincount(numbers[: len(theirs)], minlength=len(distinct))
    other = np.bincount(numbers[len(theirs) :], minlength=len(distinct))
    if np.array_equal(private, other):  # the same table in another order, however common its rows
        return True
    return min(_luck(other > 0, private), _luck(private == 1, other)) < LUCK


def _some(hashes: NDArray[np.uint64], one_in: np.uint64) -> NDArray[np.uint64]:
    return hashes if one_in == 1 else hashes[hashes % one_in == 0]


def row_hashes(table: NDArray[Any], key: bytes) -> NDArray[np.uint64]:
    """One number a row, of its numbers as float32. Different rows agree with probability 2^-64,
    whatever they are: the upper halves of two sums of 32-bit words times 64-bit numbers drawn from
    the secret `key` (multilinear hashing)."""
    factors = np.frombuffer(shake_256(key).digest(16 * table.shape[1]), np.uint64).reshape(-1, 2)
    hashes = np.empty(len(table), np.uint64)
    step = max(1, _AT_ONCE // table.shape[1])
    for start in range(0, len(table), step):
        with np.errstate(over="ignore"):  # too large for float32: all the same to us
            # Plus zero, because there are two zeros.
            numbers = table[start : start + step].astype(np.float32) + np.float32(0)
        numbers[np.isnan(numbers)] = np.nan  # a gap, of which there are many kinds
        sums = numbers.view(np.uint32).astype(np.uint64) @ factors
        hashes[start : start + step] = (sums[:, 0] >> 32 << 32) | (sums[:, 1] >> 32)
    return hashes


def _luck(asked: NDArray[np.bool_], counts: NDArray[np.int64]) -> float:
    """How likely at least as many of the distinct rows `asked` occur exactly once in the table of
    these `counts`, if they are drawn like its own."""
    once, missing = int((asked & (counts == 1)).sum()), int((asked & (counts == 0)).sum())
    # What the table says of its own rows, from a flat prior; twins come in pairs, so both kinds are
    # counted in pairs.
    twins, alone = 1 + int((counts == 2).sum()), 1 + int((counts == 1).sum()) / 2
    more = np.arange(once, once + missing + 1)
    fewer = once + missing - more
    ways = gammaln(once + missing + 1) - gammaln(more + 1) - gammaln(fewer + 1)
    chances = ways + betaln(twins + more, alone + fewer) - betaln(twins, alone)
    return float(np.exp(logsumexp(chances)))
