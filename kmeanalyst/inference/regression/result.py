"""The answer of a regression: its table, and predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

from kmeanalyst.inference.estimate.error_model import PARTS
from kmeanalyst.inference.estimate.estimate import Estimate, Estimates, list_of_notes, z_of
from kmeanalyst.inference.regression.design import column_of
from kmeanalyst.inference.regression.fit import Fit
from kmeanalyst.inference.regression.intervals import ScoreInterval
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import REPLACED, Column
from kmeanalyst.releases.expressions import ExpressionError, parse, words
from kmeanalyst.releases.texts import Printed, on_screen
from kmeanalyst.sources.tables import as_frame

_INFINITE = (
    "an interval is infinite where the noise leaves it open whether the rate of a level is 0, or whether the target is determined "
    "by the predictors. Where all levels of a column have one, the level that they are compared with is too rare: name one that "
    "many rows have, such as reference={'race': 'White'}. Else join rare levels in a condition such as x in ['a', 'b'], leave such "
    "rows out with where, or leave out a term"
)


@dataclass(frozen=True, eq=False)
class RegressionEstimate(Printed):
    """Coefficients of a regression, each an Estimate, in the order of the formula.

    to_frame()                    the table: values, standard errors, intervals, p-values and the parts of errors
    fit["age"]                    one coefficient, as an Estimate
    predict(frame)                means at rows of yours, with errors and intervals
    summary(0.9), to_dict()       as text, or plain numbers
    np.exp(fit.to_frame()[["value", "low", "high"]])    odds ratios, of a logit link

    target        what was explained, as text.
    names         (k,) of the coefficients, the terms of the formula: "intercept", "age", "city == 'Basel'",
                  "age:city == 'Basel'"; of the levels of a column the first that occurs is what the others are compared with.
    coefficients  Estimates, in that order, on the scale of the link.
    family, link  as they were asked for.
    notes         what a reader should know in addition to the numbers.
    fit           the equations and their root, for intervals and predictions.

    Intervals hold both value ± z · standard error and the inverted score's interval, and pvalue is the larger of the two
    tests': where noise leaves it open whether a coefficient is finite, an end is infinite.

    >>> fit = release.glm("age ~ `education-num` + sex")
    >>> fit.names
    ('intercept', '`education-num`', "sex == 'Male'")
    >>> fit["education-num"], fit.view
    (age ~ `education-num`: 0.28 ± 0.71 (95 %: -1.13 to 1.68; privacy 0.30, sampling 0.07, resolution 0.63) [1 note], 'fitted')
    """

    target: str
    names: tuple[str, ...]
    coefficients: Estimates
    family: str = "gaussian"
    link: str = "identity"
    notes: tuple[str, ...] = ()
    fit: Fit = field(kw_only=True, repr=False)

    @property
    def view(self) -> str:
        return self.coefficients[0].view

    @property
    def pvalues(self) -> pd.Series:
        """Of the tests that each coefficient is 0, two-sided.

        >>> release.glm("age ~ income").pvalues.round(3)
        term
        intercept           0.0
        income == '>50K'    0.0
        dtype: float64
        """
        return pd.Series(2 * ndtr(-np.abs(self._z)), index=self._index)

    @property
    def _z(self) -> list[float]:
        found = []
        for one in self.coefficients:
            with np.errstate(all="ignore"):
                wald = float(np.divide(one.value, one.standard_error))
            rule = one.interval_by
            found.append(rule.distance_of(wald) if isinstance(rule, ScoreInterval) and np.isfinite(wald) else wald)
        return found

    @property
    def _index(self) -> pd.Index[Any]:
        return pd.Index(self.names, name="term")

    def _notes_with(self, frame: pd.DataFrame) -> tuple[str, ...]:
        ends = frame[["low", "high"]].to_numpy(dtype=float)
        return self.notes if np.isfinite(ends).all() else (*self.notes, _INFINITE)

    def __getitem__(self, name: str) -> Estimate:
        if (asked := name if name in self.names else words.column(name)) not in self.names:
            raise KeyError(f"no coefficient {name!r:.80}: there are {', '.join(self.names)}. Name one of these.")
        return self.coefficients[self.names.index(asked)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def to_frame(self, level: float = 0.95) -> pd.DataFrame:
        """One row for each coefficient, indexed by its term.

        Columns   value, standard_error, low, high (the interval at `level`), pvalue, privacy, sampling, resolution (NaN
                  where unknown).

        >>> release.glm("age ~ `education-num`").to_frame()[["value", "standard_error", "pvalue"]].round(3)
                          value  standard_error  pvalue
        term
        intercept        35.848           7.155   0.000
        `education-num`   0.274           0.705   0.699
        """
        frame = self.coefficients.to_frame(level).set_axis(self._index)
        frame.insert(4, "pvalue", self.pvalues)
        return frame.drop(columns=["view", "note"])

    def predict(self, frame: pd.DataFrame, level: float = 0.95) -> pd.DataFrame:
        """Means of the target at rows in natural units, with errors and intervals.

        frame    has the columns that the formula names; further ones are ignored.
        Returns  value, standard_error, low, high, privacy, sampling, resolution.

        >>> release.glm("income ~ sex", "binomial").predict(pd.DataFrame({"sex": ["Male", "Female"]})).iloc[:, :4].round(3)
           value  standard_error    low   high
        0  0.291           0.012  0.267  0.315
        1  0.133           0.020  0.099  0.178
        """
        return predicted(self.fit, as_frame(frame), level)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """The table as plain numbers, as `kmeanalyst glm --json` prints it.

        >>> release.glm("age ~ income").to_dict()["coefficients"][1]["term"]
        "income == '>50K'"
        """
        each = [
            {"term": name, **one.to_dict(level), "pvalue": float(p)}
            for name, one, p in zip(self.names, self.coefficients, self.pvalues, strict=True)
        ]
        about = {"target": self.target, "family": self.family, "link": self.link, "view": self.view}
        return about | {"coefficients": each, "notes": list(self._notes_with(self.to_frame(level)))}

    def summary(self, level: float = 0.95) -> str:
        """The table as text, in the manner of statsmodels: value, error, z, p, interval, and the error's parts.

        >>> print(release.glm("age ~ income").summary(0.9))
        age: gaussian family, identity link (fitted weights)
        ...
        """
        frame = self.to_frame(level)
        tail = (1 - level) / 2
        heads = ("", "value", "std err", "z", "P>|z|", f"[{tail:.3g}", f"{1 - tail:.3g}]", *PARTS)
        rows: list[tuple[str, ...]] = [heads]
        for one, (name, row), z in zip(self.coefficients, frame.iterrows(), self._z, strict=True):
            numbers = [row["value"], row["standard_error"], row["low"], row["high"]]
            value, error, low, high = (one.written(float(number)) for number in numbers)
            tests = (f"{z:.2f}".replace("-0.00", "0.00"), f"{row['pvalue']:.3f}")
            rows.append((str(name), value, error, *tests, low, high, *one.written_parts()))
        lines, left_out = on_screen(rows, 7)
        title = f"{self.target}: {self.family} family, {self.link} link ({self.view} weights{left_out})"
        double, single = ("".ljust(len(lines[0]), sign) for sign in "=-")
        notes = list_of_notes(self._notes_with(frame), self.coefficients)
        return "\n".join([title, double, lines[0], single, *lines[1:], double, *notes])

    def __repr__(self) -> str:
        return self.summary()


def predicted(fit: Fit, frame: pd.DataFrame, level: float) -> pd.DataFrame:
    columns, equations = fit.population.release.columns, fit.equations
    _check_columns(fit, frame)
    for name in _named(fit):
        _check_cells(columns[name], frame[name])
    asked = {question: parse(question).evaluate(frame, columns) for question in fit.design.questions}
    values = {question: np.asarray(cells, dtype=float) for question, cells in asked.items()}
    values |= _without_level(fit, values, frame)
    X = fit.design.matrix(values, len(frame))
    if np.isinf(X).any():
        name = fit.design.names[int(np.isinf(X).any(axis=0).argmax())]
        raise ValueError(
            f"{words.short(name)} is infinite at some rows of the frame, where there is no mean to predict. Leave those rows out."
        )
    means, by_beta = equations.means(fit.beta, X)
    half = z_of(level) * _errors(X, fit.total_covariance)
    low, high = equations.interval(X @ fit.beta, half)
    error = _errors(by_beta, fit.total_covariance)
    parts = {n: np.nan if part is None else _errors(by_beta, part) for n, part in fit.covariance.items()}
    numbers = {"value": means, "standard_error": error, "low": low, "high": high, **parts}
    return pd.DataFrame(numbers, index=frame.index)


def _errors(slopes: Array, covariance: Array) -> Array:
    return np.sqrt(np.einsum("nk,kl,nl->n", slopes, covariance, slopes).clip(0.0))


def _named(fit: Fit) -> list[str]:
    return list(dict.fromkeys(name for question in fit.design.questions for name in parse(question).columns))


def _check_cells(column: Column, cells: pd.Series) -> None:
    present = cells[cells.notna()]
    bad = present[column.encode(present)[1] == REPLACED] if len(present) else present
    if not len(bad):
        return
    name, cell = words.written(column.name), words.quoted(str(bad.iloc[0]))
    if column.has_levels:
        known = getattr(column, "levels", ())
        raise ValueError(
            f"{name} has no level {cell}: the model knows {', '.join(map(words.short, known[:20]))}. Leave such rows out, or make "
            "the cell missing, for which NaN is predicted."
        )
    raise ValueError(f"{name} is {column.kind}, and {cell} is not such a value. Correct the cell, or leave the row out.")


def _without_level(fit: Fit, values: Mapping[str, Array], frame: pd.DataFrame) -> dict[str, Array]:
    """The conditions of levels, NaN at rows that have none of those in the model: their cell is missing, or ValueError."""
    changed: dict[str, Array] = {}
    for text, factor in fit.design.factors.items():
        if not factor.conditions:
            continue
        none = np.sum([values[condition] for condition in factor.conditions], axis=0) == 0
        name = column_of(text)
        assert name is not None  # a factor with conditions is a column
        if (other := none & frame[name].notna().to_numpy()).any():
            raise ValueError(
                f"{words.written(name)} is {frame[name][other].iloc[0]!r} in some rows, a level that never occurs in the fitted "
                "population and has no coefficient. Leave such rows out."
            )
        changed |= {condition: np.where(none, np.nan, values[condition]) for condition in factor.conditions}
    return changed


def _check_columns(fit: Fit, frame: pd.DataFrame) -> None:
    named = _named(fit)
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(
            f"frame must be a DataFrame with the columns {', '.join(named)}, got {type(frame).__name__}. Write "
            f"pd.DataFrame({{{words.literal((named or ['age'])[0])}: [...]}}), for example."
        )
    if absent := [name for name in named if name not in frame.columns]:
        raise ExpressionError(
            f"the frame lacks {', '.join(absent)}, from which the model predicts. Pass a frame with the columns {', '.join(named)}."
        )
