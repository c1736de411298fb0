"""Private rows are not taken for test or public rows; what chance makes alike is no copy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dptune.data import Data, copies
from dptune.data.copies import has_copies
from dptune.errors import InvalidInput

# Fixed draws: what is found depends on nothing but the key, and so by luck below 1e-12.
_RNG = np.random.default_rng(0)
PRIVATE = _RNG.normal(size=(1000, 4))
OTHER = _RNG.normal(size=(1000, 4))
BITS = _RNG.integers(0, 2, (6000, 5))  # 32 different rows in all
CODES = _RNG.integers(0, 3000, (4000, 1))  # many a row has a twin, or two, or none


def changed(rows: Any) -> Any:
    return np.concatenate([rows[:-1], rows[-1:] + 1])


COPIES: dict[str, tuple[Any, Any]] = {
    "reordered": (PRIVATE, PRIVATE[::-1]),
    "a few of them": (PRIVATE, PRIVATE[100:130]),
    "one row changed": (PRIVATE, changed(PRIVATE)),
    "rounded to float32": (PRIVATE, PRIVATE[::-1].astype(np.float32)),
    "numbers of another type": (np.arange(40)[:, None], np.arange(40.0, 0, -1)[:, None]),
    "the other zero": (np.diag(np.arange(30)), -np.diag(np.arange(0.0, -30, -1))),
    "among many others": (PRIVATE, np.concatenate([OTHER, PRIVATE[:30]])),
    "all of a small table among many others": (PRIVATE[:30], np.concatenate([OTHER, PRIVATE])),
    "each twice": (PRIVATE, np.concatenate([PRIVATE, PRIVATE])),
    "of common rows, reordered": (BITS, BITS[::-1]),
    "where half of the rows have a twin": (CODES, CODES[:200]),
    "a tiny table, reordered": (PRIVATE[:3], PRIVATE[2::-1]),
    "too large for float32": (PRIVATE * 1e300, PRIVATE[::-1] * 1e300),
}

CHANCE: dict[str, tuple[Any, Any]] = {
    "nothing alike": (PRIVATE, OTHER),
    "common rows": (BITS[:5000], BITS[5000:]),
    "common rows and few to test": (BITS[:5990], BITS[5990:]),
    "many twins": (CODES[:3000], CODES[3000:]),
    "many twins, many to test": (CODES[:100], CODES[100:]),
    "every possible row, once each": (BITS, np.unique(BITS, axis=0)),
    "one common row": (
        np.concatenate([PRIVATE, np.zeros((1, 4))]),
        np.concatenate([OTHER[:500], np.zeros((500, 4))]),
    ),
    "common rows of a table that has others": (
        np.concatenate([CODES[:2000] % 200, 10 + CODES[2000:] + 0.5]),
        CODES[:1000] % 200,
    ),
}


@pytest.mark.parametrize("which", ["test", "public"])
@pytest.mark.parametrize("case", COPIES)
def test_private_rows_are_refused_as_test_or_public_rows(case: str, which: str) -> None:
    private, other = COPIES[case]
    labels = np.arange(len(other)) % 2
    with pytest.raises(InvalidInput, match=f"some {which} rows are private rows") as caught:
        # With labels of their own: the features are private all the same.
        Data(private, np.arange(len(private)) % 2, **{which: (other, labels)})  # type: ignore[arg-type]
    assert not any(letter.isdigit() for letter in str(caught.value))


@pytest.mark.parametrize("case", CHANCE)
def test_rows_that_chance_makes_alike_are_accepted(case: str) -> None:
    private, other = CHANCE[case]
    assert Data(
        private, np.arange(len(private)) % 2, test=(other, np.arange(len(other)) % 2)
    ).has_test_rows


def test_an_honest_split_of_a_table_with_a_few_twins_is_accepted() -> None:
    table = np.concatenate([PRIVATE, PRIVATE[:20]])
    draws = np.random.default_rng(1)
    for share in (0.1, 0.25, 0.5, 0.9):
        for _ in range(25):
            dealt = table[draws.permutation(len(table))]
            cut = int(share * len(table))
            assert not has_copies([dealt[cut:]], [dealt[:cut]])


@pytest.mark.parametrize("kinds", [30, 300, 3000, 100_000])
@pytest.mark.parametrize("draw", [lambda u: u, lambda u: u**3], ids=["even", "uneven"])
def test_what_is_called_luck_is_no_rarer_than_it_says(
    kinds: int, draw: Callable[[Any], Any]
) -> None:
    draws = np.random.default_rng(kinds)
    found = []
    for sizes in ((400, 100), (400, 400), (100, 1000)):
        for _ in range(100):
            tables = [(kinds * draw(draws.random(size))).astype(int) for size in sizes]
            private, other = (np.bincount(table, minlength=kinds) for table in tables)
            found += [copies._luck(other > 0, private), copies._luck(private == 1, other)]
    # 600 draws: six below 0.01 on average.
    assert sum(luck < 0.01 for luck in found) < 20 and min(found) > copies.LUCK


def test_copies_are_found_whatever_is_hashed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_AT_ONCE", 10)
    assert has_copies([PRIVATE], [PRIVATE[500:530]])
    assert not has_copies([PRIVATE], [OTHER])


def test_rows_that_differ_in_one_bit_are_different() -> None:
    signs = np.array([[1 - 2 * (row >> bit & 1) for bit in range(16)] for row in range(1 << 16)])
    assert len(np.unique(copies.row_hashes(signs, b"any key"))) == 1 << 16


def test_trials_are_not_compared_on_some_of_the_test_rows() -> None:
    labels = np.arange(1000) % 2
    data = Data(PRIVATE, labels, test=(OTHER, labels), public=(OTHER[300:400], labels[:100]))
    with pytest.raises(InvalidInput, match="some public rows are test rows"):
        data.check_public_rows()
