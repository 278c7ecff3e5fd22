"""What noise of a known distribution leaves of a number, and of a ratio of two: 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Callable

from kmeanalyst.releases.statement import is_pure

Z = 1.959963984540054  # of the normal distribution, for 95 %
_STEPS = 60  # of a bisection


def half_width(law: str, deviation: float) -> float:
    """Half of the 95 % interval of noise with this law and standard deviation.

    >>> round(half_width("discrete gaussian", 1.0), 3), round(half_width("discrete laplace", 1.0), 3)
    (1.96, 2.118)
    """
    return math.log(20) * deviation / math.sqrt(2) if is_pure(law) else Z * deviation


def ratio_interval(law: str, above: float, below: float, of_above: float, of_below: float) -> tuple[float, float]:
    """The 95 % interval in [0, 1] of a ratio whose two parts have independent noise of these standard deviations.

    All r for which the noise of above − r · below is as large as seen with probability 5 % or more. For Gaussian noise this is
    Fieller's interval.

    Source   Fieller 1954; for Laplace noise the same, with the tail of a sum of two Laplace variables.

    >>> [round(end, 3) for end in ratio_interval("discrete gaussian", 250.0, 1000.0, 10.0, 10.0)]
    [0.23, 0.27]
    """

    def inside(ratio: float) -> bool:
        distance = abs(above - ratio * below)
        if is_pure(law):
            return laplace_tail(distance, of_above, ratio * of_below) >= 0.05
        return distance <= Z * math.hypot(of_above, ratio * of_below)

    best = clipped(above / below)
    above = best * below  # a ratio outside [0, 1] counts as the nearest one in it: no interval has length 0
    return _end(inside, best, 0.0), _end(inside, best, 1.0)


def _end(inside: Callable[[float], bool], start: float, stop: float) -> float:
    """The last ratio from `start` towards `stop` that is inside."""
    if inside(stop):
        return stop
    for _ in range(_STEPS):
        middle = (start + stop) / 2
        start, stop = (middle, stop) if inside(middle) else (start, middle)
    return start


def laplace_tail(distance: float, first: float, second: float) -> float:
    """P(|X + Y| > distance) of independent Laplace variables with these standard deviations, the first positive.

    >>> round(laplace_tail(1.0, 2**0.5, 0.0), 4), round(laplace_tail(1.0, 2**0.5, 2**0.5), 4)
    (0.3679, 0.5518)
    """
    a, b = sorted((first / math.sqrt(2), second / math.sqrt(2)), reverse=True)
    if b < 1e-9 * a:
        return math.exp(-distance / a)
    if a - b < 1e-6 * a:
        return (1 + distance / (2 * a)) * math.exp(-distance / a)
    return (a**2 * math.exp(-distance / a) - b**2 * math.exp(-distance / b)) / (a**2 - b**2)


def clipped(value: float) -> float:
    """A share: brought to [0, 1]."""
    return min(max(value, 0.0), 1.0)
