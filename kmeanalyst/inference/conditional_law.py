"""Room 4: the law of a table's rows given X = x, as weights on the released points."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from kmeanalyst.inference.conditional_mean import (
    Given,
    check_is_condition,
    conditional_estimates,
    estimates_of,
    given_rows,
    texts_of,
)
from kmeanalyst.inference.estimate import Estimate, InverseCdf
from kmeanalyst.inference.population import shown
from kmeanalyst.inference.smoother import Smoother, smoother
from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.release import Question, Release, View


def conditional_law(
    release: Release,
    *,
    given: Given,
    where: Question | None = None,
    view: View | None = None,
    kernel: Kernel | str | None = None,
) -> ConditionalLaw:
    """The law of the rows given one value of each of some columns; options as in `conditional_expectation`."""
    names, rows, several = given_rows(release, given)
    if several:
        raise ValueError(
            "a conditional law is given one value of each column, and here there is a list. Ask for one law at a time, or "
            "for conditional_expectation, which takes lists."
        )
    return ConditionalLaw(smoother(release, names, where=where, view=view, kernel=kernel), rows)


@dataclass(frozen=True, eq=False, repr=False)
class ConditionalLaw:
    """Weights α(x) on the released points: E[f | X = x] is Σ α_i f(z_i), for any f.

    smooth  the regression on the given columns.
    given   their values, one row in natural units.

    >>> law = release.conditional_law(given={"age": 40})
    >>> law.text, law.weights.shape
    ('age = 40', (300,))
    >>> law.mean("hours-per-week")
    `hours-per-week` | age = 40: 42.8 ± 2.3 (95 %: 38.3 to 47.3; privacy 0.7, sampling 0.3, resolution 2.2)
    """

    smooth: Smoother
    given: pd.DataFrame

    @property
    def weights(self) -> Array:
        """α (M,): signed, as ridge weights are even where the release's are not; they sum to one."""
        return self.smooth.weights(self.smooth.at(self.smooth.conditioning.encode(self.given)))[0]

    @property
    def text(self) -> str:
        """What is given, as text."""
        return texts_of(self.smooth, self.given)[0]

    def __repr__(self) -> str:
        return f"ConditionalLaw of a row | {self.text} ({len(self.smooth.people.weights):,} points)"

    def to_frame(self) -> pd.DataFrame:
        """The released points with these weights in the column "weight".

        >>> release.conditional_law(given={"age": 40}).to_frame()[["age", "weight"]].head(2)
           age    weight
        0   93 -0.000137
        1   65  0.002926
        """
        return self.smooth.people.release.to_frame().assign(weight=self.weights)

    def expectation(self, question: Question) -> Estimate:
        """E[question | given], with its error bar.

        >>> release.conditional_law(given={"age": 40}).expectation("`hours-per-week` * 52")
        `hours-per-week` * 52 | age = 40: 2224 ± 119 (95 %: 1990 to 2458; privacy 37, sampling 14, resolution 112)
        """
        return conditional_estimates(self.smooth, question, self.given)[0]

    def mean(self, column: str) -> Estimate:
        """The conditional mean of a column of numbers, with its error bar.

        >>> release.conditional_law(given={"sex": "Male"}).mean("age")
        age | sex = Male: 38.49 ± 0.62 (95 %: 37.28 to 39.71; privacy 0.32, sampling 0.21, resolution 0.49)
        """
        return self.expectation(self.smooth.people.question(column))

    def probability(self, condition: Question) -> Estimate:
        """P(condition | given), with its error bar; ValueError if the question is no condition.

        >>> release.conditional_law(given={"age": 40}).probability("income == '>50K'")
        income == '>50K' | age = 40: 0.380 ± 0.039 (95 %: 0.305 to 0.456; privacy 0.022, sampling 0.012, resolution
            0.029)
        """
        check_is_condition(self.smooth, self.smooth.people.values(condition))
        return self.expectation(condition)

    def quantile(self, column: Question, q: float) -> Estimate:
        """The smallest released value at which the conditional distribution function reaches q.

        Signed weights give a function that can fall and leave [0, 1]: the mean of its largest value so far and its least
        from there on is taken, which cannot fall, within [0, 1]. The interval is that of the quantiles at q ± the error of
        the function (Woodruff 1952), within the column's bounds.

        >>> release.conditional_law(given={"age": 40}).quantile("hours-per-week", 0.5)
        quantile(hours-per-week, 0.5) | age = 40: 40.00 ± 0.26 (95 %: 40.00 to 41.00; privacy 0.10, sampling 0.04,
            resolution 0.23)
        """
        if not 0 < q < 1:
            raise ValueError(f"q must lie between 0 and 1, got {q!r}: it is a probability. Pass e.g. 0.5.")
        people, weights = self.smooth.people, self.weights
        question = people.question(column)
        values = people.values(question)
        places, which = np.unique(values[: len(weights)][people.weights != 0], return_inverse=True)
        steps = np.cumsum(np.bincount(which, weights[people.weights != 0]))
        highest, least = np.maximum.accumulate(steps), np.minimum.accumulate(steps[::-1])[::-1]
        cumulative = np.clip((highest + least) / 2, 0.0, 1.0)
        cumulative[-1] = 1.0
        bounds = people.bounds(column) or (float(places[0]), float(places[-1]))
        curve = InverseCdf(places, cumulative, q, 0.0, bounds)
        value = curve.at(q)
        below = np.where(np.isnan(values), np.nan, values <= value)
        text = f"quantile({shown(column)}, {q:g}) | {self.text}"
        found = estimates_of(self.smooth, below, [text], self.given)[0]
        by = replace(curve, standard_error=found.standard_error)
        slope = by.slope
        return Estimate(
            value=value,
            standard_error=slope * found.standard_error,
            parts={name: None if part is None else slope * part for name, part in found.parts.items()},
            view=found.view,
            question=text,
            notes=tuple(note for note in found.notes if "no probability" not in note),
            terms=tuple((model, -slope * influence) for model, influence in found.terms),
            interval_by=by,
        )
