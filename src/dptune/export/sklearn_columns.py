"""Declared columns as a ColumnTransformer of scikit-learn's own classes and numpy functions.

It is fitted on made-up rows that hold only the ends of every range: it learns nothing but declared
facts and private estimates.
"""

from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebvander
from numpy.polynomial.polynomial import polyval
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import TruncatedSVD
from sklearn.frozen import FrozenEstimator
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    SplineTransformer,
)

from dptune.columns import Boolean, Category, Date, Encoding, Number, Stretch
from dptune.columns.dates import PARTS, hours_of
from dptune.columns.kinds import LARGEST, Pair
from dptune.columns.values import GAPS
from dptune.errors import InvalidInput, MissingExtra
from dptune.export.column_facts import Names, features_of_gap, names_of, truths_of
from dptune.export.inputs import in_words
from dptune.export.steps import Numbers

_NO_DATE = float(np.iinfo(np.int64).min)  # numpy's code for a missing date
# The unit of time of each part, and the index of the part on 1970-01-01 (a Thursday in January).
_UNITS = {"weekday": ("D", 3), "month": ("M", 0), "hour": ("h", 0)}
_NONE = "None"  # numpy writes a missing text of a frame as None or nan
_TAKES: dict[type, tuple[str, str]] = {
    Number: ("a number", "NaN"),
    Boolean: ("true or false, yes or no, t or f, y or n, 1 or 0", "NaN, None or an empty text"),
    Date: ("a date, or a text such as 2025-12-31 or 2025-12-31T18:30:00", "NaT, None or ''"),
    Category: ("a text or a number", "NaN, None or an empty text"),
}


def inputs_in_words(encoding: Encoding) -> dict[str, str]:
    """Describe what each column of a frame must hold."""
    return in_words(encoding, _TAKES)


def encoded_columns(encoding: Encoding, named: bool) -> ColumnTransformer:
    """Make the transformer from a frame, whose columns are found by name, or from a matrix."""
    kept = encoding.columns.kept
    columns = ColumnTransformer(
        [
            # The name of a step must not contain two underscores, nor be that of a parameter.
            (
                f"{number}: {name.replace('__', '_')}",
                _column(encoding, name),
                [name if named else number],
            )
            for number, name in enumerate(kept)
        ],
        sparse_threshold=0,
    )
    ends = {name: _ends(encoding, name) for name in kept}
    if not named:
        return columns.fit(np.array(list(ends.values())).T)
    try:
        import pandas as pd
    except ImportError as problem:
        raise MissingExtra(
            "A scikit-learn pipeline of named columns takes frames, and is made with one: pip "
            "install pandas"
        ) from problem
    return columns.fit(pd.DataFrame(ends))


def _ends(encoding: Encoding, name: str) -> list[Any]:
    """Two made-up values from which scalers learn the range."""
    match encoding.columns.declared[name]:
        case Number() as column:
            return list(column.pair or encoding.ranges.get(name) or (0.0, 1.0))
        case Date() as column:
            return [np.datetime64(int(hour), "h").astype("M8[s]") for hour in column.pair]
        case Boolean():
            return [0.0, 1.0]
    return ["", ""]


def _column(encoding: Encoding, name: str) -> Any:
    gap, degree = features_of_gap(encoding, name), encoding.degrees.get(name, 1)
    match encoding.columns.declared[name]:
        case Number() as column:
            pair, stretch = column.pair or encoding.ranges.get(name), encoding.stretches.get(name)
            return _number(pair, stretch, gap, column.indicator, degree)
        case Boolean():
            return _boolean(truths_of(encoding, name, empty=_NONE.lower()))
        case Date() as column:
            return _date(column, degree)
        case Category():
            return _category(names_of(encoding, name, empty=(_NONE,)))
    raise AssertionError  # none is dropped


def _as(kind: str) -> FunctionTransformer:
    return FunctionTransformer(np.asarray, kw_args={"dtype": kind})


def _trimmed() -> list[FunctionTransformer]:
    return [_as("str"), FunctionTransformer(np.char.strip)]


def _filled(value: float | str, gap: float | str = np.nan) -> SimpleImputer:
    return SimpleImputer(
        missing_values=gap, strategy="constant", fill_value=value, keep_empty_features=True
    )


def _polynomials(degree: int) -> list[FunctionTransformer]:
    """Numpy's Chebyshev polynomials of degree 1 to `degree`, without the constant."""
    if degree == 1:
        return []
    return [
        FunctionTransformer(chebvander, kw_args={"deg": degree}),
        FunctionTransformer(np.squeeze, kw_args={"axis": 1}),
        FunctionTransformer(np.delete, kw_args={"obj": 0, "axis": 1}),
    ]


