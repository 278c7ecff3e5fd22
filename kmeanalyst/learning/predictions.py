"""Room 5: asking a model: which target, which classes, and its answers at rows in natural units, each asked for once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.learning.metrics import Answers, Need
from kmeanalyst.releases.cells import text_of
from kmeanalyst.releases.expressions import words


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

    def answers(self, frame: pd.DataFrame, given: Array | None, needs: Collection[Need]) -> Answers:
        """Truth and the model's answers at the rows of a frame (n, d); 0 where the condition `given` (n,) fails.

        Only rows with the condition are asked, and each of the model's functions at most once.
        """
        held = np.ones(len(frame), dtype=bool) if given is None else given
        truth = self._truth(frame[self.target][held])
        rows = self.inputs(frame[held].reset_index(drop=True))
        kinds = {need: self._kind(need) for need in needs}
        said = {kind: _spread(getattr(self, f"_{kind}")(rows), held) for kind in set(kinds.values())}
        asked: dict[str, Array] = {need: said[kind] for need, kind in kinds.items()}
        return Answers(truth=_spread(truth, held), classes=self.classes, positive=self.positive, **asked)

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
