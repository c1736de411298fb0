"""Curves over the numbers and dates of a table, in place of straight lines: of which degree, and
why not, in one sentence.

They cost no privacy: what they make of a row depends on that row and on its columns' ranges alone,
and their degree on public numbers, before anything is paid. But every degree is one more feature a
column, and every feature has weights that carry noise. Measurements: docs/law.md.
"""

from dataclasses import dataclass, replace

from dptune.columns.encoding import Encoding
from dptune.columns.kinds import Date, Number
from dptune.data.rows import DataFacts
from dptune.errors import InvalidInput
from dptune.prior import signal
from dptune.study.config import AUTO, Config
from dptune.study.paid_columns import columns_in_words, ranges_bought

# The highest degree that nobody asked for; how much signal, and how many rows, there must be for
# every weight of the model then.
_HIGHEST, _LEAST_SIGNAL, _LEAST_ROWS = 6, 2.0, 40


@dataclass(frozen=True)
class Curves:
    """Of one degree, 1 for straight lines, over the columns of these names."""

    degree: int
    columns: tuple[str, ...]

    def seen(self, facts: DataFacts) -> DataFacts:
        """What a model sees of the rows; the same for facts that it was told of already."""
        if facts.named is None:
            return facts
        bent = Encoding(facts.named).with_curves(self.columns, self.degree)
        return replace(facts, shape=(bent.width,))


def drawn(config: Config, facts: DataFacts) -> Curves:
    """Over all columns that have a range or get one. Where it was left to us, of as high a degree
    as public numbers allow."""
    columns, asked = _bendable(config, facts), config.preparation.curves
    if not isinstance(asked, int):
        return _as_high_as_rows_bear(config, facts, columns)
    if asked > 1 and not columns:
        raise InvalidInput(
            f"curves of degree {asked} are asked for, and no number or date has a range over which "
            "to draw them; declare columns with their ranges, or leave curves out."
        )
    return Curves(asked, columns)


def in_words(config: Config, facts: DataFacts) -> list[str]:
    """What is drawn; nothing where no column could be bent."""
    found = drawn(config, facts)
    if not found.columns:
        return []
    where = columns_in_words(found.columns)
    if found.degree > 1:
        return [f"bent to curves of degree {found.degree} in {where}: free"]
    usual = replace(config, preparation=replace(config.preparation, curves=AUTO))
    as_asked = drawn(usual, facts).degree > 1
    why = ", as asked" if as_asked else f": {_against(config) or _too_many(facts)}"
    return [f"not bent to curves in {where}{why}"]


def _bendable(config: Config, facts: DataFacts) -> tuple[str, ...]:
    if facts.named is None:
        return ()
    bought = ranges_bought(config, facts).columns
    return tuple(
        name
        for name in facts.named.kept
        if name in bought
        or isinstance(column := facts.named.declared[name], Date)
        or (isinstance(column, Number) and column.pair is not None)
    )


def _as_high_as_rows_bear(config: Config, facts: DataFacts, columns: tuple[str, ...]) -> Curves:
    if columns and not _against(config):
        for degree in range(_HIGHEST, 1, -1):
            found = Curves(degree, columns)
            weights = found.seen(facts).columns * facts.outputs
            told = signal(config.budget.mu, facts.count, weights, 1)
            if told >= _LEAST_SIGNAL and facts.count >= _LEAST_ROWS * weights:
                return found
    return Curves(1, columns)


def _against(config: Config) -> str:
    """Why not, whatever the rows."""
    if not config.engine.linear_in_rows:
        return f"nothing is known of what they do for a {config.engine.trains}"
    return "" if config.preparation.unit_rows else "rows are not scaled to unit length"


def _too_many(facts: DataFacts) -> str:
    return f"they would be too many features for {facts.count:,} rows at this budget"
