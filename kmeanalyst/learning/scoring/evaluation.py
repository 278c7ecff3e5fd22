"""How good a model is on a release or on a sample of real rows, each score with its error.

A score is a function of the weights like any other statistic; two models' scores keep their correlation, so that score(a, data) -
score(b, data) is the paired comparison. Metrics use the default view of answers; those of ranks the probability view, if weights of
the default view are negative. Derivation: tutorials/derivations.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import fsum
from typing import Any, Unpack

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.error_model import SamplingErrors
from kmeanalyst.inference.estimate.estimate import Estimate, Estimates, z_of
from kmeanalyst.inference.estimate.population import Population, Where, answer, estimates, population_of
from kmeanalyst.inference.estimate.statistic import Statistic
from kmeanalyst.kernels.base import Array
from kmeanalyst.lazy import refuse_unknown, spelled_out
from kmeanalyst.learning.scoring.metrics import Loss, Metric, Need, Predictions, metric_named
from kmeanalyst.learning.scoring.sample_law import SampleLaw, conditions_of, sample_law
from kmeanalyst.learning.training.pipeline import digest
from kmeanalyst.releases.domain.cells import text_of
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.expressions.arrays import days_of
from kmeanalyst.releases.memo import kept
from kmeanalyst.releases.release import ReleaseData, View
from kmeanalyst.sources.tables import Translation, translated


@dataclass(frozen=True, eq=False)
class Task:
    """A model and what it predicts.

    target     the column it predicts.
    classes    (K,) its classes; None for numbers.
    positive   the code of the class in question: of two classes the second unless named; None for all.
    features   the columns it was fitted with; None where the model does not say.
    """

    model: Any
    target: str
    classes: Array | None
    positive: int | None
    features: tuple[str, ...] | None

    def answers(self, frame: pd.DataFrame, given: Array | None, needs: Collection[Need]) -> Predictions:
        """Truth and the model's answers at the rows of a frame (n, d); 0 where the condition `given` (n,) fails.

        The model sees only rows that satisfy the condition, and each of its functions is called at most once.
        """
        chosen = np.ones(len(frame), dtype=bool) if given is None else given
        truth = self._truth(frame[self.target][chosen])
        rows = self.inputs(frame[chosen].reset_index(drop=True))
        of_ranks: Need = "scores" if hasattr(self.model, "decision_function") else "probabilities"
        kinds = {need: of_ranks if need == "scores" else need for need in needs}
        found = {kind: _spread(getattr(self, f"_{kind}")(rows), chosen) for kind in set(kinds.values())}
        answers: dict[str, Any] = {need: found[kind] for need, kind in kinds.items()}
        return Predictions(truth=_spread(truth, chosen), classes=self.classes, positive=self.positive, **answers)

    def inputs(self, frame: pd.DataFrame) -> pd.DataFrame:
        if self.features is None:
            return frame.drop(columns=self.target)
        if absent := [name for name in self.features if name not in frame.columns]:
            raise ValueError(
                f"the data lack {words.names(absent)}, which the model was fitted with: it cannot predict without them. "
                f"They have {words.names(frame.columns)}. Add the columns, or fit the model without them."
            )
        return frame[list(self.features)]

    def _truth(self, cells: pd.Series) -> Array:
        if self.classes is not None:
            return codes(cells, self.classes, self.target)
        if cells.dtype.kind == "M" and (getattr(self.model, "target_table", None) or {}).get("kind") == "date":
            return np.asarray(days_of(cells), dtype=float)
        numbers = None if cells.dtype.kind == "M" else pd.to_numeric(cells.astype(object), errors="coerce")
        if numbers is None or numbers.isna().any():
            raise ValueError(
                f"the model predicts numbers, and the cells of {words.written(self.target)} are not all numbers, such as "
                f"{cells.iloc[0]!r:.40}. Score a model with classes_ (a classifier), or name the target it was fitted to."
            )
        return numbers.to_numpy(dtype=float)

    def _predicted(self, rows: pd.DataFrame) -> Array:
        found = np.asarray(self.model.predict(rows))
        if found.shape != (len(rows),):
            raise ValueError(
                f"the model's predictions have shape {found.shape} for {len(rows)} rows: scores are of one target. "
                "Score a model of each target by itself."
            )
        if self.classes is not None:
            return codes(pd.Series(found), self.classes, "the model's predictions")
        return _finite(found.astype(float), "predictions")

    def _probabilities(self, rows: pd.DataFrame) -> Array:
        if not hasattr(self.model, "predict_proba"):
            raise ValueError(
                f"{type(self.model).__name__} has no predict_proba, and this needs probabilities. Ask for a metric of "
                'classes, such as "accuracy", or fit a model with probabilities.'
            )
        found = _finite(np.asarray(self.model.predict_proba(rows)), "probabilities")
        return found if found.dtype.kind == "f" else found.astype(float)

    def _scores(self, rows: pd.DataFrame) -> Array:
        """decision_function (n, K); of two classes it gives one number."""
        found = np.asarray(self.model.decision_function(rows), dtype=float)
        found = np.where(np.isneginf(found), -np.finfo(float).max, found)  # -inf: a class that was never learned
        found = _finite(found, "scores")
        found = np.column_stack([-found, found]) if found.ndim == 1 else found
        if self.classes is not None and found.shape[1] != len(self.classes):
            raise ValueError(
                f"decision_function gives {found.shape[1]} scores for {len(self.classes)} classes, not one for each. Fit the "
                'model with one against the rest (decision_function_shape="ovr").'
            )
        return found


def task_of(model: Any, target: str | None, positive: Any) -> Task:
    own: str | None = getattr(model, "target", None)
    column = own if target is None else target
    if column is None:
        raise ValueError(
            f"{type(model).__name__} does not say which column it predicts: without it there is no truth to compare "
            "with. Pass target=, the column's name."
        )
    if target is not None and own is not None and target != own:
        raise ValueError(
            f"the model was trained to predict {words.written(own)}, not {words.written(target)}: as predictions of another "
            f"column its answers mean nothing. Leave target out, or fit a model of {words.written(target)}."
        )
    classes = _classes(model)
    features = getattr(model, "feature_names_in_", None)
    return Task(
        model=model, target=column, classes=classes, positive=_positive(positive, classes),
        features=None if features is None else tuple(str(name) for name in features),
    )  # fmt: skip


def codes(cells: pd.Series, classes: Array, what: str) -> Array:
    """The index (n,) of each cell among the classes, found by value or else by text; ValueError for unknown values."""
    index, values = pd.factorize(cells.astype(object))
    known = {label: k for k, label in enumerate(classes.tolist())}
    by_text = {text_of(label): k for label, k in known.items()}
    found = [known.get(value, by_text.get(text_of(value), -1)) for value in values]
    if -1 in found:
        unknown = [value for value, code in zip(values, found, strict=True) if code < 0]
        raise ValueError(
            f"{what} has values that are not classes of the model: {words.listed([repr(value) for value in unknown])}; its "
            f"classes are {words.listed([repr(label) for label in classes.tolist()])}. Whether it is right about them is "
            "unknown. Correct them, exclude such rows with where, or fit the model with these classes."
        )
    return np.asarray([*found, -1], dtype=int)[index]


def _classes(model: Any) -> Array | None:
    classes = getattr(model, "classes_", None)
    if classes is None:
        return None
    if isinstance(classes, Sequence) and len(classes) and isinstance(classes[0], np.ndarray):
        raise ValueError(f"the model has {len(classes)} targets, and a score is of one. Score a model of each target by itself.")
    return np.asarray(classes)


def _positive(positive: Any, classes: Array | None) -> int | None:
    if positive is None:
        return 1 if classes is not None and len(classes) == 2 else None
    if classes is None:
        raise ValueError(f"positive={positive!r} names a class, and the model predicts numbers: it has none. Leave positive out.")
    return int(codes(pd.Series([positive], dtype=object), classes, "positive")[0])


def _spread(values: Array, chosen: Array) -> Array:
    everywhere = np.zeros((len(chosen), *values.shape[1:]), dtype=values.dtype)
    everywhere[chosen] = values
    return everywhere


def _finite(found: Array, what: str) -> Array:
    if undefined := int((~np.isfinite(found)).sum()):
        raise ValueError(
            f"the model's {what} have {undefined} values that are not finite, so it has no score. Check its "
            "predictions at missing cells and at the bounds of the columns, or restrict the rows with where."
        )
    return found


_ROUNDING = 1e-9


Distribution = Callable[[bool], Population | SampleLaw]  # of the rows; of ranked ones it has no negative weight


@spelled_out(Translation)
def score(
    model: Any, data: Any, metric: str | Loss | Sequence[str | Loss] | None = None, *, target: str | None = None,
    positive: Any = None, where: Where = None, view: View | None = None, **own: Unpack[Translation],
) -> Estimate | Estimates:  # fmt: skip
    """How good a model's predictions are, with the error of the score.

    model     with predict, and predict_proba or decision_function where the metric needs it; a classifier has classes_, and
              its attribute target names what it predicts. It predicts on DataFrames in natural units.
    data      a Release, or a sample of real rows, that the model was not trained on: a DataFrame, or a table as
              of `mmd_test`.
    metric    scikit-learn's name, or a function loss(y_true, prediction) → (n,). A list of several gives Estimates
              (`.to_frame()` is their table); the model predicts once for all. By default roc_auc for two classes, accuracy
              for more, r2 for numbers.
    target    the column that is predicted, for a model that does not say.
    positive  the class for precision, roc_auc and the like: of two classes the second. For more classes these are
              averages over all (roc_auc one against the rest) unless one is named.
    where     a condition, or several. Rows without a target are left out, and the score says so.
    view      "signed", "probability" or "fitted", of a release. By default that of answers, where negative weights can
              give an impossible score (a note gives that of the probability view); roc_auc and average_precision then use
              the probability view, and refuse signed weights.
    rename, recode   of a sample, as of `mmd_test`.
    Errors    ValueError for the release that the model was trained on, whose noise it has fitted.

    >>> ka.score(model, sample, "accuracy")
    accuracy(income): 0.8193 ± 0.0099 (95 %: 0.7999 to 0.8388; sampling 0.0099) [1 note]
    >>> ka.score(model, sample, ["accuracy", "roc_auc"]).to_frame()[["value", "low", "high"]]
                         value       low      high
    question
    accuracy(income)  0.819333  0.799863  0.838804
    roc_auc(income)   0.872411  0.852967  0.891855
    """
    refuse_unknown(score, own)
    data, task = translated(data, **own), task_of(model, target, positive)
    population, notes = (_of_release if isinstance(data, ReleaseData) else _of_sample)(task, data, where, view)
    several = isinstance(metric, Sequence) and not isinstance(metric, str)
    metrics = [metric_named(name, task.classes) for name in (metric if several else [metric])]  # type: ignore[union-attr]
    if not metrics:
        raise ValueError('metric is an empty list, so there is nothing to compute. Name a metric, such as "accuracy".')
    found = _scores(task, metrics, population, notes)
    return found if several else found[0]


def _scores(task: Task, metrics: Sequence[Metric], population: Distribution, notes: tuple[str, ...]) -> Estimates:
    """Several metrics: the model predicts once, and each view needs one solve for the errors."""
    rows = population(metrics[0].ranks)  # of the error model: the same in any view of a release
    answers = task.answers(rows.model.frame, rows.given, {metric.needs for metric in metrics})
    found: dict[int, Estimate] = {}
    for ranks in dict.fromkeys(metric.ranks for metric in metrics):
        indices = [i for i, metric in enumerate(metrics) if metric.ranks == ranks]
        statistics = [_statistic(population(ranks), answers, metrics[i], task, notes) for i in indices]
        found.update(zip(indices, estimates(population(ranks), statistics), strict=True))
    if isinstance(rows, SampleLaw):
        truth = answers.with_weights(rows.weights).at_weighted_rows(answers.truth)
        found = {i: _with_unseen(one, metrics[i], truth) for i, one in found.items()}
    return Estimates(found[i] for i in range(len(metrics)))


def _with_unseen(found: Estimate, metric: Metric, truth: Array) -> Estimate:
    """A sample's share of 0 or 1 with an error, as the sample may lack what is rare: 0 or 1 ± 1.96 errors ends where Wilson's
    interval (1927) does, of n rows. Of shares other than the accuracy n is that of the rarest class.
    """
    at_end = min(abs(found.value), abs(1 - found.value)) < _ROUNDING
    if metric.bounds != (0.0, 1.0) or not at_end or found.standard_error != 0:
        return found
    n = len(truth) if metric.name == "accuracy" else np.unique(truth, return_counts=True)[1].min()
    error = float(z_of(0.95) / (n + z_of(0.95) ** 2))
    unseen = SamplingErrors(pd.DataFrame(index=range(2)), np.full(2, 0.5), ()), error * 2**0.5 * np.array([1.0, -1.0])
    parts = found.parts | {"sampling": error}
    return replace(found, standard_error=error, parts=parts, terms=(*found.terms, unseen))


def _statistic(
    population: Population | SampleLaw, answers: Predictions, metric: Metric, task: Task, of_data: tuple[str, ...]
) -> Statistic:
    """A metric as a statistic of the released weights, with notes where it is infeasible or undefined."""
    found = _metric_under(population, answers, metric)
    assert found.influence is not None
    value, notes = found.value, list(of_data)
    least, largest = metric.bounds
    truth = answers.with_weights(population.weights).at_weighted_rows(answers.truth)
    if (metric.name == "r2" or not np.isfinite(value)) and len(truth) > 0 and (truth == truth[0]).all():
        kind, other = ("value", "mean_absolute_error") if answers.classes is None else ("class", "accuracy")
        why = f"{metric.name} is undefined: the target has one {kind} in these rows"
        notes.append(f"{why}. Ask for {other}, or score rows in which it varies")
    elif not (np.isfinite(value) and least - _ROUNDING <= value <= largest + _ROUNDING):
        what = f"{value:.4g} is not a possible {metric.name}" if np.isfinite(value) else f"{metric.name} is undefined"
        notes.append(population.infeasible(what, lambda same: _metric_under(same, answers, metric).value))
    if not np.isfinite(found.influence[: len(population.weights)]).all():
        found = Statistic(value, None)
        if np.isfinite(value):
            notes.append(f"{metric.name} has a division by 0 or a root of 0 here: its first-order error is not known")
    return answer(population, found, f"{metric.name}({task.target})", tuple(notes), metric.bounds)


def _metric_under(population: Population | SampleLaw, answers: Predictions, metric: Metric) -> Statistic:
    """The metric under a distribution's weights; ValueError where they do not have a positive sum."""
    if (total := float(population.weights.sum())) <= 0:
        raise ValueError(f'the weights sum to {total:.3g}, so a mean over them is of no population. Ask view="probability".')
    return metric.of(answers.with_weights(population.weights))


