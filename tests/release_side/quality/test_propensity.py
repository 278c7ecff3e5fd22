"""Propensity scores: as their sources compute them, and near their expectation where both sides are drawn alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
from quality_cases import DOMAIN, people
from sklearn.tree import DecisionTreeClassifier

import kmeanalyst as ka
from kmeanalyst.kernels.base import Array
from kmeanalyst.representation.tables.score_tables import ScoreTables
from release_side.quality.propensity import propensity

TWO = ka.Domain(
    (ka.Categorical(name="a", levels=("x", "y", "z")), ka.Real(name="b", lower=-9, upper=9, edges=(-1, 0, 1)))
)


def drawn(n: int, rng: np.random.Generator, shift: float = 0.0) -> Array:
    return np.column_stack([rng.integers(0, 3, n), np.clip(rng.normal(shift, 1, n), -9, 9)]).astype(float)


def test_the_tree_is_that_of_the_anchor_on_the_cells_of_columns():
    table, release = DOMAIN.encode(people(700)), DOMAIN.encode(people(700, seed=1))
    cells = ScoreTables(DOMAIN).cells(np.vstack([table, release]))
    side = np.repeat([0, 1], 700)
    model = DecisionTreeClassifier(max_depth=6, random_state=0).fit(cells, side)
    wanted = np.mean((model.predict_proba(cells)[:, 1] - 0.5) ** 2)
    assert propensity(DOMAIN, table, release).tree_pmse == pytest.approx(wanted)


def test_the_expectation_is_snokes_and_counts_every_parameter_once():
    """Of a: two indicators beside the intercept; of b: one number. (4 − 1)(1 − ½)² ½ / 800."""
    rng = np.random.default_rng(0)
    found = propensity(TWO, drawn(400, rng), drawn(400, rng))
    assert found.parameters == 4 and found.expected_pmse == pytest.approx(3 * 0.125 / 800)
    assert found.S_pMSE == pytest.approx(found.logistic_pmse / found.expected_pmse)
    uneven = propensity(TWO, drawn(600, rng), drawn(200, rng))
    assert uneven.expected_pmse == pytest.approx(3 * 0.75**2 * 0.25 / 800)


def test_a_column_that_repeats_another_adds_no_parameter():
    rng = np.random.default_rng(0)
    twice = ka.Domain((*TWO.columns, ka.Categorical(name="again", levels=("x", "y", "z"))))
    rows = [np.column_stack([(part := drawn(400, rng)), part[:, 0]]) for _ in range(2)]
    assert propensity(twice, *rows).parameters == 4


def test_rows_drawn_from_the_table_have_a_ratio_near_1_new_rows_2_and_others_more():
    """Mean of 200 ratios, m times a χ² of 3 degrees over 3: mean m, standard deviation m√(2/3); 4 standard errors are .23 m."""
    rng = np.random.default_rng(5)
    table = drawn(300, rng)
    own = [propensity(TWO, table, rng.choice(table, 300)).S_pMSE for _ in range(200)]
    assert abs(np.mean(own) - 1) < 4 * math.sqrt(2 / 3 / 200)
    new = [propensity(TWO, drawn(300, rng), drawn(300, rng)).S_pMSE for _ in range(200)]
    assert abs(np.mean(new) / 2 - 1) < 4 * math.sqrt(2 / 3 / 200)
    apart = [propensity(TWO, drawn(300, rng), drawn(300, rng, 0.3)).S_pMSE for _ in range(20)]
    assert np.mean(apart) > 4


def test_the_same_rows_on_both_sides_have_0():
    rows = DOMAIN.encode(people(300))
    found = propensity(DOMAIN, rows, rows)
    assert found.tree_pmse == pytest.approx(0, abs=1e-12) and found.logistic_pmse == pytest.approx(0, abs=1e-12)


def test_a_level_on_one_side_alone_and_a_column_without_values_do_not_break_it():
    rng = np.random.default_rng(0)
    table, release = drawn(200, rng), drawn(200, rng)
    release[:, 0], table[:, 0] = 2, np.minimum(table[:, 0], 1)
    found = propensity(TWO, table, release)
    assert 0.24 < found.logistic_pmse <= 0.25
    empty = np.full((50, 5), np.nan)
    assert propensity(DOMAIN, empty, empty).parameters == 1


def test_a_side_without_rows_has_no_score():
    found = propensity(TWO, np.empty((0, 2)), drawn(10, np.random.default_rng(0)))
    assert math.isnan(found.tree_pmse) and math.isnan(found.S_pMSE)


def test_columns_of_very_many_levels_are_left_out_of_the_main_effects_and_named():
    many = ka.Domain((ka.Categorical(name="code", levels=tuple(map(str, range(60)))), *TWO.columns))
    rng = np.random.default_rng(0)
    rows = [np.column_stack([rng.integers(0, 60, 200), drawn(200, rng)]) for _ in range(2)]
    found = propensity(many, *rows)
    assert found.parameters == 4 and "code" in found.notes[0]
    assert "no test" in found.notes[-1]
