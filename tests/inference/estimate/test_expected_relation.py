"""What an answer leaves open of an expected relation: its limits, and that it is right on average over relations."""

from __future__ import annotations

import numpy as np
import pytest

from kmeanalyst.inference.estimate.unmeasured_pairs import VARIANCE_OF_CORRELATION, left_open


def test_nothing_is_open_where_an_answer_follows_and_all_where_it_does_not() -> None:
    variance, error = np.array([4.0, 4.0, 0.0]), np.array([0.3, 0.3, 0.0])
    assert left_open(variance, np.array([1.0, 0.0, 1.0]), error) == pytest.approx(
        [0.0, 4.0 * VARIANCE_OF_CORRELATION, 0.0]
    )


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
        assert (
            abs((1 - share) ** 2 * VARIANCE_OF_CORRELATION * variance / rest.var() - 1) > 0.03
        )  # before the answer is known


def test_it_falls_with_the_share_and_grows_with_the_error() -> None:
    shares = np.linspace(0, 1, 11)
    found = left_open(np.ones(11), shares, np.full(11, 0.01))
    assert (np.diff(found) < 0).all()
    assert (np.diff(left_open(np.ones(5), np.full(5, 0.5), np.array([0.001, 0.01, 0.1, 1.0, 10.0]))) > 0).all()