def _clipped(low: float, high: float) -> FunctionTransformer:
    return FunctionTransformer(np.clip, kw_args={"a_min": low, "a_max": high})


def _stretched(stretch: Stretch) -> list[FunctionTransformer]:
    beside = {"c": [-stretch.center / stretch.scale, 1 / stretch.scale]}
    return [FunctionTransformer(polyval, kw_args=beside), FunctionTransformer(np.arcsinh)]


def _number(
    pair: Pair | None, stretch: Stretch | None, gap: Numbers | None, indicator: bool, degree: int
) -> Any:
    finite = [_as("float64"), _clipped(-LARGEST, LARGEST)]
    steps = [*finite, _as("float32"), _as("float64")]  # rounded as codes are
    if pair is not None:
        steps += [_clipped(*pair), *(_stretched(stretch) if stretch else []), MinMaxScaler((-1, 1))]
    if gap is not None:
        steps.append(_filled(gap[0]))
    value = make_pipeline(*steps, *_polynomials(degree))
    if not indicator:
        return value
    missing = make_pipeline(*finite, MissingIndicator(features="all"))
    return FeatureUnion([("value", value), ("missing", missing)])


def _moments() -> Any:
    """Dates and texts of dates as numpy's datetime64, whose only missing value is NaT."""
    upper = [FunctionTransformer(np.char.upper), _as("object")]
    gaps = [_filled("NaT", word.upper()) for word in (*GAPS, _NONE)]
    return make_pipeline(*_trimmed(), *upper, *gaps, _as("datetime64[s]"))


def _date(column: Date, degree: int) -> Any:
    # The hours of a missing value: of its fill, or the middle, which becomes 0; NaN is refused.
    hours = sum(column.pair) / 2 if column.indicator else np.nan
    if column.fill is not None:
        hours = hours_of(column.fill)
    value = [_as("datetime64[h]"), _as("float64"), _filled(hours, _NO_DATE)]
    within = [MinMaxScaler((-1, 1), clip=True), *_polynomials(degree)]
    parts = [("value", make_pipeline(*value, *within))]
    parts += [(part, _part(part, column)) for part in column.parts]
    if column.indicator:
        missing = MissingIndicator(missing_values=_NO_DATE, features="all")
        parts.append(("missing", make_pipeline(_as("datetime64[h]"), _as("float64"), missing)))
    return make_pipeline(_moments(), FeatureUnion(parts))


def _part(part: str, column: Date) -> Any:
    """One-hot encode a part of dates: periodic splines of degree 0."""
    unit, first = _UNITS[part]
    gap = np.nan
    if column.fill is not None:
        hours = np.datetime64(hours_of(column.fill), "h")
        gap = float(hours.astype(f"M8[{unit}]").astype(np.int64))
    options = {} if column.fill is not None else {"handle_missing": "zeros"}
    count = len(PARTS[part])
    knots = np.arange(count + 1.0)[:, None] - first
    try:
        repeated = SplineTransformer(degree=0, knots=knots, extrapolation="periodic", **options)
    except TypeError:
        raise InvalidInput(
            "dates with parts and without a fill need scikit-learn 1.8 or later; install that, or "
            "declare a fill."
        ) from None
    steps = [_as(f"datetime64[{unit}]"), _as("float64"), _filled(gap, _NO_DATE), repeated]
    return make_pipeline(*steps)


def _boolean(names: Names) -> Any:
    # Any other text becomes NaN, which the check refuses: no message shows the text.
    lower, check = FunctionTransformer(np.char.lower), FunctionTransformer(validate=True)
    ordinal, *features = _features_of(names, unknown=np.nan)
    return make_pipeline(*_trimmed(), lower, ordinal, check, *features)


def _category(names: Names) -> Any:
    return make_pipeline(*_trimmed(), *_features_of(names, unknown=len(names.texts)))


def _features_of(names: Names, unknown: float) -> list[Any]:
    ordinal = OrdinalEncoder(
        categories=[np.array(names.texts, dtype=object)],
        handle_unknown="use_encoded_value",
        unknown_value=unknown,
    )
    places = OneHotEncoder(categories=[np.arange(float(names.features.shape[0]))])
    features = TruncatedSVD(names.features.shape[1])
    features.components_ = names.features.T.tocsr()
    return [ordinal, places, FrozenEstimator(features)]