def _of_shares(release: ReleaseData) -> ReleaseData:
    """A release, with weights that sum to one if it comes from elsewhere; the same object at each call.

    A sum of weights from elsewhere means nothing, and the probability view would be nearest to a measure of that size.
    """
    total = fsum(release.weights)
    if release.measurement is not None or total <= 0 or abs(total - 1) < _ROUNDING:
        return release
    return kept(
        release, "shares", lambda: release.replaced(weights=release.weights / total, fit_distance=None, thinning_error=None)
    )


def _of_release(task: Task, data: ReleaseData, where: Where, view: View | None) -> tuple[Distribution, tuple[str, ...]]:
    if task.target not in data.columns.names:
        raise ValueError(
            f"the release has no column {words.written(task.target)}, which the model predicts: there is no truth to "
            f"compare with. It has {words.names(data.columns.names)}. Score a model of one of these."
        )
    conditions = conditions_of(where)
    if data.columns[task.target].missing:
        conditions = (*conditions, f"not missing({words.column(task.target)})")
    trained_on = getattr(getattr(task.model, "report", task.model), "release_digest", None)
    if trained_on is not None and trained_on == digest(data):
        raise ValueError(
            "the model was trained on this very release: it has fitted a part of its noise, and the score would be too good or too "
            "bad by an unknown amount. Score it on a sample of real rows, or on a second release."
        )
    release = _of_shares(data)

    @cache
    def population(ranks: bool) -> Population:
        if ranks and view == "signed" and not release.is_probability:
            raise ValueError(
                'a metric of ranks was asked with view="signed": rows of negative weight cannot be ranked. Leave view out, or '
                'pass view="probability".'
            )
        found = population_of(release, where=conditions or None, view=view)
        if ranks and view is None and found.weights.min() < 0:
            return population_of(release, where=conditions or None, view="probability")
        return found

    return population, ()


def _of_sample(task: Task, data: Any, where: Where, view: View | None) -> tuple[Distribution, tuple[str, ...]]:
    if view in ("fitted", "resampled"):
        raise ValueError(f'view="{view}" is of a release, and these are rows of a sample: they have equal weights. Leave view out.')
    domain = getattr(task.model, "domain", None)
    law = sample_law(data, where, domain if isinstance(domain, Domain) else None, task.target)
    return lambda ranks: law, law.notes
