"""Release, the published object with a method for each question; and how one is read or made from weighted data.

The value is `kmeanalyst.releases.release.ReleaseData`. Every method calls a function of a lower floor, imported on first use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.release import Question, ReleaseData, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from kmeanalyst.inference.claims.claims import Claims
    from kmeanalyst.inference.contingency.contingency_test import ContingencyTest
    from kmeanalyst.inference.contingency.survival import SurvivalCurve
    from kmeanalyst.inference.estimate.estimate import Estimate, Estimates
    from kmeanalyst.inference.questions.conditional import ConditionalLaw
    from kmeanalyst.inference.questions.moments import MatrixEstimate
    from kmeanalyst.inference.questions.tables import GroupBy
    from kmeanalyst.inference.regression.result import RegressionEstimate
    from kmeanalyst.inference.variables.random_variable import RandomVariable
    from kmeanalyst.learning.rows.encoder import Encoding, Missing
    from kmeanalyst.learning.rows.labels import Labels
    from kmeanalyst.learning.rows.training_rows import TaskKind, TrainingData
    from kmeanalyst.representation.points.thinning import ThinWeights


class Release(ReleaseData):
    __doc__ = ReleaseData.__doc__  # the fields are described once, where they are

    def view_weights(self, view: View = "signed") -> Array:
        """Weights (M,) of a view: "signed" as released, or "probability", the nearest in RKHS distance that are probabilities.

        >>> release.view_weights("probability").min() >= 0
        np.True_
        """
        from kmeanalyst.representation.weights.views import view_weights

        return view_weights(self, view)

    def to_frame(
        self, view: View = "signed", *, rows: int | None = None, rng: np.random.Generator | int | None = None
    ) -> pd.DataFrame:
        """Columns and a "weight" column.

        view   "signed": as released. "probability": the nearest probability weights.
               "resampled": `rows` rows (M by default) of equal weight 1/rows, drawn from the probability view.
               "fitted": the rows and weights that default answers are sums over, some of them perhaps negative.

        >>> release.to_frame("probability")[["age", "sex", "weight"]].head(2)
           age     sex    weight
        0   93    Male  0.000546
        1   65  Female  0.004763
        """
        from kmeanalyst.inference.estimate.error_model import fitted_frame
        from kmeanalyst.representation.weights.views import view_frame

        if view == "fitted" and rows is None:
            return fitted_frame(self)
        return view_frame(self, view, rows=rows, rng=rng)

    def resample(self, n: int, *, rng: np.random.Generator | int | None = None) -> pd.DataFrame:
        """n rows of equal weight: systematic resampling of the probability view (Kitagawa 1996), shuffled.

        Each point appears ⌊n·p⌋ or ⌈n·p⌉ times, so that the rows are as close to the view as n rows can be.

        >>> release.resample(1000, rng=1)[["age", "income"]].head(2)
           age income
        0   36  <=50K
        1   35  <=50K
        """
        from kmeanalyst.representation.weights.views import resample

        return resample(self, n, rng=rng)

    def thin(
        self, n: int, *, weights: ThinWeights = "probability", rng: np.random.Generator | int | None = 0
    ) -> Release:
        """A release with n of the points, as close in RKHS distance as the search finds: see `kmeanalyst.thin`.

        >>> small = release.thin(50)
        >>> len(small), small.mean("age")
        (50, age: 38.60 ± 0.48 (95 %: 37.66 to 39.54; privacy 0.25, sampling 0.18, resolution 0.37))
        """
        from kmeanalyst.representation.points.thinning import thin

        return thin(self, n, weights=weights, rng=rng)

    def to_netcdf(self, path: str | Path) -> None:
        """Export points and weights to NetCDF (an export: the file of record is .kme).

        >>> release.to_netcdf("adult.nc")
        """
        from kmeanalyst.releases.file.export import write_netcdf

        write_netcdf(self, path)

    def to_sklearn(
        self,
        target: str,
        *,
        columns: Sequence[str] | None = None,
        view: View = "probability",
        effective_rows: float | None = None,
        task: TaskKind | None = None,
        encoding: Encoding = "onehot",
        missing: Missing = "mark",
        labels: Labels = "released",
        rng: np.random.Generator | int | None = 0,
    ) -> TrainingData:
        """(X, y, sample_weight) for scikit-learn's own fit; `kmeanalyst.fit` also chooses what the estimator can use.

        target          the column to predict.
        columns         what to predict it from; by default all but the target and those computed from it, or it from them.
        view            "signed" (many estimators silently misuse these: `kmeanalyst.weight_support`),
                        "probability", "resampled" (rows of equal weight) or "fitted" (the population that error bars use).
        effective_rows  what the weights sum to; by default the effective size of the points, (Σp)²/Σp² (Kish 1965).
        task            "classification" or "regression"; by default numbers are regressed.
        encoding        "onehot", "cells", "codes" or "natural"; missing "mark" or "nan": see `DomainEncoder`.
        labels          "released", the points' own; "measured", "smoothed", "drawn": see `kmeanalyst.fit`, which uses them first.
        Returns         X a DataFrame of features, y the target in natural units and levels, sample_weight without zeros.

        >>> X, y, sample_weight = release.to_sklearn("income")
        >>> X.shape, y[:2], round(sample_weight.sum())
        ((288, 12), array(['<=50K', '<=50K'], dtype=object), 154)
        """
        from kmeanalyst.learning.rows.training_rows import to_sklearn

        return to_sklearn(
            self, target, columns=columns, view=view, effective_rows=effective_rows, task=task, encoding=encoding,
            missing=missing, labels=labels, rng=rng,
        )  # fmt: skip

    def report(
        self,
        path: str | Path,
        *,
        source: str | Path | None = None,
        columns: Sequence[str] | None = None,
        view: View | None = None,
    ) -> None:
        """Write one HTML page for a colleague: what the release guarantees, shows and cannot show; it needs no network.

        source   the .kme file of the release; the page then states its name and SHA-256.
        columns  names of the columns to show; the first sixty by default.
        view     as in `expectation`.

        >>> release.report("adult.html", columns=["age", "income"])
        """
        from kmeanalyst.report import write_report

        write_report(self, path, source=source, columns=columns, view=view)

    def write(self, path: str | Path) -> None:
        """Write the release as a .kme file; the file appears whole or not at all.

        >>> release.thin(50).write("small.kme")
        """
        from kmeanalyst.releases.file import write_release

        write_release(self, path)

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

    def plot(
        self,
        column: str,
        other: str | None = None,
        *,
        where: Question | None = None,
        view: View | None = None,
        level: float = 0.95,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw a column's histogram, or the table of two columns, on Axes; returns them. More kinds: `kmeanalyst.plots`.

        >>> axes = release.plot("age")
        >>> axes.figure.savefig("age.png")
        """
        from kmeanalyst import plots

        if other is None:
            return plots.histogram(self, column, where=where, view=view, level=level, ax=ax)
        return plots.table(self, column, other, where=where, view=view, level=level, ax=ax)

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

    def contingency(self, a: str, b: str, *, given: str | None = None) -> ContingencyTest:
        """The χ² test of independence of two columns by their measured table: see `kmeanalyst.contingency_test`.

        >>> ka.read_release("counted.kme").contingency("sex", "income").df
        1
        """
        from kmeanalyst.inference.contingency.contingency_test import contingency_test

        return contingency_test(self, a, b, given=given)

    def odds_ratio(
        self,
        first: Question,
        second: Question,
        *,
        given: str | None = None,
        where: Question | None = None,
        view: View | None = None,
    ) -> Estimate:
        """The odds ratio of two conditions; given a column, that common to its groups (Mantel & Haenszel 1959).

        >>> counted = ka.read_release("counted.kme")
        >>> counted.odds_ratio("income == '>50K'", "sex == 'Male'")
        odds ratio of income == '>50K' by sex == 'Male': 3.11 ± 0.55 (95 %: 2.19 to 4.41; privacy 0.28, sampling 0.24,
            resolution 0.41)
        >>> counted.odds_ratio("income == '>50K'", "sex == 'Male'", given="marital-status").value
        1.339...
        """
        from kmeanalyst.inference.contingency.odds_ratio import odds_ratio

        return odds_ratio(self, first, second, given=given, where=where, view=view)

    def survival(
        self,
        time: str,
        event: Question,
        *,
        where: Question | None = None,
        level: float = 0.95,
        view: View | None = None,
    ) -> SurvivalCurve:
        """The Kaplan–Meier curve of a column of times and a condition "the watch ended by an event", with its band.

        >>> release.survival("age", "income == '>50K'").curve[["survival", "band_low", "band_high"]].head(2)
              survival  band_low  band_high
        age
        17.0  0.999789  0.986543        1.0
        26.0  0.995918  0.970259        1.0
        """
        from kmeanalyst.inference.contingency.survival import survival

        return survival(self, time, event, where=where, level=level, view=view)

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

    def regression(
        self, target: Question, predictors: Sequence[str], *, where: Question | None = None, view: View | None = None
    ) -> RegressionEstimate:
        """Weighted least squares of a target on predictors and an intercept: `glm` of the gaussian family, from a list.

        >>> release.regression("age", ["education-num", "income"])
        age: gaussian family, identity link (fitted weights)
        =============================================================================================
                          value  std err      z  P>|z|  [0.025  0.975]  privacy  sampling  resolution
        ---------------------------------------------------------------------------------------------
        intercept          37.9      5.8   6.17  0.000    26.5    49.2      3.0       0.8         4.8
        `education-num`   -0.14     0.59  -0.25  0.806   -1.32    1.01     0.31      0.07        0.50
        income == '>50K'    9.2      1.8   4.98  0.000     5.6    12.9      1.1       0.4         1.4
        =============================================================================================
        note: more than half of its variance is resolution: a release with --kernel margins counts cells of age, where
            this one has smooth features of all columns
        note: more than half of its variance is resolution: a release with --kernel margins counts cells of age ×
            `education-num`, where this one has smooth features of all columns
        note: more than half of its variance is resolution: a release with --kernel margins counts cells of age ×
            income, where this one has smooth features of all columns
        """
        from kmeanalyst.inference.regression.glm import regression

        return regression(self, target, predictors, where=where, view=view)

    def glm(
        self,
        formula: str,
        family: str = "gaussian",
        *,
        link: str | None = None,
        reference: Mapping[str, str] | None = None,
        where: Question | None = None,
        view: View | None = None,
    ) -> RegressionEstimate:
        """A generalised linear model of a formula in R's notation, each coefficient with its error bar.

        formula    "income ~ age + education + age:sex": + - : * ^ ( ) 1 0 join factors, each a column or another expression.
        family     "gaussian", "binomial", "poisson", "gamma"; "multinomial" and "ordinal" (proportional odds) of levels.
        link       "identity", "log", "logit", "probit", "cloglog", "inverse"; the family's canonical link by default, as in R.
        reference  {"race": "White"}: the levels that others are compared with; by default the first that occurs. With a rare one
                   all intervals of the column are wide, or infinite.
        Errors     ValueError for a formula that cannot be read, for predictors that determine one another, and for a target that
                   they separate perfectly.

        The coefficients are the root of the population's score
        equations, whether the model is true or not; their errors are the sandwich's with privacy and resolution in it.

        >>> release.glm("income ~ sex", family="binomial")
        income == '>50K': binomial family, logit link (fitted weights)
        ===========================================================================================
                       value  std err       z  P>|z|  [0.025  0.975]  privacy  sampling  resolution
        -------------------------------------------------------------------------------------------
        intercept      -1.87     0.16  -11.91  0.000   -2.23   -1.56     0.12      0.07        0.08
        sex == 'Male'   0.98     0.19    5.21  0.000    0.61    1.39     0.14      0.07        0.10
        ===========================================================================================
        note: success is income == '>50K'
        """
        from kmeanalyst.inference.regression.glm import glm

        return glm(self, formula, family, link=link, reference=reference, where=where, view=view)

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

    def draws(
        self,
        m: int = 20,
        *,
        columns: Sequence[str] | None = None,
        rows: int | None = None,
        rng: np.random.Generator | int | None = None,
    ) -> list[pd.DataFrame]:
        """m tables that the private one may have been, for Rubin's Ū + (1 + 1/m) B (`mice::pool`, Stata's `mi`).

        Each has as many rows as the private table, unless `rows` says otherwise. They differ by privacy and resolution alone:
        sampling is what Ū adds. Name in `columns` what a regression is about: rows of all columns have less of the error of each
        relation, the more columns the less, and at ε = 0.1 slopes are then too narrow.

        >>> tables = release.draws(5, rng=0)
        >>> len(tables), len(tables[0])
        (5, 6000)
        """
        from kmeanalyst.inference.draws.draws import draws

        return draws(self, m, columns=columns, rows=rows, rng=rng)

    def replicates(
        self, R: int = 100, *, columns: Sequence[str] | None = None, rng: np.random.Generator | int | None = None
    ) -> pd.DataFrame:
        """Rows with a "weight" and R replicate weights, whose mean squared deviation is privacy, sampling and resolution together.

        For R's survey::svrepdesign(type = "other", scale = 1/R, rscales = 1, combined.weights = TRUE, mse = TRUE). `columns` as
        in `draws`.

        >>> release.replicates(100, rng=0).columns[-2:].tolist()
        ['replicate_99', 'replicate_100']
        """
        from kmeanalyst.inference.draws.draws import replicates

        return replicates(self, R, columns=columns, rng=rng)

    def claims(
        self, texts: Sequence[str], *, rate: float = 0.05, names: Sequence[str] | None = None, view: View | None = None
    ) -> Claims:
        """How probable each claim is in the population, and which to keep at a rate of false ones; errors keep their correlation.

        A claim compares statistics (mean, probability, var, std, quantile, cov, corr, ratio, each with where=condition or not)
        and arithmetic with them by <, <=, > or >=. List every claim that was considered, not only those that look true.

        >>> release.claims(["mean(age) < 40", "std(age) > 13.5"])
        kept: mean(age) < 40 (probability > .999, adjusted p < .001, difference 1.40 ± 0.39)
        not kept: std(age) > 13.5 (probability .840, adjusted p .240, difference 0.47 ± 0.47)
        1 of 2 kept by a Bayesian rule: the mean probability that a kept claim is false is 0.000, at most 0.05.
            Benjamini–Yekutieli keeps 1 at 0.05.
        """
        from kmeanalyst.inference.claims.claims import claims

        return claims(self, texts, rate=rate, names=names, view=view)


