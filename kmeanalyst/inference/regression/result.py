"""The result of a regression: coefficients with their errors, tests of several, effects and predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

from kmeanalyst.inference.estimate.estimate import Estimate, Estimates, list_of_notes
from kmeanalyst.inference.regression.inversion import ScoreInterval
from kmeanalyst.releases.expressions import words

if TYPE_CHECKING:
    from kmeanalyst.inference.regression.fit import Fit
    from kmeanalyst.inference.regression.tests_of_coefficients import CoefficientTest


@dataclass(frozen=True, eq=False)
class RegressionEstimate:
    """Coefficients of a regression, each an Estimate, in the order of the formula.

    to_frame()                    the table: values, standard errors, intervals, p-values and the parts of errors
    fit["age"]                    one coefficient, as an Estimate
    odds_ratios()                 exp of coefficients and intervals, of logit and log links
    average_marginal_effects()    in units of the target
    wald_test(["sex", "age"])     that several coefficients are 0; score_test(...) where noise makes them uncertain
    predict(frame)                means at rows of yours, with errors and intervals
    summary(0.9), to_dict()       as text, or plain numbers

    target        what was explained, as text.
    names         (k,) of the coefficients, the terms of the formula: "intercept", "age", "city == 'Basel'",
                  "age:city == 'Basel'"; of the levels of a column the first that occurs is what the others are compared with.
    coefficients  Estimates, in that order, on the scale of the link.
    family, link  as they were asked for.
    notes         what a reader should know in addition to the numbers.
    fit           the equations and their root, for tests, effects and predictions.

    Intervals hold both value ± z · standard error and the inverted score's interval, and pvalue is the larger of the two tests':
    where noise leaves it open whether a coefficient is finite, an end is infinite.

    >>> fit = release.regression("age", ["education-num", "sex"])
    >>> fit.names
    ('intercept', '`education-num`', "sex == 'Male'")
    >>> fit["education-num"], fit.view
    (age ~ `education-num`: 0.28 ± 0.54 (95 %: -0.79 to 1.36; privacy 0.30, sampling 0.07, resolution 0.45), 'fitted')
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
        """The weights it was computed with."""
        return self.coefficients[0].view

    @property
    def pvalues(self) -> pd.Series:
        """Of the tests that each coefficient is 0, two-sided.

        >>> release.regression("age", ["income"]).pvalues.round(3)
        term
        intercept           0.0
        income == '>50K'    0.0
        dtype: float64
        """
        return pd.Series(2 * ndtr(-np.abs(self._z)), index=self._index)

    @property
    def _z(self) -> list[float]:
        """How many standard errors each coefficient is from 0."""
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

    def _notes_of_infinite(self, frame: pd.DataFrame) -> tuple[str, ...]:
        """Why ends of the table's intervals are infinite."""
        from kmeanalyst.inference.regression.infinite import notes_of_infinite

        ends = frame[["low", "high"]].to_numpy(dtype=float)
        return notes_of_infinite(self.fit, self.target, ~np.isfinite(ends).all(axis=1))

    def __getitem__(self, name: str) -> Estimate:
        """The coefficient of a name; a column's own name does where its question has backticks."""
        return self.coefficients[self.names.index(self._named(name))]

    def _named(self, name: str) -> str:
        """The name of a coefficient; KeyError if there is none."""
        if (asked := name if name in self.names else words.column(name)) not in self.names:
            raise KeyError(f"no coefficient {name!r:.80}: there are {', '.join(self.names)}. Name one of these.")
        return asked

    def to_frame(self, level: float = 0.95) -> pd.DataFrame:
        """One row for each coefficient, indexed by its term.

        Columns   value, standard_error, low, high (the interval at `level`), pvalue, privacy, sampling, resolution (NaN
                  where unknown).

        >>> release.regression("age", ["education-num"]).to_frame()[["value", "standard_error", "pvalue"]].round(3)
                          value  standard_error  pvalue
        term
        intercept        35.848           5.534   0.000
        `education-num`   0.274           0.542   0.614
        """
        frame = self.coefficients.to_frame(level).set_axis(self._index)
        frame.insert(4, "pvalue", self.pvalues)
        return frame.drop(columns=["view", "note"])

    def odds_ratios(self, level: float = 0.95) -> pd.DataFrame:
        """exp of the coefficients and of their intervals' ends: odds ratios of logit models, ratios of means of log links.

        >>> release.glm("income ~ sex", "binomial").odds_ratios().round(2)
                       ratio   low  high  pvalue
        term
        intercept       0.15  0.11  0.21     0.0
        sex == 'Male'   2.66  1.84  4.02     0.0
        """
        if self.link not in ("logit", "log"):
            raise ValueError(
                f'exp of a coefficient is a ratio under logit and log links, and this is {self.link}. Fit with link="logit", or '
                "ask average_marginal_effects()."
            )
        frame = self.to_frame(level)
        ratios = np.exp(frame[["value", "low", "high"]])
        return ratios.rename(columns={"value": "ratio"}).assign(pvalue=frame["pvalue"])

    def average_marginal_effects(self) -> Estimates:
        """By how much the target's mean changes with each number, and between each level and the first, on average over the rows.

        Of a number: the mean of the derivative by the factor as it is written. Of several outcomes: for each of them.

        >>> release.glm("income ~ age + sex", "binomial").average_marginal_effects()
        income == '>50K' by age: 0.0078 ± 0.0013 (95 %: 0.0052 to 0.0104; privacy 0.0009, sampling 0.0003, resolution 0.0009)
        income == '>50K' by sex == 'Male': 0.157 ± 0.026 (95 %: 0.105 to 0.209; privacy 0.019, sampling 0.011, resolution 0.014)
        """
        from kmeanalyst.inference.regression.effects import average_marginal_effects

        return average_marginal_effects(self.fit, self.target)

    def wald_test(self, names: Sequence[str]) -> CoefficientTest:
        """Wald's test that several coefficients are 0, named as the table has them, or by their term or column.

        >>> release.glm("income ~ age + sex", "binomial").wald_test(["age", "sex"])
        Wald test of age, sex == 'Male': χ² = 40... on 2 df, p = ...
        """
        from kmeanalyst.inference.regression.tests_of_coefficients import wald_test

        return wald_test(self.fit, names)

    def score_test(self, names: Sequence[str]) -> CoefficientTest:
        """The score test that several coefficients are 0: better than Wald's where noise makes coefficients uncertain.

        >>> release.glm("income ~ age + sex", "binomial").score_test(["age", "sex"])
        score test of age, sex == 'Male': χ² = 76... on 2 df, p = ...
        """
        from kmeanalyst.inference.regression.tests_of_coefficients import score_test

        return score_test(self.fit, names)

    def predict(self, frame: pd.DataFrame, level: float = 0.95) -> pd.DataFrame:
        """Means of the target at rows in natural units, with errors and intervals; of several outcomes a row for each.

        frame    has the columns that the formula names; further ones are ignored.
        Returns  value, standard_error, low, high, privacy, sampling, resolution; `outcome` where there are several.

        >>> release.glm("income ~ sex", "binomial").predict(pd.DataFrame({"sex": ["Male", "Female"]})).iloc[:, :4].round(3)
           value  standard_error    low   high
        0  0.291           0.011  0.270  0.312
        1  0.133           0.018  0.101  0.173
        """
        from kmeanalyst.inference.regression.effects import predicted

        return predicted(self.fit, frame, level)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """The table as plain numbers, as `kmeanalyst glm --json` prints it.

        >>> release.regression("age", ["income"]).to_dict()["coefficients"][1]["term"]
        "income == '>50K'"
        """
        each = [
            {"term": name, **one.to_dict(level), "pvalue": float(p)}
            for name, one, p in zip(self.names, self.coefficients, self.pvalues, strict=True)
        ]
        about = {"target": self.target, "family": self.family, "link": self.link, "view": self.view}
        notes = [*self.notes, *self._notes_of_infinite(self.to_frame(level))]
        return about | {"coefficients": each, "notes": notes}

    def summary(self, level: float = 0.95) -> str:
        """The table as text, in the manner of statsmodels: value, error, z, p, interval, and the error's parts.

        >>> print(release.regression("age", ["income"]).summary(0.9))
        age: gaussian family, identity link (fitted weights)
        ...
        """
        frame = self.to_frame(level)
        tail = (1 - level) / 2
        heads = (
            "",
            "value",
            "std err",
            "z",
            "P>|z|",
            f"[{tail:.3g}",
            f"{1 - tail:.3g}]",
            "privacy",
            "sampling",
            "resolution",
        )
        rows: list[tuple[str, ...]] = [heads]
        for one, (name, row), each in zip(self.coefficients, frame.iterrows(), self._z, strict=True):
            numbers = [row["value"], row["standard_error"], row["low"], row["high"]]
            value, error, low, high = (one.written(float(number)) for number in numbers)
            parts = ("unknown" if part is None else one.written(part) for part in one.parts.values())
            z = f"{each:.2f}".replace("-0.00", "0.00")
            rows.append((str(name), value, error, z, f"{row['pvalue']:.3f}", low, high, *parts))
        widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        ]
        title = f"{self.target}: {self.family} family, {self.link} link ({self.view} weights)"
        double, single = ("".ljust(len(lines[0]), sign) for sign in "=-")
        notes = list_of_notes((*self.notes, *self._notes_of_infinite(frame)), self.coefficients)
        return "\n".join([title, double, lines[0], single, *lines[1:], double, *notes])

    def __repr__(self) -> str:
        return self.summary()
