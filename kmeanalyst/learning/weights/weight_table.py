"""The shipped table: how each of scikit-learn's estimators treats sample weights, including negative ones.

The entries were measured, by fitting each estimator to small data whose answer is known (tests/support/derive_weight_table.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

TABLE_PATH = Path(__file__).with_name("weight_table.json")

OF_THEIR_PARTS = {
    *("Pipeline", "ColumnTransformer", "FeatureUnion", "GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV"),
    *("HalvingRandomSearchCV", "CalibratedClassifierCV", "StackingClassifier", "StackingRegressor", "ClassifierChain"),
    *("TunedThresholdClassifierCV", "FixedThresholdClassifier", "VotingClassifier", "VotingRegressor"),
    *("RegressorChain", "OneVsRestClassifier", "OneVsOneClassifier", "OutputCodeClassifier", "MultiOutputClassifier"),
    *("MultiOutputRegressor", "RFE", "RFECV", "SelectFromModel", "SequentialFeatureSelector"),
    *("TransformedTargetRegressor", "FrozenEstimator", "SelfTrainingClassifier"),
}  # scikit-learn's estimators made of others, whose answer is that of their parts


class Verdict(NamedTuple):
    """An entry of the table: the verdict, the behaviour seen in one sentence, and whether weights ≥ 0 are used correctly."""

    verdict: str
    reason: str
    nonnegative_ok: bool


class Table(NamedTuple):
    """The version of scikit-learn that was tested, and its estimators' verdicts by `table_key`."""

    version: str
    entries: dict[str, Verdict]


@cache
def read_table() -> Table:
    """The table in the package."""
    read = json.loads(TABLE_PATH.read_text(encoding="utf-8"))
    return Table(read["scikit-learn"], {key: Verdict(**entry) for key, entry in read["entries"].items()})


def table_key(name: str, changes: Mapping[str, Any]) -> str:
    """`Ridge` for the defaults, `Ridge(solver='svd')` for others."""
    inside = ", ".join(f"{key}={changes[key]!r}" for key in sorted(changes))
    return f"{name}({inside})" if inside else name
