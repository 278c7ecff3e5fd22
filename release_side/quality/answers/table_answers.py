"""Questions answered by the private table itself: over all its rows, piece by piece.

A question has the statistics of a workload: mean (or probability), var, std, cov, corr, quantile, each perhaps given a condition;
and slope, of the first argument on the second. Its answer is that of the rows as the domain reads them: clamped, with the defaults,
and weighted as in the release. Rows at which it is undefined are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.expressions import parse
from release_side.choices.workload import WorkloadQuestion


class TableAnswers:
    """The table's answers to some questions; rows are added piece by piece.

    columns   the domain that the questions are about, with derived columns.
    decode    encoded rows → a frame of these columns, in natural units.
    """

    def __init__(
        self, questions: Sequence[WorkloadQuestion], columns: Domain, decode: Callable[[Array], pd.DataFrame]
    ) -> None:
        self._columns, self._decode = columns, decode
        self._asked = [(each, _Values() if each.statistic == "quantile" else _Moments()) for each in questions]

    def add(self, rows: Array, weights: Array | None) -> None:
        """Add encoded rows, with their weights; None for equal ones."""
        frame, known = self._decode(rows), dict[str, Array]()
        weights = np.ones(len(frame)) if weights is None else weights

        def value(text: str) -> Array:
            if text not in known:
                known[text] = parse(text).evaluate(frame, self._columns).astype(float)
            return known[text]

        for question, found in self._asked:
            n_columns = 1 if question.statistic == "quantile" else len(question.arguments)
            values = np.column_stack([value(text) for text in question.arguments[:n_columns]])
            counted = np.isfinite(values).all(axis=1)
            if question.where is not None:
                counted &= value(question.where) == 1
            found.add(values[counted], weights[counted])

    def answers(self) -> list[float]:
        """One number for each question; NaN where no row has it."""
        return [found.answer(question) for question, found in self._asked]


class _Moments:
    """Sums of weights, values and products, of values less those of a first row: sums of squares then lose few digits."""

    def __init__(self) -> None:
        self._shift: Array | None = None
        self._total, self._sums, self._products = 0.0, np.zeros(1), np.zeros((1, 1))

    def add(self, values: Array, weights: Array) -> None:
        if not len(values):
            return
        if self._shift is None:
            self._shift = values[0]
            self._sums, self._products = np.zeros(values.shape[1]), np.zeros((values.shape[1],) * 2)
        shifted = values - self._shift
        self._total += float(weights.sum())
        self._sums += weights @ shifted
        self._products += shifted.T @ (weights[:, None] * shifted)

    def answer(self, question: WorkloadQuestion) -> float:
        if self._shift is None:
            return float("nan")
        mean = self._sums / self._total
        if question.statistic == "mean":
            return float(self._shift[0] + mean[0])
        covariance = self._products / self._total - np.outer(mean, mean)
        variances = np.maximum(np.diag(covariance), 0.0)
        if question.statistic in ("var", "std"):
            return float(variances[0] if question.statistic == "var" else np.sqrt(variances[0]))
        if question.statistic == "cov":
            return float(covariance[0, 1])
        below = variances[1] if question.statistic == "slope" else np.sqrt(variances[0] * variances[1])
        return float(covariance[0, 1] / below) if below > 0 else float("nan")


class _Values:
    """All values with their weights, for a quantile."""

    def __init__(self) -> None:
        self._values: list[Array] = []
        self._weights: list[Array] = []

    def add(self, values: Array, weights: Array) -> None:
        self._values.append(values[:, 0])
        self._weights.append(weights)

    def answer(self, question: WorkloadQuestion) -> float:
        values, weights = np.concatenate([[], *self._values]), np.concatenate([[], *self._weights])
        if not len(values):
            return float("nan")
        order = np.argsort(values, kind="stable")
        cumulative = np.cumsum(weights[order]) / weights.sum()
        index = np.searchsorted(cumulative, float(question.arguments[1]) * (1 - 1e-12))
        return float(values[order[min(int(index), len(order) - 1)]])
