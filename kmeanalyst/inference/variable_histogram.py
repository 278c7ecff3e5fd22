"""Room 4: the histogram of a random variable."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from kmeanalyst.inference.expectation import statistic_of
from kmeanalyst.inference.law import Law
from kmeanalyst.inference.population import Population, estimates
from kmeanalyst.inference.tabulation import histogram_frame, histogram_of_groups
from kmeanalyst.inference.variable_nodes import Node
from kmeanalyst.kernels.base import Array

_RANGES = 10
_MIDDLE = (0.01, 0.99)  # of the mass: default ranges part what lies between


def histogram_of(law: Law, node: Node, bins: int | Sequence[float] | None, level: float) -> pd.DataFrame:
    """Probabilities of a variable's groups with error bars.

    bins   for a plain column see `Release.histogram`; a condition is false or true. For other variables a number of ranges
           (10 by default): equal ones between the 1 % and 99 % points of |w|, the first and last going on without end. A
           list: edges, the last range closed; what lies outside is in no range.
    """
    if isinstance(law, Population) and node.column is not None:
        return histogram_of_groups(law, node.column, bins, level)
    values = law.values(node)
    if node.kind == "condition" and bins is None:
        return _histogram_of_condition(law, node, values, level)
    edges = _edges(values[: len(law.weights)], np.abs(law.weights), _RANGES if bins is None else bins)
    labels = [_label(left, right, right == edges[-1]) for left, right in pairwise(edges)]
    statistics = []
    for (left, right), label in zip(pairwise(edges), labels, strict=True):
        inside = (values >= left) & ((values <= right) if right == edges[-1] else (values < right))
        held = np.where(np.isnan(values), np.nan, inside)
        statistics.append(statistic_of(law, held, f"{node.text} in {label}"))
    found = estimates(law, statistics)
    return histogram_frame(found, labels, list(edges[:-1]), list(edges[1:]), node.text, level)


def _histogram_of_condition(law: Law, node: Node, values: Array, level: float) -> pd.DataFrame:
    labels = ["False", "True"]
    held = [np.where(np.isnan(values), np.nan, values == truth) for truth in (0, 1)]
    found = estimates(
        law, [statistic_of(law, h, f"{node.text} is {truth}") for h, truth in zip(held, labels, strict=True)]
    )
    return histogram_frame(found, labels, [None, None], [None, None], node.text, level)


def _label(left: float, right: float, last: bool) -> str:
    opening, closing = "(" if np.isinf(left) else "[", "]" if last and np.isfinite(right) else ")"
    return f"{opening}{left:.4g}, {right:.4g}{closing}"


def _edges(values: Array, mass: Array, bins: int | Sequence[float]) -> Array:
    if not isinstance(bins, int | np.integer):
        edges = np.asarray(bins, dtype=float)
        if edges.ndim != 1 or len(edges) < 2 or not (np.diff(edges) > 0).all():
            raise ValueError(f"bins must be a number, or at least two increasing edges, got {bins!r:.80}. Sort them.")
        return edges
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}: it is a number of ranges. Pass e.g. 10.")
    order = np.argsort(values)
    cumulative = np.cumsum(mass[order])
    low, high = (values[order][np.searchsorted(cumulative, q * cumulative[-1])] for q in _MIDDLE)
    if low == high:
        low, high = low - 0.5, high + 0.5
    return np.array([-np.inf, *np.linspace(low, high, bins + 1)[1:-1], np.inf])
