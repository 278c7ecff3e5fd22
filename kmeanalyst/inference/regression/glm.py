"""`release.glm`: a formula fitted to a release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from kmeanalyst.inference.estimate.estimate import Estimates
from kmeanalyst.inference.estimate.population import Population, estimates, population_of
from kmeanalyst.inference.estimate.statistic import Statistic
from kmeanalyst.inference.questions.groups import groups_of
from kmeanalyst.inference.regression.design import Design, column_of, design_of
from kmeanalyst.inference.regression.equations import FAMILIES, LINKS, Equations
from kmeanalyst.inference.regression.fit import Fit, fit_equations
from kmeanalyst.inference.regression.formula import Formula, parse_formula
from kmeanalyst.inference.regression.intervals import ScoreInterval, ScoreProfiles
from kmeanalyst.inference.regression.result import RegressionEstimate
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.expressions import parse, words
from kmeanalyst.releases.release import Condition, ReleaseData, View

_EXACTLY = (
    "the predictors give {target} exactly in every row: an identity of columns, whose coefficients have no error, and z and p no "
    "meaning. For a relation between columns leave out what the target is made of"
)
_EXACT = 1e-8  # share of the target's range below which residuals are rounding
_LARGEST, _SMALLEST = 1e30, 1e-30  # sizes of values whose squares and their products are still exact to rounding


def glm(
    release: ReleaseData, formula: str, family: str = "gaussian", *, link: str | None = None,
    reference: Mapping[str, str] | None = None, where: Condition = None, view: View | None = None,
) -> RegressionEstimate:  # fmt: skip
    """A generalised linear model of a formula in R's notation, each coefficient with its error bar.

    formula    "income ~ age + education + age:sex": + - : * ^ ( ) 1 0 join factors, each a column or another expression.
    family     "gaussian", "binomial", "poisson", "gamma". Of a target of several levels fit one against the others, such as
               "(race == 'White') ~ age" of the binomial family.
    link       "identity", "log", "logit", "probit", "cloglog", "inverse"; the family's canonical link by default, as in R.
    reference  {"race": "White"}: the levels that others are compared with; by default the first that occurs. With a rare one
               all intervals of the column are wide, or infinite: name one that many rows have (release.table).
    Returns    a RegressionEstimate: print it; to_frame() is its table, predict(frame) gives means with intervals.
    Errors     ValueError for a formula that cannot be read, for predictors that determine one another, and for a target that
               they give exactly or separate perfectly. What is nearly so is a note under the table.

    The coefficients are the root of the population's score equations, whether the model is true or not; their errors are the
    sandwich's with privacy and resolution in it.

    >>> release.glm("income ~ sex", family="binomial")
    income == '>50K': binomial family, logit link (fitted weights)
    ===========================================================================================
                   value  std err       z  P>|z|  [0.025  0.975]  privacy  sampling  resolution
    -------------------------------------------------------------------------------------------
    intercept      -1.87     0.17  -10.78  0.000   -2.27   -1.53     0.12      0.07        0.11
    sex == 'Male'   0.98     0.21    4.61  0.000    0.56    1.45     0.14      0.07        0.14
    ===========================================================================================
    note: success is income == '>50K'
    """
    check_family(family, link)
    if reference is not None and not isinstance(reference, Mapping):
        raise ValueError(
            f'reference must name a column for each level, got {reference!r:.80}. Write {{"sex": "Male"}}, for example.'
        )
    read = replace(parse_formula(formula), reference=dict(reference or {}))
    if read.target in {factor for term in read.terms for factor in term}:
        raise ValueError(
            f"{words.short(read.target)} is the target and a predictor too, which explains it entirely. Leave it out of the terms."
        )
    population, link = population_of(release, where=where, view=view), link or FAMILIES[family].links[0]
    target, notes = _target(population, read.target, family)
    fit = fit_equations(population, partial(_equations, formula=read, target=target, family=family, link=link), notes)
    if _is_exact(fit):
        fit = replace(fit, notes=(*fit.notes, _EXACTLY.format(target=target)))
    return result_of(fit, target, family, link)


def check_family(family: str, link: str | None) -> None:
    if family not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}, got {family!r:.80}. Pass one of them.")
    links = FAMILIES[family].links
    if link not in (None, *links):
        raise ValueError(
            f"link must be one of {', '.join(links)} for the {family} family, got {link!r:.80}. Pass one, or leave it out."
        )


def _is_exact(fit: Fit) -> bool:
    rows = np.flatnonzero(fit.population.weights)
    y, means = fit.equations.y[rows], fit.equations.means(fit.beta, fit.equations.X[rows])[0]
    return bool(np.abs(y - means).max() <= _EXACT * np.ptp(y))


def _equations(population: Population, formula: Formula, target: str, family: str, link: str) -> tuple[Design, Equations]:
    design = design_of(population, formula)
    y = _values(population, target)
    _check_target(population, y, target, family)
    X = design.matrix({question: _values(population, question) for question in design.questions}, len(y))
    for name, column in zip(design.names, X.T, strict=True):
        _check_size(name, column)
    return design, Equations(X, y, FAMILIES[family], LINKS[link])


def _values(population: Population, question: str) -> Array:
    """A question's values; rows that the condition leaves out have those of one that it holds for, so that all are defined."""
    values = population.values(question)
    if population.given is not None:
        values[~population.given] = values[population.given.argmax()]
    return values


