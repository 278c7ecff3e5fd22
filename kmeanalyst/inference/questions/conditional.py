"""E[f(Y) | X = x] from one release, each with its error.

The value, its influence function and the remaining bias are those of the regression (`conditional_embedding`), moved by what the
measurement says of the amplitude of the dependence. A ridge narrower than an eighth of a column's range stays flattened: its
peak may be missed (tests/benchmarks/conditional_expectation.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.estimate import Estimate, Estimates
from kmeanalyst.inference.estimate.population import estimates, shown
from kmeanalyst.inference.estimate.statistic import Statistic
from kmeanalyst.inference.questions.conditional_embedding import Smoother, smoother
from kmeanalyst.kernels import Kernel
from kmeanalyst.releases.domain.column import KEPT
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.release import Condition, Question, ReleaseData, View

Given: TypeAlias = Mapping[str, Any] | pd.DataFrame

_FAR = 0.5  # share of the prior variance: if the release leaves more, the answer is mostly extrapolated
_ROUNDING = 1e-9


def conditional_expectation(
    release: ReleaseData,
    question: Question,
    *,
    given: Given,
    where: Condition = None,
    view: View | None = None,
    kernel: Kernel | str | None = None,
) -> Estimate | Estimates:
    """E[question | given columns have these values], smoothed over neighbouring values of numbers.

    question  an expression over column names, or a function of a DataFrame; a condition gives its probability.
    given     column → a value, or a list of values, in natural units: {"age": [30, 40], "sex": "F"}; or a DataFrame of
              such columns. None is a missing cell, where the domain declares it.
    where     a condition on the rows that are used; for levels it is exact, and needs no smoothing.
    view      "signed" (as released; the default) or "probability". Where signed weights give a regression without a
              minimum, the default takes the probability view, and a note says so.
    kernel    on the given columns: Kernel or its text. By default the table kernel's lengthscales down to an eighth of a
              column's range: narrower dependence is not seen.
    Returns   Estimate where every value is given by itself, Estimates (in order) where there is a list or a DataFrame.
    Errors    ValueError for values that are not of their column's domain.

    >>> release.conditional_expectation("income == '>50K'", given={"age": [30, 50]})
    income == '>50K' | age = 30: 0.139 ± 0.037 (95 %: 0.067 to 0.212; privacy 0.017, sampling 0.008, resolution 0.032)
    income == '>50K' | age = 50: 0.367 ± 0.053 (95 %: 0.262 to 0.471; privacy 0.030, sampling 0.014, resolution 0.042)
    """
    names, rows, several = given_rows(release, given)
    smooth = smoother(release, names, where=where, view=view, kernel=kernel)
    answers = conditional_estimates(smooth, question, rows)
    return answers if several else answers[0]


def conditional_estimates(smooth: Smoother, question: Question, rows: pd.DataFrame) -> Estimates:
    """A question's means given each of the rows (q, conditioning columns), moved by what is known of their amplitude."""
    texts = [f"{shown(question)} | {text}" for text in texts_of(smooth, rows)]
    population, at = smooth.population, smooth.at(smooth.conditioning.encode(rows))
    values = population.values(question)
    found, influences, left = smooth.answers(values, at)
    amplitudes = smooth.amplitudes(at)
    if amplitudes is not None:
        moved, error = amplitudes.of(question, values)
        found, left = found + moved, np.hypot(left, error)
    at_points = values[: len(population.weights)][population.weights != 0]
    is_condition = bool(np.isin(at_points, (0.0, 1.0)).all())
    notes = [(*smooth.notes, *_notes(*pair, is_condition)) for pair in zip(found, smooth.unknown(at), strict=True)]
    influences = np.vstack([influences, left]).T  # they end in the bias: see ErrorModel
    asked = zip(found, influences, texts, notes, strict=True)
    return estimates(population, [Statistic(float(value), *of_value) for value, *of_value in asked])


def _notes(value: float, unknown: float, is_condition: bool) -> list[str]:
    notes = []
    if unknown > _FAR:
        notes.append(
            "the release has hardly any weight near these values: the answer depends on distant ones, and its error on the "
            "kernel's smoothness"
        )
    if is_condition and not -_ROUNDING <= value <= 1 + _ROUNDING:
        notes.append(f"{value:.4g} is not a probability: the weights of a conditional distribution can be negative")
    return notes


def given_rows(release: ReleaseData, given: Given) -> tuple[list[str], pd.DataFrame, bool]:
    """Column names, rows (q, k) of their values, and whether several were asked for; ValueError if they are not of the domain."""
    table: dict[Any, Any] = dict(given)
    if not table:
        raise ValueError(
            'given names no column: a conditional answer needs at least one value. Write given={"age": 40}.'
        )
    for name in table:
        if name not in release.columns.names:
            raise ValueError(
                f"no column {name!r} to be given; the columns are {', '.join(release.columns.names)}. Name some of these."
            )
    lengths = {len(values) for values in table.values() if _is_list(values)}
    if len(lengths) > 1 or 0 in lengths:
        raise ValueError(
            f"the lists of given values have lengths {sorted(lengths)}: each answer needs a value of every column. "
            "Give lists of one length, at least 1, and single values for what stays the same."
        )
    q = next(iter(lengths), 1)
    cells = {name: list(values) if _is_list(values) else [values] * q for name, values in table.items()}
    for name, values in cells.items():
        column = release.columns[name]
        _, status = column.encode(np.array(values, dtype=object))
        if (status != KEPT).any():
            wrong = values[int(np.argmax(status != KEPT))]
            raise ValueError(
                f"{wrong!r:.80} is not a value of {name}, which is {column.describe()}: the release has no rows there. "
                "Give values of its domain."
            )
    domain = Domain(tuple(release.columns[name] for name in cells))
    rows = domain.decode(domain.encode({name: np.array(values, dtype=object) for name, values in cells.items()}))
    return list(cells), rows, bool(lengths)


def _is_list(values: Any) -> bool:
    return isinstance(values, Sequence | np.ndarray | pd.Series | pd.Index) and not isinstance(values, str)


def texts_of(smooth: Smoother, rows: pd.DataFrame) -> list[str]:
    """The given values of each row as text: "age = 40, sex = F"; then the condition."""
    cells = [[f"{name} = {_shown(value)}" for name, value in row.items()] for row in rows.to_dict("records")]
    after = f", {smooth.population.condition}" if smooth.population.condition else ""
    return [", ".join(row) + after for row in cells]


def _shown(value: Any) -> str:
    if pd.isna(value):
        return "(missing)"
    if isinstance(value, pd.Timestamp):
        return value.date().isoformat()
    return f"{value:.6g}" if isinstance(value, float) else str(value)
