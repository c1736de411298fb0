"""Ranges, categories and classes that nobody declared: for which columns they are bought, what they
may cost, and why not, in one sentence each.

Decided before anything is paid, by public numbers alone: rows, columns and the budget. A column
that asks for it ("paid") is never left out: where it cannot be bought, the study is refused. A
number that declares no range is bought where enough rows stand against the noise, else taken as it
is. Of rows that nobody called a table, ranges are bought for curves over them, or else rough ones,
to see whether columns are of one size; so are rough ones of a table without any range.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.special import ndtri

from dptune import accounting, rounding
from dptune.columns.kinds import PAID, Category, Date, Number
from dptune.columns.marks import COARSE
from dptune.columns.private_ranges import GOOD, most_noise, noise_for, rows_needed
from dptune.data.classes import PUBLIC, WITH_CLASSES
from dptune.data.rows import MOST_COLUMNS_IN_DOUBT, MOST_COLUMNS_OF_A_TABLE, DataFacts
from dptune.errors import InvalidInput
from dptune.prior import signal
from dptune.study.config import AUTO, MOST_SHARE, Config
from dptune.study.curves import against as against_curves
from dptune.study.curves import planned

# As payments are labelled.
RANGES, CATEGORIES, CLASSES = "ranges of columns", "names of categories", "names of classes"
ALONE = "a sealed search is priced well only where it is alone"
TAKEN_FOR_FEATURES = (
    f"more than {MOST_COLUMNS_OF_A_TABLE} columns are taken for features of one scale"
)
# Of mu^2, where nobody names a share: as little as finds what is in this part of all rows.
_LEAST_SHARE, MOST_SHARE_UNASKED = 0.005, 0.05
_SEEN, _SEEN_OF_CLASSES = 0.02, 0.05
# At most, for rough ranges of columns that may be of unlike size: without them little is learned
# from rows of which one column hides the others, and columns of one size lose a few tenths.
# Below so much signal for every weight these few tenths are points, and a noisy count of rows (see
# `logarithms`) does as well for less.
_MOST_FOR_SIZES, _LITTLE_SIGNAL, _MOST_FOR_LITTLE = 0.2, 3.0, 0.02
# Names that are in fewer than this part of all rows may stay hidden; were it more, buying is vain.
_MOST_HIDDEN = 0.25


@dataclass(frozen=True)
class Purchase:
    """Columns for which something is bought, and for which share of mu^2; `against` says why the
    columns in `left` are not among them, or why ranges are so `rough` that they bear no curves.
    `declined`: they could be, and are not wanted."""

    columns: tuple[str, ...] = ()
    share: float = 0.0
    left: tuple[str, ...] = ()
    against: str = ""
    rough: bool = False
    declined: bool = False


def ranges_bought(config: Config, facts: DataFacts) -> Purchase:
    """Of numbers without a declared range."""
    asked = config.preparation.range_share
    named = None if isinstance(asked, str) else asked
    paid, free = _numbers(facts, PAID), _numbers(facts, None)
    everything = tuple(name for name in _kept(facts) if name in {*paid, *free})
    known = config.preparation.ranges or config.preparation.standardize
    unasked = facts.as_given and asked in (AUTO, 0)
    if not everything or known:
        _must_be_unasked(range_share=asked)
        return Purchase()
    if unasked and not _bends(config, facts, everything):
        return _rough(config, facts, everything)

    def share_of(columns: Sequence[str]) -> float:
        return named or _usual(len(columns), noise_for(facts.count, _SEEN), config)

    def for_sizes(columns: Sequence[str]) -> bool:
        return bool(named) and not _bends(config, facts, columns)

    def against(columns: Sequence[str]) -> str:
        if config.search.sealing is not None and asked in (AUTO, 0):
            return ALONE
        if len(free) > MOST_COLUMNS_OF_A_TABLE and columns != paid and not named:
            return TAKEN_FOR_FEATURES
        noise = noise_of(config, len(columns), share_of(columns))
        needed = rows_needed(noise, for_sizes=for_sizes(columns))
        return _too_many(columns, facts) if facts.count < needed else ""

    if asked == 0:
        _must_be_free(paid, "range", "range_share is 0")
        why = against(free)
        return Purchase(left=free, against=why or "as asked", declined=not why)
    why = against(everything)
    if not why:
        return Purchase(everything, share_of(everything))
    firmly = paid or everything
    if named and (why_not := against(firmly)):
        enough = enough_for_ranges(config, facts, len(firmly), for_sizes=for_sizes(firmly))
        larger = ""
        if enough is not None:
            why_not = f"too little for {columns_in_words(firmly)} of {facts.count:,} rows"
            larger = f"make it {enough:g} or more, "
        raise InvalidInput(
            f"range_share is {named:g}, and ranges are not bought ({why_not}). Nothing was spent; "
            f"{larger}leave it out, or declare ranges."
        )
    if facts.as_given or not declared_with_a_range(facts):
        roughly = _rough(config, facts, everything, why)
        if facts.as_given or roughly.columns:
            return roughly
    if asked == AUTO and paid and (why_paid := against(paid)):
        _must_be_free(paid, "range", why_paid)
    return Purchase(paid, share_of(paid) if paid else 0.0, left=free, against=why)


def _rough(
    config: Config, facts: DataFacts, columns: tuple[str, ...], against: str = ""
) -> Purchase:
    """Ranges that only tell sizes, good ones by fine marks if these are cheap, else by coarse ones;
    nothing where even rough ones are too dear, or nobody could use them. So many columns that they
    are rather features, which lose by it, must be told from others at little expense and without
    fault."""
    asked, features = config.preparation, len(columns) > MOST_COLUMNS_OF_A_TABLE
    least = enough_for_ranges(config, facts, len(columns), for_sizes=not features)
    most = MOST_SHARE_UNASKED if features else _MOST_FOR_SIZES
    told = signal(config.budget.mu, facts.count, facts.columns, facts.outputs)
    if told < _LITTLE_SIGNAL and facts.has_classes and asked.logarithm_share != 0:
        most = _MOST_FOR_LITTLE
    wanted = asked.range_share == AUTO and asked.curves in (AUTO, 1) and not against_curves(config)
    # One column has no size beside others; of a declared table ranges are used whatever they say.
    useless = len(columns) == 1 if facts.as_given else features
    if not wanted or useless or least is None or least > most:
        return Purchase(against=against)
    good = _share_for(len(columns), most_noise(facts.count), config)
    if good > MOST_SHARE_UNASKED and not features:
        good = _share_for(len(columns), noise_for(facts.count, GOOD, COARSE), config)
    share = min(max(rounding.share(good), _LEAST_SHARE), most)
    return Purchase(columns, share, against=against, rough=True)


def enough_for_ranges(
    config: Config, facts: DataFacts, columns: int, *, for_sizes: bool
) -> float | None:
    """Of mu^2, for ranges of so many columns that are of use; None where there is no such share, or
    so many columns are never asked for theirs."""
    noise = most_noise(facts.count, for_sizes=for_sizes)
    share = rounding.share(_share_for(columns, noise, config))
    possible = columns <= MOST_COLUMNS_IN_DOUBT and config.search.sealing is None
    return share if possible and share <= MOST_SHARE else None


def what_would_buy(config: Config, facts: DataFacts, columns: Sequence[str]) -> str:
    """What to ask for to have rough ranges of these; nothing where no share is enough."""
    enough = enough_for_ranges(config, facts, len(columns), for_sizes=True)
    return f"range_share = {enough} and curves = 1" if enough else ""


def _bends(config: Config, facts: DataFacts, columns: Sequence[str]) -> bool:
    """Whether some of them may be, once their ranges are bought."""
    return planned(config, facts, columns, bought=True).room > 0


def categories_bought(config: Config, facts: DataFacts) -> Purchase:
    """Of categories whose names are secret."""
    asked = config.preparation.category_share
    paid = tuple(
        name
        for name, column in _kept(facts).items()
        if isinstance(column, Category) and column.paid
    )
    if not paid:
        _must_be_unasked(category_share=asked)
        return Purchase()
    if asked == 0 or config.search.sealing is not None:
        _must_be_free(paid, "list of names", ALONE if asked else "category_share is 0")
    if not isinstance(asked, str):
        return Purchase(paid, asked)
    noise = _noise_to_see(_SEEN * facts.count, _deviations(config, len(paid)))
    share = _usual(len(paid), noise, config)
    if _least_rows_of(config, len(paid), share) > _MOST_HIDDEN * facts.count:
        _must_be_free(paid, "list of names", _too_many(paid, facts))
    return Purchase(paid, share)


def classes_bought(config: Config, facts: DataFacts) -> float:
    """The share of mu^2 for names of classes that are secret; 0 where none are."""
    asked = config.preparation.class_share
    if not facts.secret_classes:
        if asked not in (AUTO, 0):
            raise InvalidInput(
                f"class_share is {asked}, and the classes are declared or public; leave it out."
            )
        return 0.0
    noise = _noise_to_see(_SEEN_OF_CLASSES * facts.count, _deviations(config, 1))
    share = _usual(1, noise, config)
    named = asked if isinstance(asked, float) else share
    against = "class_share is 0" if named == 0 else ""
    if named and _least_rows_of(config, 1, named) > _MOST_HIDDEN * facts.count:
        against = f"{facts.count:,} rows are too few at this budget"
    if "class_weights" in config.recipe:
        against = "the recipe weighs classes by their place among all of them"
    if not (config.engine.traits.takes_any_classes or config.engine.traits.pretrained):
        against = f"the engine {config.engine.name} must know how many classes there are"
    if config.reuse:
        against = "a search is reused for the same classes"
    if config.search.sealing is not None:
        against = ALONE
    if against:
        raise InvalidInput(
            "the names of classes are not declared, and a name that one row has, such as a "
            f"mistyped one, would be published; they are not bought ({against}). Nothing was "
            f'spent; declare all classes {WITH_CLASSES}, or say "{PUBLIC}" in their place if those '
            "that occur are nobody's secret."
        )
    return named


def rows_of_a_class(config: Config, facts: DataFacts) -> int:
    """How many rows a class must have, about, so that its name is bought."""
    return math.ceil(_least_rows_of(config, 1, classes_bought(config, facts)))


def _deviations(config: Config, counts: int) -> float:
    """Of the noise on each of so many counts, up to the threshold that hides the name of a row."""
    return -float(ndtri(accounting.default_slack(config.budget.delta) / counts))


def _noise_to_see(rows: float, deviations: float) -> float:
    """On the count of a name that so many rows have, so that it reaches the threshold."""
    return max(rows - 1, 1e-9) / deviations


def _least_rows_of(config: Config, counts: int, share: float) -> float:
    """Names that so many rows have are bought as often as not."""
    return 1 + _deviations(config, counts) * noise_of(config, counts, share)


def noise_of(config: Config, counts: int, share: float) -> float:
    """On so many counts for this share of the budget."""
    return math.sqrt(counts / (share * config.budget.mu_squared()))


def bought_in_words(
    config: Config, facts: DataFacts, useless: Mapping[str, str], ranged: str
) -> list[str]:
    """What is bought; nothing where all is declared. Of what turned out to be `useless` it is said
    why, by label, and of other ranges what columns have them."""
    names, ranges = categories_bought(config, facts), ranges_bought(config, facts)
    said = (
        (CATEGORIES, "told apart by private names of categories in", names, ""),
        (RANGES, "scaled by private ranges of", ranges, ranged),
    )
    return [
        f"{'not ' * (label in useless)}{done} {columns_in_words(bought.columns)}"
        f"{useless.get(label, which)}: {100 * bought.share:g} % of the budget"
        for label, done, bought, which in said
        if bought.columns
    ]


def left_in_words(config: Config, facts: DataFacts) -> list[str]:
    """What is not, and why."""
    ranges = ranges_bought(config, facts)
    if not ranges.left:
        return []
    left, hint = columns_in_words(ranges.left), ""
    table = len(ranges.left) <= MOST_COLUMNS_OF_A_TABLE and not declared_with_a_range(facts)
    if table and not ranges.declined:
        enough = what_would_buy(config, facts, ranges.left)
        hint = f" ({enough} would buy them)" if enough else ""
    return [f"without a range in {left}, not bought: {ranges.against}{hint}"]


def _usual(counts: int, noise: float, config: Config) -> float:
    """The share for which so many counts have this noise, within reason."""
    wanted = max(_share_for(counts, noise, config), _LEAST_SHARE)
    return rounding.share(min(wanted, MOST_SHARE_UNASKED))


def _share_for(counts: int, noise: float, config: Config) -> float:
    return counts / noise**2 / config.budget.mu_squared()


def _kept(facts: DataFacts) -> dict[str, object]:
    columns = facts.named
    return {} if columns is None else {name: columns.declared[name] for name in columns.kept}


def _numbers(facts: DataFacts, asked: str | None) -> tuple[str, ...]:
    return tuple(
        name
        for name, column in _kept(facts).items()
        if isinstance(column, Number) and column.range == asked
    )


def numbers_without_range(facts: DataFacts) -> tuple[str, ...]:
    """That declare none, and do not ask for one."""
    return _numbers(facts, None)


def declared_with_a_range(facts: DataFacts) -> tuple[str, ...]:
    """Numbers and dates."""
    return tuple(
        name
        for name, column in _kept(facts).items()
        if isinstance(column, Date) or (isinstance(column, Number) and column.pair is not None)
    )


def columns_in_words(names: Sequence[str]) -> str:
    """How many."""
    return "1 column" if len(names) == 1 else f"{len(names):,} columns"


def _too_many(names: Sequence[str], facts: DataFacts) -> str:
    if len(names) == 1:
        return f"{facts.count:,} rows are too few at this budget"
    return f"{columns_in_words(names)} are too many for {facts.count:,} rows at this budget"


def _must_be_unasked(**named: float | str) -> None:
    ((name, asked),) = named.items()
    if asked not in (AUTO, 0):
        raise InvalidInput(
            f"{name} is {asked}, and no column is declared that something could be bought for "
            f"(arrays may have up to {MOST_COLUMNS_IN_DOUBT:,} of them); leave it out."
        )


def _must_be_free(paid: Sequence[str], what: str, why: str) -> None:
    if paid:
        raise InvalidInput(
            f"{', '.join(paid)}: a {what} is asked to be paid for, and it is not bought ({why}). "
            f"Nothing was spent; declare the {what}, drop the column, or change what is against it."
        )
