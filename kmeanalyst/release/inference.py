"""Tests, models, draws and claims of a release: each method calls a function of `inference`, imported on first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kmeanalyst.releases.release import Question, ReleaseData, View

if TYPE_CHECKING:
    from kmeanalyst.inference.claims import Claims
    from kmeanalyst.inference.contingency.contingency_test import ContingencyTest
    from kmeanalyst.inference.contingency.survival import SurvivalCurve
    from kmeanalyst.inference.estimate.estimate import Estimate
    from kmeanalyst.inference.regression.result import RegressionEstimate


class Inference(ReleaseData):
    """Contingency tables, survival curves, regressions, draws for other programs, and claims."""

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

    def regression(
        self, target: Question, predictors: Sequence[str], *, where: Question | None = None, view: View | None = None
    ) -> RegressionEstimate:
        """Weighted least squares of a target on predictors and an intercept: `glm` of the gaussian family, from a list.

        >>> release.regression("age", ["education-num", "income"])
        age: gaussian family, identity link (fitted weights)
        =============================================================================================
                          value  std err      z  P>|z|  [0.025  0.975]  privacy  sampling  resolution
        ---------------------------------------------------------------------------------------------
        intercept          37.9      5.6   6.21  0.000    26.7    49.0      3.0       0.8         4.7
        `education-num`   -0.14     0.57  -0.25  0.801   -1.29    0.99     0.31      0.07        0.48
        income == '>50K'    9.2      1.8   4.99  0.000     5.6    12.9      1.1       0.4         1.4
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
                   all intervals of the column are wide, or infinite, and a note names the level that has the most rows. May name
                   a level of a multinomial target as well.
        Returns    a RegressionEstimate: print it; to_frame() is its table; odds_ratios(), average_marginal_effects(),
                   wald_test(["sex"]), score_test(["sex"]), predict(frame) with intervals.
        Errors     ValueError for a formula that cannot be read, for predictors that determine one another, and for a target that
                   they give exactly or separate perfectly. What is nearly so is a note under the table.

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
        self, questions: Sequence[Estimate | Question], *, rate: float = 0.05, view: View | None = None
    ) -> Claims:
        """How probable it is that each of these numbers is positive in the population, and which claims to keep.

        questions  estimates, whose errors stay correlated where they are calculated with, or questions of `expectation`. List every
                   claim that was considered, not only those that look true.
        rate       q in (0, 1), of false claims among those that are kept.
        view       of the questions, as in `expectation`.

        >>> release.claims([40 - release.mean("age"), release.std("age") - 13.5])
        kept: 40 - [age] > 0 (probability > .999, adjusted p < .001, estimate 1.40 ± 0.39)
        not kept: [std(age)] - 13.5 > 0 (probability .840, adjusted p .240, estimate 0.47 ± 0.47)
        1 of 2 kept by a Bayesian rule: the mean probability that a kept claim is false is 0.000, at most 0.05.
            Benjamini–Yekutieli keeps 1 at 0.05.
        """
        from kmeanalyst.inference.claims import claims

        return claims(self, questions, rate=rate, view=view)
