"""How far a relation that is asked for because it is expected may be from what a measurement shows of it.

κ is an average over all questions of a table, most of which are about columns that are hardly related. A coefficient of a
regression is asked for where a relation is expected, and that one may be as strong as relations are: the population may depart
from what is assumed of it along the coefficient's own influence h, by ρ h/√Var h relative to the density, ρ a correlation. Of ρ is
assumed that two of its standard deviations reach from −1 to 1, and no more.

An answer follows such a departure by a share s of it, s = Cov(h, aᵀφ)/Var h, with an error of variance v from noise and other
departures. What is left, (1 − s) ρ √Var h, is estimated from what the answer has moved; its variance given the answer is
(1 − s)²/(1/(Var h/4) + s²/v). It counts in place of κ's where it is larger: next to nothing where a measurement settles the
answer, and up to Var h/4 where it says nothing of it.
"""

from __future__ import annotations

import numpy as np

from kmeanalyst.kernels.base import Array

VARIANCE_OF_CORRELATION = 0.25  # of a correlation of which nothing is known


def left_open(variance: Array, share: Array, error: Array) -> Array:
    """(k,) variance of what an answer leaves open of an expected relation.

    variance   (k,) Var h of the influences, as far as the measurement could show it.
    share      (k,) s in [0, 1] that the answers follow of it.
    error      (k,) v, variance of their errors otherwise; positive where the share is.

    >>> left_open(np.array([4.0, 4.0, 4.0]), np.array([0.0, 0.5, 1.0]), np.array([0.0, 0.25, 0.1]))
    array([1.   , 0.125, 0.   ])
    """
    prior = VARIANCE_OF_CORRELATION * variance
    followed = share**2 * prior
    with_noise = followed + error
    unknown = prior * np.divide(error, with_noise, out=np.ones_like(prior), where=with_noise > 0)
    return (1 - share) ** 2 * unknown
