"""Derive the table of what scikit-learn's estimators do with weights, for the installed version.

`python tests/support/derive_weight_table.py` writes it into the package. The slow tests derive every entry anew.
"""

from __future__ import annotations

import json
from typing import Any

import sklearn
from cancellation import probe
from sklearn.utils import all_estimators
from weighted_fits import quietly

from kmeanalyst.learning.weights.weight_table import OF_THEIR_PARTS, TABLE_PATH, table_key

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
    return probe(estimator)._asdict()


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
