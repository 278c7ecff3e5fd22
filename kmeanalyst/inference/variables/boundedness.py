"""Room 4: whether points may be pushed through a function: their weights must not cancel too much.

Σ w f(z) estimates the embedding of f(X) for any continuous f while Σ|w| stays bounded as the number of points grows
(Simon-Gabriel, Scibior, Tolstikhin & Schölkopf 2016, theorem 1; Balog, Tolstikhin & Schölkopf 2018, §3.3, theorem 11).
Large weights of both signs fit a kernel mean in their own kernel and cancel there, but not behind f.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from math import prod

import numpy as np

from kmeanalyst.kernels.base import Array

MOST_MASS = 5.0  # Σ|w|; probabilities have 1, weights fitted with a bound at most 2


class UnboundedWeights(UserWarning):
    """Points were pushed through a function with weights that are not bounded.

    >>> frame = pd.DataFrame({"x": [0.0, 1.0, 2.0], "weight": [20.0, -18.0, -1.0]})
    >>> x = ka.from_frame(frame)["x"]
    >>> import warnings
    >>> warnings.simplefilter("error", ka.UnboundedWeights)  # refuse rather than warn
    >>> (x * x).mean()
    Traceback (most recent call last):
       ...
    kmeanalyst.inference.variables.boundedness.UnboundedWeights: x * x is computed from weights with Σ|w| = 39, more than 5: ...
    """


def total_mass(weights: Sequence[Array]) -> float:
    """Σ|w| of the product of several releases' weights."""
    return float(prod(np.abs(w).sum() for w in weights))


def check_bounded(weights: Sequence[Array], what: str) -> None:
    """Warn where Σ|w| of the product of these weights is more than MOST_MASS."""
    mass = total_mass(weights)
    if mass > MOST_MASS:
        warnings.warn(
            f"{what} is computed from weights with Σ|w| = {mass:.3g}, more than {MOST_MASS:g}: pushing points through a function "
            "is consistent only while Σ|w| is bounded (Simon-Gabriel et al. 2016, theorem 1), and weights that cancel in "
            'their own kernel need not cancel behind the function. Ask the variable\'s in_view("probability"), or publish '
            'with weights="bounded".',
            UnboundedWeights,
            stacklevel=5,
        )
