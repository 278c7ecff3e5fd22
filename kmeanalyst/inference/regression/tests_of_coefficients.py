"""Tests that several coefficients are 0 at once: Wald's, and the score test of the model without them.

Wald: W = βᵀ C⁻¹ β, C their joint covariance. Score: S are the scores of the tested coefficients at the root of the smaller model,
made efficient by those of the others; W = Sᵀ V⁻¹ S, V the covariance of S. Both are χ² with as many degrees of freedom as are
tested. Covariances are the release's: privacy, sampling, resolution (Boos 1992). Likelihood ratios have no such null distribution.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import chi2

from kmeanalyst.inference.regression.errors import joint_covariance
from kmeanalyst.inference.regression.fit import Fit, sum_of
from kmeanalyst.kernels.base import Array

_NEGLIGIBLE = 1e-10  # share of the largest eigenvalue below which a direction has no error


@dataclass(frozen=True, kw_only=True)
class CoefficientTest:
    """The result of a test of several coefficients.

    statistic   χ²-distributed if all of them are 0.
    pvalue      probability of one at least as large then.
    df          degrees of freedom: how many coefficients are tested.
    terms       their names.
    method      "Wald" or "score".

    >>> release.glm("income ~ age + sex", "binomial").wald_test(["age", "sex"])
    Wald test of age, sex == 'Male': χ² = 40... on 2 df, p = ...
    """

    statistic: float
    pvalue: float
    df: int
    terms: tuple[str, ...]
    method: str

    def to_dict(self) -> dict[str, Any]:
        """The result as plain numbers.

        >>> release.glm("income ~ sex", "binomial").wald_test(["sex"]).to_dict()["df"]
        1
        """
        return asdict(self) | {"terms": list(self.terms)}

    def __repr__(self) -> str:
        return f"{self.method} test of {', '.join(self.terms)}: χ² = {self.statistic:.2f} on {self.df} df, p = {self.pvalue:.3g}"


def chosen(fit: Fit, names: Sequence[str]) -> list[int]:
    """Indices of coefficients by their names, or by a term or factor of the formula, which stands for all of its own."""
    if (
        isinstance(names, str)
        or not isinstance(names, Iterable)
        or not all(isinstance(name, str) for name in names)
        or not names
    ):
        raise ValueError(
            f'names must be a list of at least one coefficient or term, got {names!r:.80}. Write ["age", "sex"], for example.'
        )
    found: dict[int, None] = {}
    for name in names:
        own = fit.indices(name)
        if not own:
            raise ValueError(
                f"no coefficient or term {name!r:.80}: there are {', '.join(fit.names)}. Name some of these."
            )
        found |= dict.fromkeys(own)
    return list(found)


def wald_test(fit: Fit, names: Sequence[str]) -> CoefficientTest:
    """Wald's test that these coefficients are 0."""
    tested = chosen(fit, names)
    return _test("Wald", fit, tested, fit.beta[tested], fit.total_covariance[tested][:, tested])


def score_test(fit: Fit, names: Sequence[str]) -> CoefficientTest:
    """The score test that these coefficients are 0: of the fit without them."""
    tested = chosen(fit, names)
    population, weights = fit.population, fit.population.weights
    others = np.setdiff1d(np.arange(len(fit.beta)), tested)
    beta = fit.restricted(tested)
    psi, J = fit.equations.scores(beta), fit.equations.information(beta, weights)
    along = np.linalg.solve(J[np.ix_(others, others)].T, J[tested][:, others].T)
    efficient = psi[:, tested] - psi[:, others] @ along
    covariance = sum_of(joint_covariance(population, population.influence(efficient)))
    return _test("score", fit, tested, weights @ efficient[: len(weights)], covariance)


def _test(method: str, fit: Fit, tested: list[int], values: Array, covariance: Array) -> CoefficientTest:
    spectrum, vectors = np.linalg.eigh(covariance)
    known = spectrum > _NEGLIGIBLE * max(spectrum[-1], 0.0)
    statistic = float(((vectors[:, known].T @ values) ** 2 / spectrum[known]).sum())
    df = int(known.sum())
    return CoefficientTest(
        statistic=statistic, pvalue=float(chi2.sf(statistic, df)), df=df, terms=tuple(fit.names[j] for j in tested), method=method,
    )  # fmt: skip
