"""What is asked of the columns of a release: each method calls a function of `inference`, imported on first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from kmeanalyst.kernels import Kernel
from kmeanalyst.releases.release import Question, ReleaseData, View

if TYPE_CHECKING:
    from kmeanalyst.inference.estimate.estimate import Estimate, Estimates
    from kmeanalyst.inference.questions.conditional import ConditionalLaw
    from kmeanalyst.inference.questions.moments import MatrixEstimate
    from kmeanalyst.inference.questions.tables import GroupBy
    from kmeanalyst.inference.variables.random_variable import RandomVariable


class Questions(ReleaseData):
    """Means, quantiles, tables and conditional expectations of a release, with their error bars."""

    def expectation(self, question: Question, *, where: Question | None = None, view: View | None = None) -> Estimate:
        """E[question], an expression over column names or a function of a DataFrame, with its error bar.

        >>> release.expectation("age * `hours-per-week`", where="sex == 'Female'")
        age * `hours-per-week` | sex == 'Female': 1446 ± 89 (95 %: 1271 to 1621; privacy 51, sampling 17, resolution 71)
        >>> release.expectation(lambda rows: rows["age"] ** 2).value
        1684.9...
        """
        from kmeanalyst.inference.questions.expectation import expectation

        return expectation(self, question, where=where, view=view)

    def __getitem__(self, columns: str | list[str]) -> RandomVariable:
        """A column as a random variable, or a list of them as one of several components: see `variable`."""
        return self.variable(columns)

    def variable(self, columns: str | Sequence[str], *, view: View | None = None) -> RandomVariable:
        """A column as a random variable, to calculate with and ask questions of; several as its components.

        view   as in `expectation`: "fitted" by default where something was measured.

        >>> release.variable(["age", "hours-per-week"])  # or release["age"] for one
        age: 38.60 ± 0.39 (16,000 points)
        `hours-per-week`: 40.89 ± 0.53 (16,000 points)
        """
        from kmeanalyst.inference.variables.random_variable import variable_of

        return variable_of(self, columns, view)

    def mean(self, column: str, *, where: Question | None = None, view: View | None = None) -> Estimate:
        """The mean of a column of numbers, with its error bar.

        >>> release.mean("age")
        age: 38.60 ± 0.39 (95 %: 37.82 to 39.37; privacy 0.26, sampling 0.18, resolution 0.23)
        """
        from kmeanalyst.inference.questions.expectation import mean

        return mean(self, column, where=where, view=view)

    def probability(self, condition: Question, *, where: Question | None = None, view: View | None = None) -> Estimate:
        """The probability of a condition such as "age > 50 and sex == 'Male'", with its error bar.

        >>> release.probability("age > 50", where="sex == 'Male'")
        age > 50 | sex == 'Male': 0.177 ± 0.018 (95 %: 0.141 to 0.212; privacy 0.011, sampling 0.006, resolution 0.013)
        """
        from kmeanalyst.inference.questions.expectation import probability

        return probability(self, condition, where=where, view=view)

    def expectations(
        self, questions: Sequence[Question], *, where: Question | None = None, view: View | None = None
    ) -> Estimates:
        """E[question] for each of many questions: a thousand cost little more than one.

        >>> release.expectations(["age", "age > 30", "age > 50"])
        age: 38.60 ± 0.39 (95 %: 37.82 to 39.37; privacy 0.26, sampling 0.18, resolution 0.23)
        age > 30: 0.661 ± 0.013 (95 %: 0.635 to 0.687; privacy 0.008, sampling 0.006, resolution 0.009)
        age > 50: 0.202 ± 0.016 (95 %: 0.172 to 0.233; privacy 0.008, sampling 0.005, resolution 0.013)
        """
        from kmeanalyst.inference.questions.expectation import expectations

        return expectations(self, questions, where=where, view=view)

    def ratio(
        self, numerator: Question, denominator: Question, *, where: Question | None = None, view: View | None = None
    ) -> Estimate:
        """E[numerator] / E[denominator], with its error bar.

        >>> release.ratio("`hours-per-week` * (sex == 'Female')", "`hours-per-week`")
        [`hours-per-week` * (sex == 'Female')] / [`hours-per-week`]: 0.313 ± 0.011 (95 %: 0.291 to 0.335; privacy
            0.007, sampling 0.006, resolution 0.006)
        """
        from kmeanalyst.inference.questions.expectation import ratio

        return ratio(self, numerator, denominator, where=where, view=view)

    def var(self, column: Question, *, where: Question | None = None, view: View | None = None) -> Estimate:
        """The variance of a column of numbers, or of an expression, with its error bar.

        >>> release.var("age")
        var(age): 195 ± 13 (95 %: 169 to 221; privacy 10, sampling 4, resolution 7)
        """
        from kmeanalyst.inference.questions.moments import var

        return var(self, column, where=where, view=view)

    def std(self, column: Question, *, where: Question | None = None, view: View | None = None) -> Estimate:
        """The standard deviation of a column of numbers, or of an expression, with its error bar.

        >>> release.std("age")
        std(age): 13.97 ± 0.47 (95 %: 13.05 to 14.89; privacy 0.37, sampling 0.13, resolution 0.26)
        """
        from kmeanalyst.inference.questions.moments import std

        return std(self, column, where=where, view=view)

    def cov(
        self, columns: Sequence[str] | None = None, *, where: Question | None = None, view: View | None = None
    ) -> MatrixEstimate:
        """Covariances with error bars; of all numbers and booleans that cannot be missing by default.

        >>> release.cov(["age", "hours-per-week"]).value
                               age  hours-per-week
        age             195.178282       23.982532
        hours-per-week   23.982532      154.335544
        """
        from kmeanalyst.inference.questions.moments import cov

        return cov(self, columns, where=where, view=view)

    def corr(
        self, columns: Sequence[str] | None = None, *, where: Question | None = None, view: View | None = None
    ) -> MatrixEstimate:
        """Pearson correlations with error bars; of all numbers and booleans that cannot be missing by default.

        >>> release.corr(["age", "education-num"])
                            age  education-num
        age            1.000000       0.052068
        education-num  0.052068       1.000000
        standard errors
                            age  education-num
        age            0.000000       0.101818
        education-num  0.101818       0.000000
        (fitted weights)
        note: more than half of its variance is resolution: a release with --kernel margins counts cells of age, where
            this one has smooth features of all columns
        """
        from kmeanalyst.inference.questions.moments import corr

        return corr(self, columns, where=where, view=view)

    def cdf(
        self, column: Question, x: float | Sequence[float], *, where: Question | None = None, view: View | None = None
    ) -> Estimate | Estimates:
        """P(column <= x): an Estimate for a number, Estimates for a list.

        >>> release.cdf("age", [30, 50])
        age <= 30: 0.339 ± 0.013 (95 %: 0.313 to 0.365; privacy 0.008, sampling 0.006, resolution 0.009)
        age <= 50: 0.798 ± 0.016 (95 %: 0.767 to 0.828; privacy 0.008, sampling 0.005, resolution 0.013)
        """
        from kmeanalyst.inference.questions.quantiles import cdf

        return cdf(self, column, x, where=where, view=view)

    def quantile(
        self, column: Question, q: float | Sequence[float], *, where: Question | None = None, view: View | None = None
    ) -> Estimate | Estimates:
        """The smallest value at which the probability view's distribution function reaches q.

        An Estimate for a number, Estimates for a list; its interval is not symmetric and stays within the bounds.

        >>> release.quantile("age", [0.25, 0.5, 0.75])
        quantile(age, 0.25): 28.00 ± 0.51 (95 %: 27.00 to 29.00; privacy 0.30, sampling 0.21, resolution 0.36)
        quantile(age, 0.5): 37.00 ± 0.51 (95 %: 36.00 to 38.00; privacy 0.22, sampling 0.18, resolution 0.42)
        quantile(age, 0.75): 47.0 ± 1.0 (95 %: 45.0 to 49.0; privacy 0.6, sampling 0.5, resolution 0.7)
        """
        from kmeanalyst.inference.questions.quantiles import quantile

        return quantile(self, column, q, where=where, view=view)

    def histogram(
        self,
        column: str,
        *,
        bins: int | Sequence[float] | None = None,
        where: Question | None = None,
        view: View | None = None,
        level: float = 0.95,
    ) -> pd.DataFrame:
        """Probabilities of a column's groups with error bars: levels, atoms, ranges between public edges, or bins.

        >>> release.histogram("sex")[["probability", "standard_error"]]
                probability  standard_error
        sex
        Female     0.331615        0.008593
        Male       0.668385        0.008593
        """
        from kmeanalyst.inference.questions.tables import histogram

        return histogram(self, column, bins=bins, where=where, view=view, level=level)

    def table(
        self,
        a: str,
        b: str | None = None,
        *,
        where: Question | None = None,
        view: View | None = None,
        level: float = 0.95,
    ) -> pd.DataFrame:
        """Probabilities of pairs of groups of two columns with error bars; ["probability"].unstack() is the crosstab.

        >>> release.table("sex", "income")["probability"].unstack()
        income     <=50K      >50K
        sex
        Female  0.287440  0.044176
        Male    0.474199  0.194186
        """
        from kmeanalyst.inference.questions.tables import table

        return table(self, a, b, where=where, view=view, level=level)

    def groupby(
        self, column: str, *, where: Question | None = None, view: View | None = None, level: float = 0.95
    ) -> GroupBy:
        """Statistics for each group of a column: groupby("city").mean("age") is a DataFrame with error bars.

        >>> release.groupby("sex").mean("hours-per-week")[["value", "standard_error"]]
                    value  standard_error
        sex
        Female  38.612230        1.281035
        Male    42.023168        0.671773
        """
        from kmeanalyst.inference.questions.tables import GroupBy

        return GroupBy(self, column, where, view, level)

    def standardised(
        self,
        question: Question,
        *,
        population: Mapping[str, float],
        by: str | None = None,
        where: Question | None = None,
        view: View | None = None,
    ) -> Estimate:
        """An expectation with the groups of a column in the proportions of a declared population (direct standardisation).

        population   group → share or count, taken to be exact; without `by` the groups are conditions.

        >>> release.standardised("income == '>50K'", by="sex", population={"Female": 0.5, "Male": 0.5})
        income == '>50K' standardised by sex: 0.2119 ± 0.0081 (95 %: 0.1960 to 0.2277; privacy 0.0052, sampling 0.0052,
            resolution 0.0033)
        """
        from kmeanalyst.inference.contingency.standardised import standardised

        return standardised(self, question, population=population, by=by, where=where, view=view)

    def conditional_expectation(
        self,
        question: Question,
        *,
        given: Mapping[str, Any] | pd.DataFrame,
        where: Question | None = None,
        view: View | None = None,
        kernel: Kernel | str | None = None,
    ) -> Estimate | Estimates:
        """E[question | columns have these values], with its error bar: given={"age": 40}, or a list of values.

        Smoothed over neighbouring values; `where` is exact. An Estimate for single values, Estimates for lists.

        >>> release.conditional_expectation("income == '>50K'", given={"age": [30, 50]})
        income == '>50K' | age = 30: 0.139 ± 0.031 (95 %: 0.078 to 0.201; privacy 0.017, sampling 0.008, resolution 0.025)
        income == '>50K' | age = 50: 0.367 ± 0.054 (95 %: 0.261 to 0.472; privacy 0.030, sampling 0.014, resolution 0.042)
        """
        from kmeanalyst.inference.questions.conditional import conditional_expectation

        return conditional_expectation(self, question, given=given, where=where, view=view, kernel=kernel)

    def conditional_law(
        self,
        *,
        given: Mapping[str, Any],
        where: Question | None = None,
        view: View | None = None,
        kernel: Kernel | str | None = None,
    ) -> ConditionalLaw:
        """The distribution of the rows given values of some columns: weights on the points, to ask for means and quantiles.

        >>> release.conditional_law(given={"age": 40}).mean("hours-per-week")
        `hours-per-week` | age = 40: 42.8 ± 2.3 (95 %: 38.3 to 47.3; privacy 0.7, sampling 0.3, resolution 2.2)
        """
        from kmeanalyst.inference.questions.conditional import conditional_law

        return conditional_law(self, given=given, where=where, view=view, kernel=kernel)
