"""What `kmeanalyst train` does before it prints."""

from __future__ import annotations

import difflib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kmeanalyst.inference.estimate.estimate import Estimate
from kmeanalyst.learning.rows.training_rows import target_of
from kmeanalyst.learning.scoring.evaluation import score
from kmeanalyst.learning.training.pipeline import (
    TrainedPipeline,
    TrainingReport,
    check_name,
    untrusted_types,
    write_model,
)
from kmeanalyst.learning.training.training import fit
from kmeanalyst.release import Release, View

_DEFAULT = {"classification": "LogisticRegression", "regression": "Ridge"}
_METRICS = {"classification": ("accuracy", "roc_auc", "log_loss"), "regression": ("r2", "root_mean_squared_error")}
_PATIENT = {"LogisticRegression": {"max_iter": 1000}}  # scikit-learn's default of 100 steps is too few for indicators


def named_estimator(release: Release, target: str, name: str | None, settings: Sequence[str], seed: int) -> Any:
    """An estimator of scikit-learn by its name, with parameters "name=value", the value as JSON or else as text.

    name  a classifier or regressor; by default LogisticRegression, or Ridge for a target of numbers.
    """
    from sklearn.utils import all_estimators

    name = name or _DEFAULT[target_of(release, target).task]
    known = dict(all_estimators(type_filter=["classifier", "regressor"]))
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        raise ValueError(
            f"scikit-learn has no classifier or regressor {name!r}. "
            + (f"Did you mean {' or '.join(near)}?" if near else "Write its class's name, such as LogisticRegression.")
        )
    parameters = _PATIENT.get(name, {}) | dict(_setting(text) for text in settings)
    try:
        estimator = known[name](**parameters)
    except TypeError as error:
        raise ValueError(
            f"{name} could not be made: {error}. Correct --set; parameters that are estimators need Python."
        ) from None
    if "random_state" in estimator.get_params() and "random_state" not in parameters:
        estimator.set_params(random_state=seed)
    return estimator


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError(f"--set takes name=value, got {text!r}. Write for example C=0.1.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model, its file, and its scores on a sample.

    notes  warnings of the fit.
    """

    model: TrainedPipeline
    output: str
    scores: Mapping[str, Estimate]
    notes: tuple[str, ...]

    @property
    def read_by(self) -> str:
        """The arguments of read_model, which trusts no types but the commonest."""
        unknown = untrusted_types(self.output)
        return repr(self.output) + (f", trusted={unknown!r}" if unknown else "")

    def to_dict(self) -> dict[str, Any]:
        """The report, the file, and the scores, as JSON has them."""
        report = vars(self.model.report) | {"columns": list(self._report.columns)}
        report["notes"] = [*self._report.notes, *self.notes]
        classes = None if self.model.levels_ is None else self.model.levels_.tolist()
        return report | {
            "output": self.output,
            "classes": classes,
            "test": {name: score.to_dict() for name, score in self.scores.items()} or None,
        }

    def __str__(self) -> str:
        lines = [str(self._report), *(f"note: {text}" for text in self.notes)]
        return "\n".join([*lines, *(str(score) for score in self.scores.values())])

    @property
    def _report(self) -> TrainingReport:
        assert self.model.report is not None
        return self.model.report


def train(
    release: Release,
    target: str,
    output: str,
    *,
    estimator: str | None = None,
    settings: Sequence[str] = (),
    columns: str | None = None,
    view: View | None = None,
    sample: str | None = None,
    metrics: Sequence[str] = (),
    seed: int = 0,
) -> Trained:
    """Train, write, and score on a sample where there is one; raises ValueError before anything is written."""
    if metrics and sample is None:
        raise ValueError("--metric is a score on rows to test with, and none are named. Add --test SAMPLE.")
    check_name(output)
    made = named_estimator(release, target, estimator, settings, seed)
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fit(made, release, target, columns=names, view=view, rng=seed)
    found = {} if sample is None else _scores(model, sample, metrics)
    write_model(model, output)
    return Trained(model, output, found, tuple(dict.fromkeys(str(one.message) for one in caught)))


def _scores(model: TrainedPipeline, sample: str, metrics: Sequence[str]) -> dict[str, Estimate]:
    names = list(metrics) or list(_METRICS["regression" if model.levels_ is None else "classification"])
    if not metrics and model.levels_ is not None and not hasattr(model, "predict_proba"):
        names = ["accuracy"]
    found: Any = score(model, sample, names)
    return dict(zip(names, found, strict=True))


__all__ = ["Trained", "named_estimator", "train"]
