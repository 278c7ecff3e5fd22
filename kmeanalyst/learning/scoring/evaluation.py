"""How good a model is on a release or on a sample of real rows, each score with its error.

A score on a release is a function of its weights like any other statistic: its influence function at the released points
and at the rows of the fitted population gives its error in parts, and two models' scores keep their correlation, so that
score(a, data) - score(b, data) is the paired comparison. The model is taken as it is: that it was itself trained on noisy
data shows in the score, and is no part of the error.

Metrics of classes and numbers are asked of the weights as released; those of ranks of the probability view.

Asking a model: which target, which classes, and its answers at rows in natural units, each asked for once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from math import fsum
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.estimate import Estimate, Estimates
from kmeanalyst.inference.estimate.population import Population, Statistic, Where, estimates, population_of
from kmeanalyst.kernels.base import Array
from kmeanalyst.learning.digest import digest
from kmeanalyst.learning.scoring.metrics import Evidence, Loss, Metric, Need, Predictions, Smooth, metric_named
from kmeanalyst.learning.scoring.sample_law import SampleLaw, sample_law
from kmeanalyst.releases.domain.cells import text_of
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.memo import memo
from kmeanalyst.releases.release import Question, ReleaseData, View


@dataclass(frozen=True, eq=False)
class Task:
    """A model and what it is asked about.

    target     the column it predicts.
    classes    (K,) its classes; None for numbers.
    positive   the code of the class asked about: of two classes the second unless named; None for all.
    features   the columns it was fitted with; None where it does not tell.
    """

    model: Any
    target: str
    classes: Array | None
    positive: int | None
    features: tuple[str, ...] | None

    def answers(self, frame: pd.DataFrame, given: Array | None, needs: Collection[Need]) -> Predictions:
        """Truth and the model's answers at the rows of a frame (n, d); 0 where the condition `given` (n,) fails.

        Only rows with the condition are asked, and each of the model's functions at most once.
        """
        held = np.ones(len(frame), dtype=bool) if given is None else given
        truth = self._truth(frame[self.target][held])
        rows = self.inputs(frame[held].reset_index(drop=True))
        kinds = {need: self._kind(need) for need in needs}
        said = {kind: _spread(getattr(self, f"_{kind}")(rows), held) for kind in set(kinds.values())}
        asked: dict[str, Array] = {need: said[kind] for need, kind in kinds.items()}
        return Predictions(truth=_spread(truth, held), classes=self.classes, positive=self.positive, **asked)

    def inputs(self, frame: pd.DataFrame) -> pd.DataFrame:
        """What the model is shown of a frame; ValueError for columns that it lacks."""
        if self.features is None:
            return frame.drop(columns=self.target)
        if absent := [name for name in self.features if name not in frame.columns]:
            raise ValueError(
                f"the data lack {words.names(absent)}, which the model was fitted with: it can predict nothing without. "
                f"They have {words.names(frame.columns)}. Add the columns, or fit the model without them."
            )
        return frame[list(self.features)]

    def _truth(self, cells: pd.Series) -> Array:
        """Codes of classes, or numbers; ValueError for what is neither."""
        if self.classes is not None:
            return codes(cells, self.classes, self.target)
        numbers = None if cells.dtype.kind == "M" else pd.to_numeric(cells.astype(object), errors="coerce")
        if numbers is None or numbers.isna().any():
            raise ValueError(
                f"the model predicts numbers, and the cells of {words.written(self.target)} are not all numbers, such as "
                f"{cells.iloc[0]!r:.40}. Score a model with classes_ (a classifier), or name the target it was fitted to."
            )
        return numbers.to_numpy(dtype=float)

    def _predicted(self, rows: pd.DataFrame) -> Array:
        said = np.asarray(self.model.predict(rows))
        if said.shape != (len(rows),):
            raise ValueError(
                f"the model's predictions have shape {said.shape} for {len(rows)} rows: scores are of one target. "
                "Score a model of each target by itself."
            )
        if self.classes is not None:
            return codes(pd.Series(said), self.classes, "the model's predictions")
        return _finite(said.astype(float), "predictions")

    def _probabilities(self, rows: pd.DataFrame) -> Array:
        if not hasattr(self.model, "predict_proba"):
            raise ValueError(
                f"{type(self.model).__name__} has no predict_proba, and this is asked of probabilities. Ask for a metric of "
                'classes, such as "accuracy", or fit a model with probabilities.'
            )
        said = _finite(np.asarray(self.model.predict_proba(rows)), "probabilities")
        return said if said.dtype.kind == "f" else said.astype(float)

    def _kind(self, need: Need) -> Need:
        """What is asked in place of a need: scores of decision_function, or else of predict_proba, as in scikit-learn."""
        return "probabilities" if need == "scores" and not hasattr(self.model, "decision_function") else need

    def _scores(self, rows: pd.DataFrame) -> Array:
        """decision_function (n, K); of two classes it gives one number."""
        said = np.asarray(self.model.decision_function(rows), dtype=float)
        said = _finite(np.where(np.isneginf(said), -np.finfo(float).max, said), "scores")  # -inf: a class never learned
        said = np.column_stack([-said, said]) if said.ndim == 1 else said
        if self.classes is not None and said.shape[1] != len(self.classes):
            raise ValueError(
                f"decision_function gives {said.shape[1]} scores for {len(self.classes)} classes, so none is a class's. Fit the "
                'model with one against the rest (decision_function_shape="ovr").'
            )
        return said


def task_of(model: Any, target: str | None, positive: Any) -> Task:
    """The task of a model: its own target unless it has none; ValueError where what is named does not fit it."""
    own: str | None = getattr(model, "target", None)
    asked = own if target is None else target
    if asked is None:
        raise ValueError(
            f"{type(model).__name__} does not say which column it predicts: without it there is no truth to compare "
            "with. Pass target=, the column's name."
        )
    if target is not None and own is not None and target != own:
        raise ValueError(
            f"the model was trained to predict {words.written(own)}, not {words.written(target)}: its answers about another "
            f"column mean nothing. Leave target out, or fit a model of {words.written(target)}."
        )
    classes = _classes(model)
    features = getattr(model, "feature_names_in_", None)
    return Task(
        model=model,
        target=asked,
        classes=classes,
        positive=_positive(positive, classes),
        features=None if features is None else tuple(str(name) for name in features),
    )


def codes(cells: pd.Series, classes: Array, what: str) -> Array:
    """The place (n,) of each cell among the classes, told by value or else by text; ValueError for unknown values."""
    place, values = pd.factorize(cells.astype(object))
    known = {label: k for k, label in enumerate(classes.tolist())}
    by_text = {text_of(label): k for label, k in known.items()}
    found = [known.get(value, by_text.get(text_of(value), -1)) for value in values]
    if -1 in found:
        unknown = [value for value, code in zip(values, found, strict=True) if code < 0]
        raise ValueError(
            f"{what} has values that are no class of the model: {words.listed([repr(value) for value in unknown])}; its "
            f"classes are {words.listed([repr(label) for label in classes.tolist()])}. Whether it is right about them cannot "
            "be said. Correct them, exclude such rows with where, or fit the model with these classes."
        )
    return np.asarray([*found, -1], dtype=int)[place]


def _classes(model: Any) -> Array | None:
    classes = getattr(model, "classes_", None)
    if classes is None:
        return None
    if isinstance(classes, Sequence) and len(classes) and isinstance(classes[0], np.ndarray):
        raise ValueError(
            f"the model has {len(classes)} targets, and a score is of one. Score a model of each target by itself."
        )
    return np.asarray(classes)


def _positive(positive: Any, classes: Array | None) -> int | None:
    """The code of the class asked about."""
    if positive is None:
        return 1 if classes is not None and len(classes) == 2 else None
    if classes is None:
        raise ValueError(
            f"positive={positive!r} names a class, and the model predicts numbers: it has none. Leave positive out."
        )
    return int(codes(pd.Series([positive], dtype=object), classes, "positive")[0])


def _spread(values: Array, held: Array) -> Array:
    """Values of the rows held among all rows (n, ...); 0 elsewhere."""
    everywhere = np.zeros((len(held), *values.shape[1:]), dtype=values.dtype)
    everywhere[held] = values
    return everywhere


def _finite(said: Array, what: str) -> Array:
    if undefined := int((~np.isfinite(said)).sum()):
        raise ValueError(
            f"the model's {what} have {undefined} values that are not finite, so its errors are not. Look at what it "
            "predicts at missing cells and at the bounds of the columns, or restrict the rows with where."
        )
    return said


TRAINED_HERE = (
    "the model was trained on this very release and shares its noise, so the score may be too good or too bad, and its error "
    "does not tell by how much: score it on a sample of real rows, or on a second release"
)
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class ScoringTask:
    """A model, the data it is asked about, and what every answer says.

    law   whether the rows are ranked → the law: by default the view as released, or the probability view for ranks.
    """

    task: Task
    law: Callable[[bool], Population | SampleLaw]
    notes: tuple[str, ...]

    def answers(self, needs: Sequence[Need], ranks: bool = False) -> Predictions:
        """The model's answers at every row of the law's error model: the same rows in any view of a release."""
        population = self.law(ranks)
        return self.task.answers(population.model.frame, population.given, set(needs))


def score(
    model: Any,
    data: Any,
    metric: str | Loss | Sequence[str | Loss] | None = None,
    *,
    target: str | None = None,
    positive: Any = None,
    where: Where = None,
    view: View | None = None,
) -> Estimate | Estimates:
    """How good a model's answers are, with the error of the score.

    model     with predict, and predict_proba or decision_function where the metric needs it; its classes_ make it a
              classifier, and its target says what it predicts. It is shown DataFrames in natural units.
    data      a Release, or a sample of real rows that the model was not trained on: a DataFrame, or a file's path.
    metric    as scikit-learn names it, or a function loss(y_true, prediction) → (n,). Several in a list give Estimates
              (`.to_frame()` is their table) from one question to the model. By default roc_auc for two classes, accuracy
              for more, r2 for numbers.
    target    the column that is predicted, for a model that does not say.
    positive  the class that precision, roc_auc and the like are of: of two the second. Of more classes these are
              averages over all (roc_auc one against the rest) unless one is named.
    where     a condition, or several. Rows without a target are left out, and the score says so.
    view      "signed", "probability" or "fitted", of a release. By default as released, where signed weights can give
              a score that there is not (told with the probability view's beside it); roc_auc and average_precision are
              of the probability view, and refuse signed weights.

    >>> ka.score(model, sample, "accuracy")
    accuracy(income): 0.8233 ± 0.0098 (95 %: 0.8040 to 0.8426; sampling 0.0098)
    >>> ka.score(model, sample, ["accuracy", "roc_auc"]).to_frame()[["value", "low", "high"]]
                         value       low      high
    question
    accuracy(income)  0.823333  0.804033  0.842634
    roc_auc(income)   0.879675  0.861069  0.898281
    """
    asked = scoring_task(model, data, target=target, positive=positive, where=where, view=view)
    if not isinstance(metric, Sequence) or isinstance(metric, str):
        return scores(asked, [metric_named(metric, asked.task.classes)])[0]
    if not metric:
        raise ValueError('metric is an empty list, so there is nothing to compute. Name a metric, such as "accuracy".')
    return scores(asked, [metric_named(name, asked.task.classes) for name in metric])


def scoring_task(
    model: Any, data: Any, *, target: str | None, positive: Any, where: Where, view: View | None
) -> ScoringTask:
    """A model and the data to ask it about; ValueError where they do not go together."""
    task = task_of(model, target, positive)
    if not isinstance(data, ReleaseData):
        return _of_sample(task, data, where, view)
    if task.target not in data.columns.names:
        raise ValueError(
            f"the release has no column {words.written(task.target)}, which the model predicts: there is no truth to "
            f"compare with. It has {words.names(data.columns.names)}. Score a model of one of these."
        )
    conditions = () if where is None else (where,) if isinstance(where, str) or callable(where) else tuple(where)
    if data.columns[task.target].missing:
        conditions = (*conditions, f"not missing({words.column(task.target)})")
    trained_on = getattr(getattr(model, "report", model), "release_digest", None)
    return ScoringTask(
        task=task,
        law=_laws(_of_shares(data), conditions, view),
        notes=(TRAINED_HERE,) if trained_on is not None and trained_on == digest(data) else (),
    )


def scores(asked: ScoringTask, metrics: Sequence[Metric]) -> Estimates:
    """Several metrics: one question to the model, and one solve for the errors of each view."""
    answers = asked.answers([metric.needs for metric in metrics], metrics[0].ranks)
    found: dict[int, Estimate] = {}
    for ranks in dict.fromkeys(metric.ranks for metric in metrics):
        places = [place for place, metric in enumerate(metrics) if metric.ranks == ranks]
        population = asked.law(ranks)
        told = [statistic_of(population, answers, metrics[place], asked) for place in places]
        found.update(zip(places, estimates(population, told), strict=True))
    return Estimates(found[place] for place in range(len(metrics)))


def statistic_of(
    population: Population | SampleLaw, answers: Predictions, metric: Metric, asked: ScoringTask
) -> Statistic:
    """A metric of a law's rows as a statistic, with notes on what is infeasible or undefined."""
    value = smooth_of(population, answers, metric)
    notes, influence = list(asked.notes), None
    least, largest = metric.bounds
    if not least - _ROUNDING <= value.value <= largest + _ROUNDING:
        what = f"{value.value:.4g} is no {metric.name}" if np.isfinite(value.value) else f"{metric.name} is undefined"
        notes.append(population.infeasible(what, lambda same: smooth_of(same, answers, metric).value))
    if np.isfinite(value.value) and np.isfinite(value.slope[: len(population.weights)]).all():
        influence = population.influence(value.slope)
    elif np.isfinite(value.value):
        notes.append(f"{metric.name} has a division by 0 or a root of 0 here: its first-order error is not known")
    question = population.text(f"{metric.name}({asked.task.target})")
    return Statistic(value=value.value, influence=influence, question=question, notes=tuple(notes))


def smooth_of(population: Population | SampleLaw, answers: Predictions, metric: Metric) -> Smooth:
    """The metric's value in a law and its derivative by the law's weights; ValueError without positive weight in all."""
    if (total := float(population.weights.sum())) <= 0:
        raise ValueError(
            f"the weights sum to {total:.3g}, so no mean over them is one of a population's rows. Ask "
            'view="probability".'
        )
    return metric.of(Evidence(population.weights, answers))


def _of_shares(release: ReleaseData) -> ReleaseData:
    """A release from elsewhere with weights that sum to one, the same at each call: what they summed to is no population's,
    and the probability view is nearest to a measure of any size."""
    total = fsum(release.weights)
    if release.measurement is not None or total <= 0 or abs(total - 1) < _ROUNDING:
        return release
    if "shares" not in memo(release):
        memo(release)["shares"] = release.replaced(
            weights=release.weights / total, fit_distance=None, thinning_error=None
        )
    found: ReleaseData = memo(release)["shares"]
    return found


def _laws(release: ReleaseData, conditions: tuple[Question, ...], view: View | None) -> Callable[[bool], Population]:
    @cache
    def law(ranks: bool) -> Population:
        if ranks and view == "signed" and not release.is_probability:
            raise ValueError(
                'a metric of ranks was asked with view="signed": rows of negative weight have no place in an order. Leave '
                'view out, or pass view="probability".'
            )
        return population_of(release, where=conditions or None, view=view or ("probability" if ranks else None))

    return law


def _of_sample(task: Task, data: Any, where: Where, view: View | None) -> ScoringTask:
    if view in ("fitted", "resampled"):
        raise ValueError(
            f'view="{view}" is of a release, and these are rows of a sample: they have equal weights. Leave view out.'
        )
    domain = getattr(task.model, "domain", None)
    known = sample_law(data, where, domain if isinstance(domain, Domain) else None, task.target)
    return ScoringTask(task, lambda ranks: known, known.notes)


def positive_shares(asked: ScoringTask, answers: Predictions) -> tuple[Array, Array]:
    """(predicted probability, whether it is so) of the class asked about, both (n,); ValueError if none is."""
    positive = asked.task.positive
    if positive is None or answers.probabilities is None:
        have = "it predicts numbers" if asked.task.classes is None else f"it has {len(asked.task.classes)}"
        raise ValueError(
            f"calibration is of one class's probability, and {have}. Pass positive=, the class asked about, of a classifier."
        )
    return answers.probabilities[:, positive].astype(float), answers.truth == positive


def frame_of(found: Estimates, index: pd.Index, level: float) -> pd.DataFrame:
    """Estimates as a table of this index."""
    return found.to_frame(level).set_axis(index, axis=0)