def _check_size(name: str, values: Array) -> None:
    size = float(np.fmax.reduce(np.abs(values), initial=0.0))
    if size > _LARGEST or 0 < size < _SMALLEST:
        raise ValueError(
            f"{words.short(name)} has values of size {size:.0e}, which cannot be calculated with beside others. Divide by a "
            "unit, such as I(income / 1000), or take a logarithm."
        )


def _target(population: Population, target: str, family: str) -> tuple[str, tuple[str, ...]]:
    name, columns = column_of(target), population.release.columns
    if parse(target).columns and name not in columns.names:
        parse(target).check(columns)
    column = columns[name] if name in columns.names else None
    if family == "gaussian" and isinstance(column, Categorical) and not isinstance(column, Boolean):
        raise ValueError(
            f'{name} has levels, and the gaussian family explains a number. Pass family="binomial" (--family binomial) for the '
            f'probability of its last level of two, or name a level as in "({words.example(column)}) ~ ...".'
        )
    if family != "binomial" or not isinstance(column, Categorical):
        return target, ()
    assert name is not None
    if len(column.levels) != 2:
        raise ValueError(
            f"{name} has {len(column.levels)} levels, and a binomial target has two outcomes. Fit one level against the others: "
            f'release.glm("({words.example(column)}) ~ ...", family="binomial").'
        )
    _check_there(population, name)
    success = groups_of(columns, name)[1].condition
    return success, (f"success is {success}",)


def _check_there(population: Population, name: str) -> None:
    column = population.release.columns[name]
    if column.missing and population.mean(population.values(f"missing({words.column(name)})")) != 0:
        raise ValueError(
            f'{name} has missing cells, which are not an outcome. Exclude them with where="not missing({words.column(name)})".'
        )


def _check_target(population: Population, y: Array, target: str, family: str) -> None:
    _check_size(target, y)
    at_points = y[: len(population.weights)][population.weights != 0]
    kind = FAMILIES[family]
    if not kind.target_allowed(at_points).all():
        outside = at_points[~kind.target_allowed(at_points)][0]
        raise ValueError(
            f"the target of the {family} family must be {kind.targets}, and {target} has the value {outside:.6g}. "
            + (
                'Write a condition, such as "age > 50 ~ ...".'
                if family == "binomial"
                else "Exclude such rows with where, or pass another family."
            )
        )
    if np.ptp(at_points) == 0:
        raise ValueError(
            f"the target {target} is {at_points[0]:.6g} in all rows of this population, so nothing explains it. Ask of another "
            "target, or widen where."
        )


def result_of(fit: Fit, target: str, family: str, link: str) -> RegressionEstimate:
    population, influence = fit.population, fit.influence
    texts = [population.text(f"{target} ~ {name}") for name in fit.names]
    asked = zip(fit.beta, influence.T, texts, strict=True)
    found = estimates(population, [Statistic(float(value), own, text) for value, own, text in asked])
    if population.release.measurement is not None:
        profiles = ScoreProfiles(fit, np.array([one.standard_error for one in found]))
        found = Estimates(replace(one, interval_by=ScoreInterval(profiles, j)) for j, one in enumerate(found))
    return RegressionEstimate(target, fit.names, found, family, link, fit.notes, fit=fit)
