"""Statistics carry their derivative by each row's weight: arithmetic against changed weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kmeanalyst.inference.estimate.statistic import Statistic, mean_of_rows

RNG = np.random.default_rng(0)
WEIGHTS = RNG.uniform(0.5, 1.5, 7) / 7
X, Y = RNG.uniform(1, 3, (2, 9))  # two rows more than weights: they have a derivative and no weight

FORMULAS: dict[str, Callable[[Statistic, Statistic], Statistic]] = {
    "sum": lambda a, b: 2 + a + b - 1, "difference": lambda a, b: 3 - a - b, "product": lambda a, b: 2 * a * b,
    "ratio": lambda a, b: a / b, "inverse": lambda a, b: 2 / a, "power": lambda a, b: a**2.5 - b**0,
    "root": lambda a, b: np.sqrt(a * b), "logarithm": lambda a, b: np.log(a) - np.exp(-b),
    "numpy's number first": lambda a, b: np.float64(2) * a - np.float64(1) / b,
}  # fmt: skip


def changes(of_weights: Callable[[np.ndarray], float]) -> np.ndarray:
    """The derivative by each weight, by central differences."""
    steps = 1e-6 * np.eye(len(WEIGHTS))
    return np.array([(of_weights(WEIGHTS + step) - of_weights(WEIGHTS - step)) / 2e-6 for step in steps])


def test_the_influence_of_a_formula_is_its_derivative_by_each_weight():
    for formula in FORMULAS.values():
        found = formula(mean_of_rows(WEIGHTS, X), mean_of_rows(WEIGHTS, Y))
        assert found.influence.shape == X.shape
        by_weight = changes(lambda w, formula=formula: formula(mean_of_rows(w, X), mean_of_rows(w, Y)).value)
        assert found.influence[:7] == pytest.approx(by_weight, rel=1e-6, abs=1e-8)


def test_arrays_of_statistics_are_calculated_with_entry_by_entry():
    both = mean_of_rows(WEIGHTS, np.column_stack([X, Y]))
    scaled = both * np.array([1.0, 2.0]) / both[0]
    assert scaled.value == pytest.approx([1.0, 2 * both.value[1] / both.value[0]])
    alone = 2 * both[1] / both[0]
    assert scaled[1].influence == pytest.approx(alone.influence)
    assert scaled[0].influence == pytest.approx(np.zeros(9), abs=1e-15)


def test_what_has_no_first_order_error_passes_that_on():
    unknown = Statistic(0.0, None)
    assert (unknown + mean_of_rows(WEIGHTS, X)).influence is None
    assert Statistic(np.zeros(2), None)[0].influence is None


def test_other_types_are_refused():
    with pytest.raises(TypeError):
        mean_of_rows(WEIGHTS, X) + "age"
    with pytest.raises(TypeError):
        2 ** mean_of_rows(WEIGHTS, X)
