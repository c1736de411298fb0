"""Export a trained model as a pipeline of scikit-learn's own classes, which needs no dptune.

Nothing is fitted here: every step gets the numbers of the model.
"""

from typing import Any

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    StandardScaler,
)

from dptune.data.row_maps import (
    Append,
    Asinh,
    ClipLength,
    Divide,
    Multiply,
    RowMap,
    Scale,
    Subtract,
    UnitLength,
)
from dptune.export.sklearn_columns import encoded_columns, inputs_in_words
from dptune.export.steps import Numbers, Written, class_labels, written
from dptune.study.trained_model import TrainedModel


def to_sklearn(model: TrainedModel) -> Pipeline:
    """Return the model as a fitted scikit-learn pipeline with `predict` and, for classes,
    `predict_proba`. It can be pickled, and loaded without dptune. Its attribute `guarantee_` is the
    guarantee, and `inputs_` describes what each column must hold.

    For a table with declared columns it takes frames of pandas or polars, with these columns in any
    order, and reads what dptune reads: numbers, booleans as true and false or yes and no, dates or
    their texts, categories as texts or numbers.
    """
    parts = written(model)
    encoding = model.preprocessing.encoding
    steps: list[tuple[str, Any]] = [] if model.inputs else [("numbers", _numbers(model))]
    if encoding is not None:
        steps.append(("columns", encoded_columns(encoding, named=model.inputs is not None)))
    columns = model.preprocessing.encoded(model.columns)
    for number, row_map in enumerate(parts.maps, start=1):
        steps.append((f"{number}-{row_map.kind}", _step(row_map, columns)))
        columns += isinstance(row_map, Append)
    steps.append(("model", _last(parts, model)))
    pipeline = Pipeline(steps)
    pipeline.guarantee_ = model.guarantee.in_words()
    if model.inputs is not None:
        pipeline.inputs_ = inputs_in_words(model.inputs)
    return pipeline


def _numbers(model: TrainedModel) -> FunctionTransformer:
    """Rows in float64, as the model takes them, with a check of their columns."""
    numbers = FunctionTransformer(np.asarray, validate=True, kw_args={"dtype": "float64"})
    numbers.n_features_in_ = model.columns
    if model.column_names:
        numbers.feature_names_in_ = np.array(model.column_names, dtype=object)
    return numbers


def _step(row_map: RowMap, columns: int) -> Any:  # noqa: PLR0911
    match row_map:
        case Scale(shift, scale):
            return _scaler(shift, scale)
        case Subtract(mean):
            return _scaler(mean, np.ones(columns))
        case Divide(by):
            return _scaler(np.zeros(columns), np.full(columns, by))
        case Asinh():
            return FunctionTransformer(np.arcsinh)
        case Append(value):
            return _appended(value, columns)
        case UnitLength():
            return make_pipeline(*_unit_rows())
        case ClipLength(reach):
            return _clipped(reach, columns)
        case Multiply(matrix):
            product = TruncatedSVD(matrix.shape[1])
            product.components_ = matrix.T.copy()
            return product


def _unit_rows() -> tuple[Normalizer, Normalizer]:
    """Scale to length 1, by the largest entry first, so that no square overflows. scikit-learn
    treats rows whose largest entry is below 2e-15 as zeros."""
    return Normalizer("max"), Normalizer("l2")


def _scaler(shift: Numbers, scale: Numbers) -> StandardScaler:
    scaler = StandardScaler()
    scaler.mean_, scaler.scale_, scaler.var_ = shift.copy(), scale.copy(), scale**2
    scaler.n_features_in_, scaler.n_samples_seen_ = len(shift), 1
    return scaler


def _appended(constant: float, columns: int) -> FeatureUnion:
    ones = PolynomialFeatures(degree=0).fit(np.zeros((1, columns)))
    times = _scaler(np.zeros(1), np.array([1 / constant]))
    return FeatureUnion([("rows", "passthrough"), ("constant", make_pipeline(ones, times))])


def _clipped(reach: float, columns: int) -> Pipeline:
    """One more column extends every shorter row to length `reach`; then all rows are divided by
    their length, and the column is removed."""
    total = TruncatedSVD(1)
    total.components_ = np.full((1, columns), reach**-2.0)  # of squares: 1 at the reach
    rest = MinMaxScaler((0, 1), clip=True)
    rest.scale_, rest.min_, rest.n_features_in_ = -np.ones(1), np.ones(1), 1
    missing = make_pipeline(
        FunctionTransformer(np.square),
        total,
        rest,
        FunctionTransformer(np.sqrt),
        _scaler(np.zeros(1), np.array([1 / reach])),
    )
    return make_pipeline(
        FeatureUnion([("rows", "passthrough"), ("missing", missing)]),
        *_unit_rows(),
        FunctionTransformer(np.delete, kw_args={"obj": columns, "axis": 1}),
    )


def _last(parts: Written, model: TrainedModel) -> LogisticRegression | LinearRegression:
    weights, added = parts.weights, parts.added
    if not model.classes:
        values = LinearRegression()
        values.coef_, values.intercept_ = weights[0].copy(), added[0]
        values.n_features_in_ = weights.shape[1]
        return values
    if len(weights) == 2:  # scikit-learn stores the second class minus the first
        weights, added = weights[1:] - weights[:1], added[1:] - added[:1]
    classes = LogisticRegression()
    classes.coef_, classes.intercept_ = weights.copy(), added.copy()
    classes.classes_, classes.n_features_in_ = class_labels(model), weights.shape[1]
    return classes
