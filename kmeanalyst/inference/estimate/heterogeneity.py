"""How far independent answers to one question differ beyond their errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from kmeanalyst.kernels.base import Array


@dataclass(frozen=True)
class Heterogeneity:
    """Cochran's test of homogeneity (Cochran 1954; Higgins & Thompson 2002).

    statistic  Q, the sum of squared distances from the weighted mean, in standard errors of each answer.
    df         one less than the answers.
    pvalue     of χ² at Q: small where they are not of one population. i_squared: (Q − df)/Q, at least 0, the share of differences
               that errors do not explain.

    >>> Heterogeneity(6.0, 2)
    Q = 6 on 2 df, p = 0.05, I² = 67 %
    """

    statistic: float
    df: int

    @property
    def pvalue(self) -> float:
        return float(chdtrc(self.df, self.statistic))

    @property
    def i_squared(self) -> float:
        return max(0.0, 1 - self.df / self.statistic) if self.statistic > 0 else 0.0

    def to_dict(self) -> dict[str, float]:
        return {"q": self.statistic, "df": self.df, "pvalue": self.pvalue, "i_squared": self.i_squared}

    def __repr__(self) -> str:
        return f"Q = {self.statistic:.2g} on {self.df} df, p = {self.pvalue:.2g}, I² = {100 * self.i_squared:.0f} %"


def heterogeneity_of(values: Array, errors: Array) -> Heterogeneity | None:
    """Of independent estimates (k,) of one number and their standard errors (k,); None where one has no error."""
    if not (errors > 0).all():
        return None
    mean = float(np.average(values, weights=errors**-2.0))
    return Heterogeneity(float((((values - mean) / errors) ** 2).sum()), len(values) - 1)
