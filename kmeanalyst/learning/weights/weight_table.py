"""The table of what scikit-learn's estimators do with weights, derived for the installed version.

`python -m kmeanalyst.learning.weight_table` writes it into the package. The tests derive every entry anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sklearn
from sklearn.utils import all_estimators

from kmeanalyst.learning.weights.cancellation import live_test
from kmeanalyst.learning.weights.weighted_fits import quietly

TABLE_PATH = Path(__file__).with_name("weight_table.json")

OF_THEIR_PARTS = {
    *("Pipeline", "ColumnTransformer", "FeatureUnion", "GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV"),
    *("HalvingRandomSearchCV", "CalibratedClassifierCV", "StackingClassifier", "StackingRegressor", "ClassifierChain"),
    *(
        "TunedThresholdClassifierCV",
        "FixedThresholdClassifier",
        "VotingClassifier",
        "VotingRegressor",
        "RegressorChain",
    ),
    *("OneVsRestClassifier", "OneVsOneClassifier", "OutputCodeClassifier", "MultiOutputClassifier", "RFE", "RFECV"),
    *("MultiOutputRegressor", "TransformedTargetRegressor", "SelectFromModel", "SequentialFeatureSelector"),
    *("FrozenEstimator", "SelfTrainingClassifier"),
}  # scikit-learn's estimators made of others, whose answer is that of their parts


# ------------------------------------------------------------------------------------------------ the table


VARIANTS: dict[str, list[dict[str, Any]]] = {
    "LogisticRegression": [
        *({"solver": solver} for solver in ("liblinear", "newton-cg", "newton-cholesky", "sag", "saga")),
        {"class_weight": "balanced"},
        {"l1_ratio": 1.0, "solver": "saga"},
    ],
    "Ridge": [{"solver": solver} for solver in ("svd", "cholesky", "lsqr", "sparse_cg", "sag", "saga")],
    "RidgeClassifier": [{"solver": "lsqr"}, {"class_weight": "balanced"}],
    "LinearRegression": [{"positive": True}],
    "SVC": [{"kernel": "linear"}, {"class_weight": "balanced"}],
    "SVR": [{"kernel": "linear"}],
    "LinearSVC": [{"dual": False}, {"class_weight": "balanced"}],
    "GradientBoostingClassifier": [{"subsample": 0.5}],
    "GradientBoostingRegressor": [{"subsample": 0.5}],
    "HistGradientBoostingClassifier": [{"early_stopping": False}],
    "HistGradientBoostingRegressor": [{"early_stopping": False}, {"loss": "poisson"}],
    "RandomForestClassifier": [{"bootstrap": False}, {"class_weight": "balanced"}],
    "RandomForestRegressor": [{"bootstrap": False}],
    "ExtraTreesClassifier": [{"bootstrap": True}],
    "DecisionTreeClassifier": [{"class_weight": "balanced"}],
    "SGDClassifier": [{"loss": "log_loss"}, {"loss": "modified_huber"}],
    "MLPClassifier": [{"solver": "lbfgs"}],
    "MLPRegressor": [{"solver": "lbfgs"}],
    "DummyClassifier": [{"strategy": "most_frequent"}],
    "DummyRegressor": [{"strategy": "median"}],
    "KBinsDiscretizer": [{"strategy": "uniform"}, {"encode": "ordinal"}],
    "SplineTransformer": [{"knots": "quantile"}],
}


def table_key(name: str, changes: Mapping[str, Any]) -> str:
    """`Ridge` for the defaults, `Ridge(solver='svd')` for others."""
    inside = ", ".join(f"{key}={changes[key]!r}" for key in sorted(changes))
    return f"{name}({inside})" if inside else name


def table_estimators() -> dict[str, Any]:
    """The estimators of the table, by key: each of scikit-learn's that needs no argument, and the named variants.

    Left out are those whose answer is that of their parts.
    """
    found: dict[str, Any] = {}
    with quietly():
        for name, kind in all_estimators():
            if name in OF_THEIR_PARTS:
                continue
            for changes in [{}, *VARIANTS.get(name, [])]:
                try:
                    found[table_key(name, changes)] = kind(**changes)
                except TypeError:  # it needs an argument, or this scikit-learn has no such parameter
                    continue
    return found


def table_entry(estimator: Any) -> dict[str, Any]:
    """One row of the table."""
    return live_test(estimator)._asdict()


def derive_table() -> dict[str, Any]:
    """The table for the installed scikit-learn: its version, and {key: verdict, reason, nonnegative_ok}. Minutes."""
    entries = {key: table_entry(estimator) for key, estimator in table_estimators().items()}
    return {"scikit-learn": sklearn.__version__, "entries": dict(sorted(entries.items()))}


def main() -> None:
    """Write the table of the installed scikit-learn to the package."""
    text = json.dumps(derive_table(), indent=1, sort_keys=True, ensure_ascii=False)
    TABLE_PATH.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