def read_release(path: str | Path, *, allow_rehearsal: bool = False, large: bool = False) -> Release:
    """Read a .kme file; raises FileRefused, which says what is wrong, for a file that is not sound.

    Nothing is returned unless checksums, shapes, values and the arithmetic of the privacy statement agree.

    allow_rehearsal   read a file that is stamped NOT PRIVATE too: a rehearsal, whose noise can be drawn again from a seed.
    large             lift the usual limits on size and work, for a file whose maker you trust (FORMAT.md §8).

    >>> ka.read_release("adult.kme").statement.epsilon
    1.0
    """
    from kmeanalyst.releases.file import reading

    return reading.read_release(path, Release, allow_rehearsal=allow_rehearsal, large=large)


def from_frame(
    frame: pd.DataFrame, *, weight: str = "weight", kernel: Kernel | str | None = None, domain: Domain | None = None
) -> Release:
    """Weighted data from elsewhere as a release without measurement: no privacy part in any answer.

    frame    columns and a weight column; weights may be signed, and are used as they are.
    weight   the name of the weight column.
    kernel   Kernel or its text; the table kernel by default.
    domain   public columns and bounds; drafted from the frame itself by default.

    >>> frame = pd.DataFrame({"x": [0.0, 1.0, 2.0], "w": [0.5, 0.25, 0.25]})
    >>> ka.from_frame(frame, weight="w").mean("x")
    x: 0.75 ± 0.51 (95 %: -0.25 to 1.75; privacy unknown, sampling 0.51, resolution unknown)
    """
    from kmeanalyst.releases.domain.draft import draft_domain
    from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec

    if weight not in frame.columns:
        raise ValueError(
            f"no weight column {weight!r}; the columns are {list(frame.columns)}. Name the one with the weights."
        )
    columns = frame.drop(columns=[weight])
    domain = domain or draft_domain(columns).domain
    return Release(
        points=domain.decode(domain.encode(columns)), weights=frame[weight].to_numpy(dtype=float), measurement=None,
        kernel=kernel_from_spec(kernel, domain), domain=domain, statement=None,
    )  # fmt: skip
