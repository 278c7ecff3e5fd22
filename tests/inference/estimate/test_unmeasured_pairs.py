"""κ by pair of columns, from noisy scores: calibrated, larger where the score is, and bounded by it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from kmeanalyst.inference.estimate import unmeasured_pairs
from kmeanalyst.inference.estimate.unmeasured_pairs import (
    VARIANCE_OF_CORRELATION,
    UnmeasuredPairs,
    left_open,
    squared_distances,
)
from kmeanalyst.kernels.base import Array

ROWS = np.array([[0, 0, 0], [0, 1, 0], [1, 0, 1], [1, 1, 1]], dtype=np.intp)  # the third column repeats the first


def pairs(
    spreads: tuple[float, float], most: tuple[float, float] = (2.0, 2.0), squared: tuple[float, float] = (0.0, 0.0)
) -> UnmeasuredPairs:
    """Of columns (0, 1), whose four cells are equally frequent, and (0, 2)."""
    cells = np.repeat(ROWS, 250, axis=0)
    return UnmeasuredPairs(
        cells=np.ascontiguousarray(cells.T), weights=np.full(1000, 1e-3), sizes=(2, 2, 2), pairs=((0, 1), (0, 2)),
        spreads=np.array(spreads), most=np.array(most), squared=np.array(squared), usual=0.0,
    )  # fmt: skip


def interaction() -> Array:
    """(1000, 1) of columns 0 and 1: +1 where they agree, else −1."""
    first, second, _ = np.repeat(ROWS, 250, axis=0).T
    return np.where(first == second, 1.0, -1.0)[:, None]


def test_an_interaction_has_the_spread_of_its_own_pair_beyond_what_is_known():
    """h = ±1 has variance 1, all of it between cells of (0, 1) and none between those of (0, 2)."""
    h = interaction()
    assert pairs((0.04, 0.9)).covariance(h, np.array([2.0]), 0.01) == pytest.approx(np.array([[0.03]]))
    assert pairs((0.04, 0.9)).covariance(h, np.array([2.0]), 0.05) == 0.0


def test_no_event_departs_by_more_than_half_of_the_distance_that_the_score_allows():
    """An event has range 1: 1.96 standard errors are at most half of the largest distance."""
    event = (interaction() + 1) / 2
    found = pairs((0.9, 0.0), most=(0.1, 2.0)).covariance(event - 0.5, np.array([1.0]), 0.0)
    assert 1.96 * np.sqrt(found) == pytest.approx(np.array([[0.05]]))


def test_an_expected_relation_departs_along_what_is_asked_as_far_as_its_score_says():
    """h = ±1: Σ|p(1 + ρh) − p| = ρ moves E h by ρ, by 1 at most; a pair that h is not of counts nothing."""
    for distance, moved in [(0.0, 0.0), (0.3, 0.3), (1.5, 1.0)]:
        found = pairs((0.0, 0.0), squared=(distance**2, 4.0)).of_relation(interaction(), np.array([200.0]))
        assert np.sqrt(found) == pytest.approx(np.array([moved]), abs=1e-9)


def test_an_expected_relation_departs_no_further_than_its_score_allows():
    found = pairs((0.0, 0.0), most=(0.1, 2.0), squared=(1.0, 0.0)).of_relation(interaction(), np.array([2.0]))
    assert 1.96 * np.sqrt(found) == pytest.approx(np.array([0.1]))  # half of the distance, for a range of 2


def test_a_score_alone_says_more_of_a_distance_than_with_what_is_usual():
    """Cut off at 0, a normal score of distance 3 noises has E u² near 10 squared noises; of 0 noises it has 1."""
    moments = unmeasured_pairs._second_moments(np.array([3.0, 0.0]), 0.1)
    assert moments == pytest.approx([0.1 + 1e-4 * 1.33, 0.01], rel=1e-3)
    assert (squared_distances(np.array([0.3, 0.0]), 0.1, np.ones(2)) < [0.1, 0.01]).all()


def test_variances_are_the_diagonals_of_joint_covariances_and_signs_are_kept():
    rest = np.hstack([interaction(), -2 * interaction(), np.random.default_rng(0).normal(size=(1000, 1))])
    joint = pairs((0.04, 0.02)).covariance(rest, np.array([2.0, 4.0, 6.0]), 0.0)
    own = pairs((0.04, 0.02))
    alone = [own.covariance(rest[:, [k]], np.array([span]), 0.0)[0, 0] for k, span in enumerate((2, 4, 6))]
    np.testing.assert_allclose(np.diag(joint), alone)
    assert joint[0, 1] == pytest.approx(-2 * joint[0, 0])
    assert joint[2, 2] < 2e-4  # chance alone puts .003 of its variance between the cells of a pair


def test_distances_are_calibrated_given_their_scores():
    """Exponential distances of means .02 r, and as much noise: posterior means of squares are right for low and high scores."""
    rng = np.random.default_rng(1)
    r = rng.uniform(2, 12, 20_000)
    distances = rng.exponential(0.02 * r)
    scores = distances + 0.1 * rng.normal(size=len(r))
    found = squared_distances(scores, 0.1, r)
    for part in np.array_split(np.argsort(scores), 4):
        assert found[part].mean() == pytest.approx((distances[part] ** 2).mean(), rel=0.15)
    high = scores > 0
    assert (scores[high] ** 2).mean() > 1.1 * (distances[high] ** 2).mean()  # scores as they are would not be


def test_events_depart_as_independent_cells_do_only_where_cells_are():
    """Mean departure²/(κ Var) over pairs of thresholds: 1 for independent cells, ten times that for smooth departures."""
    for smooth in [True, False]:
        one = np.diff(ndtr(np.arange(-6, 7) / 2)) / (ndtr(3) - ndtr(-3))
        ratios, rng = [], np.random.default_rng(2)
        for _ in range(20):
            away = 0.01 * np.sqrt(np.outer(one, one)) * rng.normal(size=(12, 12))
            if smooth:
                away = 0.1 * np.outer(one * np.arange(-5.5, 6), one * np.arange(-5.5, 6))
            away -= np.outer(away.sum(axis=1), one) + np.outer(one, away.sum(axis=0)) - away.sum() * np.outer(one, one)
            kappa = np.pi / 2 * np.abs(away).sum() ** 2 / np.sqrt(one).sum() ** 4
            variance = np.cumsum(one) * (1 - np.cumsum(one))
            ratios.append((away.cumsum(0).cumsum(1) ** 2).sum() / (kappa * variance.sum() ** 2))
        assert np.mean(ratios) > unmeasured_pairs._OF_EVENTS if smooth else 0.5 < np.mean(ratios) < 2


def test_it_is_the_variance_of_what_is_left_given_the_answer() -> None:
    """Relations ρ √Var h, answers s ρ √Var h + error: what least squares leave of (1 − s) ρ √Var h, by simulation."""
    for share in [0.1, 0.3, 0.7]:
        rng, n, variance, error = np.random.default_rng(0), 200_000, 9.0, 0.4
        relation = np.sqrt(VARIANCE_OF_CORRELATION * variance) * rng.standard_normal(n)
        answer = share * relation + np.sqrt(error) * rng.standard_normal(n)
        missing = (1 - share) * relation
        rest = missing - answer * (missing @ answer) / (answer @ answer)
        found = left_open(np.array([variance]), np.array([share]), np.array([error]))
        assert found[0] == pytest.approx(rest.var(), rel=0.02)
        before = (1 - share) ** 2 * VARIANCE_OF_CORRELATION * variance  # the answer is known
        assert abs(before / rest.var() - 1) > 0.03
