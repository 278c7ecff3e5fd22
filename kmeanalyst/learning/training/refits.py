"""How much a model's predictions and scores depend on the noise that happened to be drawn.

The release's noise is drawn again, points and weights are fitted to the new measurement (`redraw`), and the model is trained
on those. The standard deviation of such models' predictions is the standard error of the first model's predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from kmeanalyst.kernels.base import Array
from kmeanalyst.learning.scoring.evaluation import score
from kmeanalyst.learning.training.pipeline import TrainedPipeline, digest
from kmeanalyst.learning.training.training import refit_on
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.represent import redraw


@dataclass(frozen=True, eq=False)
class Refits:
    """A model, and others trained on releases whose noise was drawn anew.

    >>> type(refits).__name__, len(refits.predict(sample.head(2)))
    ('Refits', 2)
    """

    model: TrainedPipeline
    others: tuple[TrainedPipeline, ...]

    def predict(self, X: pd.DataFrame, *, of: Any = None, level: float = 0.95) -> pd.DataFrame:
        """The prediction for each row, with its error.

        of       the class whose probability is predicted, the last by default; regressions give the number itself, and
                 classifiers without probabilities their decision function.
        Returns  DataFrame with X's index: prediction, standard_error, low, high (Student's t of the number of redraws;
                 probabilities stay within 0 and 1).

        >>> refits.predict(sample.head(2)).round(3)
           prediction  standard_error    low   high
        0       0.379           0.003  0.367  0.391
        1       0.366           0.013  0.312  0.420
        """
        first, *others = (_prediction(model, X, of) for model in (self.model, *self.others))
        error = np.std(others, axis=0, ddof=1)
        reach = error * student.ppf(0.5 + level / 2, len(self.others) - 1)
        low, high = first - reach, first + reach
        if hasattr(self.model, "predict_proba"):
            low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)
        columns = {"prediction": first, "standard_error": error, "low": low, "high": high}
        return pd.DataFrame(columns, index=X.index)

    def score(
        self, data: Any, metric: str | Sequence[str] | None = None, *, level: float = 0.95, **named: Any
    ) -> pd.DataFrame:
        """The model's scores, with the error of evaluation and the error of training by the release's noise.

        Returns  DataFrame indexed by metric: value, standard_error (of both), of_evaluation (see `kmeanalyst.score`),
                 of_training (over the refits), low, high (Student's t for the share of the refits), note.

        >>> refits.score(sample, "roc_auc")[["value", "of_evaluation", "of_training"]]
                    value  of_evaluation  of_training
        metric
        roc_auc  0.661068       0.014859     0.009845
        """
        names: Any = metric if isinstance(metric, list | tuple) else [metric]
        each: list[Any] = [score(model, data, names, **named) for model in (self.model, *self.others)]
        rows = {}
        for name, *found in zip(names, *each, strict=True):
            training = float(np.std([one.value for one in found[1:]], ddof=1))
            total = float(np.hypot(found[0].standard_error, training))
            freedom = self._degrees_of_freedom(training / total if total > 0 else 1.0)
            reach = total * student.ppf(0.5 + level / 2, freedom)
            rows[name or "default"] = {
                "value": found[0].value, "standard_error": total, "of_evaluation": found[0].standard_error,
                "of_training": training, "low": found[0].value - reach, "high": found[0].value + reach,
                "note": "; ".join(found[0].notes),
            }  # fmt: skip
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("metric")

    def _degrees_of_freedom(self, share: float) -> float:
        """Of an error with this share from the refits (Welch 1947); the rest is known exactly."""
        return (len(self.others) - 1) / max(share, 1e-3) ** 4


def refit(
    model: TrainedPipeline,
    release: ReleaseData,
    *,
    redraws: int = 10,
    rng: np.random.Generator | int | None = 0,
    progress: Callable[[str, float], None] | None = None,
) -> Refits:
    """Train a model again on releases whose noise was drawn anew; each takes about as long as publishing did.

    model     from `kmeanalyst.fit`, trained on this release.
    redraws   the number of refits, at least 2.
    progress  called with a text and the share done so far.
    Errors    ValueError for a model of another release, or a release without measurement.

    >>> from sklearn.linear_model import LogisticRegression
    >>> survey = ka.read_release("survey.kme")
    >>> model = ka.fit(LogisticRegression(max_iter=1000), survey, target="income")
    >>> refits = ka.refit(model, survey, redraws=3)
    >>> len(refits.others)
    3
    """
    if redraws < 2:
        raise ValueError(f"redraws must be at least 2, got {redraws}: a single refit has no spread. Pass e.g. 10.")
    if model.report is None or model.report.release_digest != digest(release):
        raise ValueError(
            "the model was trained on another release, whose noise cannot be redrawn from this one. Pass the release it was "
            "trained on."
        )
    if model.target is None:
        raise ValueError(
            f"{model.report.estimator} has no target, and cluster numbers are not comparable between fits: there is no spread "
            "to report. Refit a classifier or regressor."
        )
    streams = np.random.default_rng(rng).spawn(redraws)
    others = []
    for i, stream in enumerate(streams):
        others.append(refit_on(model, redraw(release, rng=stream)))
        if progress is not None:
            progress("refitting", (i + 1) / redraws)
    return Refits(model, tuple(others))


def _prediction(model: TrainedPipeline, X: pd.DataFrame, of: Any) -> Array:
    if model.levels_ is None:
        return np.asarray(model.predict(X), dtype=float)
    index = len(model.classes_) - 1 if of is None else list(model.classes_).index(of)
    found = model.predict_proba(X) if hasattr(model, "predict_proba") else model.decision_function(X)
    return found[:, index] if found.ndim == 2 else found if index == 1 else -found
