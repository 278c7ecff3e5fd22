"""What ε and δ promise, in one sentence that all texts share: help, errors, the statement, reports.

δ is an addend. It is not the probability that the promise fails, nor that the privacy loss exceeds ε: for Gaussian noise
that probability is larger (`noise.loss_above_epsilon`).
"""

from __future__ import annotations

import math


def guarantee(epsilon: float | None = None, delta: float | None = None, *, units: bool = False) -> str:
    """The guarantee of (ε, δ)-differential privacy, addressed to someone whose row is in the table.

    epsilon, delta   their values, to be named in the sentence; None: the letters alone.
    units            whether all rows of one unit are protected together, rather than each row.

    >>> guarantee(1.0, 0.0)
    'whatever is seen, its probability is at most e^ε = 2.72 times what it would be with any other row in place of yours'
    """
    factor = "" if epsilon is None else f" = {_rounded_up(math.exp(epsilon))}"
    other = "the rows of any other unit in place of all of yours" if units else "any other row in place of yours"
    addend = ", plus δ" if delta is None else f", plus δ = {delta:g}" if delta else ""
    return f"whatever is seen, its probability is at most e^ε{factor} times what it would be with {other}{addend}"


def _rounded_up(value: float) -> str:
    """Three digits, never less than the value: an upper bound may not be rounded down."""
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / step) * step:.3g}"


__all__ = ["guarantee"]
