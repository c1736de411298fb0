"""scikit-learn's usual pipeline on the same columns, without privacy."""

from typing import Any

import numpy as np

from experiments.tables.by_hand import PARTS, frames
from experiments.tables.sets import Table


def accuracies(table: Table, root: str) -> tuple[float, float]:
    """Percent of test rows: of the pipeline, and of always answering the most frequent class."""
    train, test = (_taken_apart(table, frame) for frame in frames(table, root))
    labels, answers = train.pop(table.label), test.pop(table.label)
    model = _pipeline(table, list(train.columns)).fit(train, labels)
    share = float(np.mean(model.predict(test) == answers))
    return 100 * share, 100 * float(np.mean(answers == labels.mode()[0]))


def _pipeline(table: Table, names: list[str]) -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    columns = table.columns()
    numbers = [name for name in names if columns.get(name, {"kind": ""})["kind"] == "number"]
    others = [name for name in names if name not in numbers]
    scaled = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    encoder = OneHotEncoder(handle_unknown="ignore")  # a gap is a category
    steps = ColumnTransformer([("numbers", scaled, numbers), ("others", encoder, others)])
    return make_pipeline(steps, LogisticRegression(max_iter=2000))


def _taken_apart(table: Table, frame: Any) -> Any:
    """With the parts of dates in columns of their own."""
    for name, column in table.columns().items():
        if column["kind"] == "date":
            called = [PARTS[part][0] for part in column["parts"]]
            parts = {f"{name} {part}": getattr(frame[name].dt, part) for part in called}
            frame = frame.drop(columns=name).assign(**parts)
    return frame
