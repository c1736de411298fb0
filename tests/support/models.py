"""Trained models made by hand: what a study would give, without one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from dptune.accounting import Guarantee
from dptune.columns import Columns, Encoding
from dptune.data.preprocess import Preprocessing
from dptune.data.row_maps import (
    Append,
    ClipLength,
    Divide,
    Encode,
    Multiply,
    RowMap,
    Scale,
    Subtract,
    UnitLength,
)
from dptune.engines.linear import LinearEngine, LinearModel
from dptune.study.trained_model import TrainedModel

PROMISE = Guarantee(
    epsilon=1.0,
    delta=1e-5,
    mu=0.2,
    slack=0.0,
    replace_one_epsilon=2.0,
    sampler="every row in every step",
    accountant="none",
    covers_search=True,
    covers_selection=True,
    releases=("the model",),
)


def linear_model(
    preprocessing: Preprocessing, columns: int, classes: tuple[Any, ...] = (), **more: Any
) -> TrainedModel:
    """With drawn weights, for rows of so many columns; without classes, one of values."""
    draws = np.random.default_rng(len(classes))
    outputs = len(classes) or 1
    loss = "softmax" if classes else "squared"
    inside = preprocessing.columns(columns)
    bias = more.pop("bias", False)
    model = LinearModel(
        torch.from_numpy(draws.normal(size=(outputs, inside)).astype(np.float32)),
        torch.from_numpy(draws.normal(size=outputs).astype(np.float32)) if bias else None,
        loss,
    )
    facts: dict[str, Any] = {
        "engine": LinearEngine(outputs=outputs, loss=loss, bias=bias),
        "model": model,
        "shape": (columns,),
        "preprocessing": preprocessing,
        "loss": loss,
        "classes": classes,
        "target_range": None if classes else (-3.0, 8.0),
        "guarantee": PROMISE,
        "trials": (),
    }
    return TrainedModel(**facts | more)


def all_steps(columns: int = 4) -> Preprocessing:
    """Everything that is done to rows."""
    draws = np.random.default_rng(5)
    return Preprocessing(
        [
            Scale(draws.normal(size=columns), draws.uniform(0.5, 2, columns)),
            Append(1.5),
            UnitLength(),
            Subtract(0.1 * draws.normal(size=columns + 1)),
            UnitLength(),
            Multiply(draws.normal(size=(columns + 1, columns + 1))),
            Append(0.25),
            UnitLength(),
        ]
    )


def cut_rows(columns: int = 4) -> Preprocessing:
    """Everything that is done to rows whose lengths matter."""
    scale, _, _, center, _, whitening, *_ = all_steps(columns).maps
    assert isinstance(center, Subtract) and isinstance(whitening, Multiply)
    return Preprocessing(
        [
            scale,
            ClipLength(700.0),
            Subtract(center.mean[:columns]),
            ClipLength(1.0),
            Multiply(whitening.matrix[:columns, :columns]),
            ClipLength(1.5),
            Append(0.25),
            Divide(1.25),
        ]
    )


NUMBERED = Encoding(
    Columns.of_numbers(f"column {number}" for number in range(1, 5)),
    ranges={f"column {number}": (-(5.0**number), 3.0**number) for number in range(1, 5)},
).with_curves([f"column {number}" for number in range(1, 5)], 3)

PREPARATIONS = {
    "bent": Preprocessing(encoding=NUMBERED),
    "as given": Preprocessing(unit_rows=False),
    "unit rows": Preprocessing(),
    "scaled": Preprocessing([Scale(np.arange(4.0), np.full(4, 1e3))]),
    "all steps": all_steps(),
    "cut": Preprocessing([ClipLength(900.0)]),
    "cut and all steps": cut_rows(),
}


def hard_rows() -> Any:
    """Usual ones, a row of zeros, and very long ones."""
    rows = np.random.default_rng(0).normal(size=(40, 4)) * [1, 10, 100, 1000]
    return np.concatenate([rows, np.zeros((1, 4)), rows[:3] * 1e12]).astype(np.float32)


SPAN = ["2010-01-01", "2020-12-31"]
ENCODING = Encoding(
    Columns.of(
        {
            "age": {"kind": "number", "range": [0, 100], "fill": "middle", "indicator": True},
            "income": {"kind": "number", "range": "paid", "fill": 3.0},
            "height": "number",
            "smoker": {"kind": "boolean", "fill": True},
            "insured": {"kind": "boolean", "indicator": True},
            "color": {
                "kind": "category",
                "values": ["D", "E", "1"],
                "fill": "E",
                "indicator": True,
            },
            "city": {"kind": "category", "values": "paid", "at_most": 4},
            "kind": {"kind": "category", "values": ["x", "y"], "indicator": True},
            "id": "drop",
            "begun": {
                "kind": "date",
                "range": SPAN,
                "parts": ["weekday", "month", "hour"],
                "fill": "2012-05-06T07:00",
            },
            "ended": {"kind": "date", "range": SPAN, "parts": ["month", "hour"], "indicator": True},
        }
    ),
    ranges={"income": (-5.0, 10.0)},
    categories={"city": ("Rome", "Oslo")},
    degrees={"age": 3, "income": 2, "begun": 4, "ended": 2},
)


def hard_table() -> pd.DataFrame:
    """Rows inside what is declared and outside of it, with gaps and names that nobody knows."""
    gap = np.nan
    dates = pd.to_datetime(
        pd.Series(
            ["2011-02-28 23:59", "1904-02-29 01:00", None, "2100-12-31 00:00", "2020-12-31 12:00"]
        )
    )
    return pd.DataFrame(
        {
            "age": [1, gap, 1e300, -np.inf, 50.5],
            "income": [gap, 3, np.inf, -1e30, 0],
            "height": [1.5, 2, -3, 4, 0.5],
            "smoker": [True, False, None, True, False],
            "insured": [1, 0, gap, 0, 1],
            "color": ["D", None, "zz", "1", "NA"],
            "city": ["Rome", "Oslo", "Paris", None, "Rome"],
            "kind": ["x", "", "other", None, "y"],
            "begun": dates,
            "ended": dates[::-1].reset_index(drop=True),
        }
    )


def table_model(
    classes: tuple[Any, ...] = ("no", "yes"), maps: Sequence[RowMap] = ()
) -> TrainedModel:
    """With all kinds of columns."""
    done = Preprocessing([Encode(ENCODING), Append(1.0), UnitLength(), *maps])
    return linear_model(done, ENCODING.width, classes, column_names=ENCODING.columns.kept)
