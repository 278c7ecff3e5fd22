"""Draws of tables: neighbours are no easier to tell apart than by the Gaussian noise of the allowance."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import chi2, norm
from table_rounds import ALL, FIRST, HEIGHTS, LAST, NO_GUESS, SIZES, RoundRecorder, hostile_rows, opened, recorder_of

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.measurement import choice_constant
from release_side.door.mechanism import GaussianNoise, PublishError, RehearsalNoise


def chosen_scores(
    rows: Array, guesses: Array, step: int, *, allowance: float, count: int, codes: Any = None
) -> tuple[Array, float]:
    """The exact scores that tables are drawn by, and the scale of the noise, in a round with this allowance."""
    rounds = opened(rows, allowance, codes=codes)
    chosen, scale = rounds.choose(ALL, guesses, step, costs=np.array([0, 5, 7]), count=count)
    scores, drawn, used = recorder_of(rounds).draws[0]
    assert drawn == count == len(chosen) and used == scale and recorder_of(rounds).vectors == []
    return scores, scale


def law_of_draws(scores: Array, count: int, scale: float) -> Array:
    """The probability of each sequence of `count` tables, drawn one after the other by the exponential mechanism."""
    weights, found = np.exp((scores - scores.max()) / scale), []
    for sequence in permutations(range(len(scores)), count):
        left = np.ones(len(scores), dtype=bool)
        probability = 1.0
        for t in sequence:
            probability *= weights[t] / weights[left].sum()
            left[t] = False
        found.append(probability)
    return np.array(found)


def excess_over_gaussian(first: Array, second: Array, mu: float) -> float:
    """The largest Φ⁻¹(P(T)) − Φ⁻¹(Q(T)) − μ of any set T of outcomes; at most 0 if P and Q are as alike as N(0, 1) and N(μ, 1)."""
    order = np.argsort(second / first)
    powers, sizes = first[order].cumsum()[:-1], second[order].cumsum()[:-1]
    return float((norm.ppf(powers) - norm.ppf(sizes)).max() - mu)


def test_draws_from_hostile_neighbours_are_no_easier_to_tell_apart_than_gaussian_noise_of_the_allowance() -> None:
    """The recorder's noise has deviation 1, so that an allowance is μ. All sets of outcomes, by the Neyman–Pearson lemma."""
    for units in [False, True]:
        for count in [1, 2]:
            rng, step = np.random.default_rng(11), 10**6
            table, codes = hostile_rows(rng, 24), np.repeat(np.arange(8), 3)
            table[:3] = FIRST
            replaced_rows, n = (3, 8) if units else (1, 24)
            own_codes = codes if units else None
            nearest = -math.inf
            for trial in range(80):
                mu = float(rng.choice([0.05, 0.5, 2.0]))
                other = np.repeat(LAST, replaced_rows, axis=0) if trial % 2 else hostile_rows(rng, replaced_rows)
                # the guess of some tables is the cell that the row leaves, of others the one that it enters: scores rise and fall
                guesses = np.concatenate([np.eye(size)[rng.choice([0, size - 1])] for size in SIZES]) * step * n
                laws = []
                for rows in (table, np.vstack([other, table[replaced_rows:]])):
                    scores, scale = chosen_scores(
                        rows, guesses.astype(np.int64), step, allowance=mu, count=count, codes=own_codes
                    )  # fmt: skip
                    laws.append((scores, scale))
                assert laws[0][1] == laws[1][1], "the scale says nothing of a row"
                # scores near one another: the worst case for a draw
                shift = rng.normal(0, 2, 3) * laws[0][1] - laws[0][0]
                first, second = (law_of_draws(scores + shift, count, scale) for scores, scale in laws)
                for one, two in ((first, second), (second, first)):
                    nearest = max(nearest, excess_over_gaussian(one, two, mu) / mu)
            assert nearest <= 1e-9
            assert nearest > -0.2, "the attack is too weak to come near the bound"


def test_the_constant_of_a_draw_is_the_steepest_slope_and_is_reached() -> None:
    """Of Φ⁻¹ of the logistic function: √(2π)/4, at 0; with it a binary draw of small η has exactly μ."""
    logits = np.linspace(-30, 30, 60_001)
    slopes = np.gradient(norm.ppf(expit(-np.abs(logits))) * -np.sign(logits), logits)
    assert slopes.max() == pytest.approx(math.sqrt(2 * math.pi) / 4, rel=1e-4)
    scale = choice_constant([0], 1, 1, 1.0) / 0.01  # of two scores that each move by 2, against each other
    first, second = (np.array([p, 1 - p]) for p in (expit(2 / scale), expit(-2 / scale)))
    assert excess_over_gaussian(first, second, 0.01) == pytest.approx(0, abs=1e-6)


def test_a_draw_is_by_exact_scores_less_costs_and_its_scale_covers_rounding_of_units() -> None:
    rows = np.vstack([FIRST, LAST, FIRST])
    guesses = np.array([20, 10, 0, 0, 30, 30, 0, 0, 0, 0])
    scores, scale = chosen_scores(rows, guesses, 10, allowance=3.0, count=2)
    assert scores.tolist() == [0 + 0, 20 + 20 - 5, 10 + 10 - 7]
    assert scale == pytest.approx(math.sqrt(2 * math.pi * 2) / 2 * (20 + 5) / 3, rel=1e-8)


def test_tables_are_drawn_as_often_as_the_exponential_mechanism_draws_them() -> None:
    """6 sequences of 2 of 3 tables, 2,000 draws. χ² with 5 degrees of freedom; false alarm: 1e-6 each."""
    for seed in [None, 3]:
        scores, scale, many = np.array([10**9, 10**9 + 800, 10**9 - 500]), 700.0, 2000
        noise = GaussianNoise(1.0, 1e-6)
        rounds = RehearsalNoise(noise, seed or 0)
        drawn = [
            tuple((noise if seed is None else rounds.of_round(r)).largest(scores, count=2, scale=scale).tolist())
            for r in range(many)
        ]
        seen = np.array([drawn.count(sequence) for sequence in permutations(range(3), 2)])
        expected = law_of_draws(scores, 2, scale) * many
        assert seen.sum() == many and ((seen - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 5)


def test_a_draw_is_a_round_that_is_recorded_before_it() -> None:
    noise = RoundRecorder()
    rounds = opened(np.vstack([FIRST, LAST]), 1.0, noise=noise, record_spend=noise.record_spend)
    rounds.choose(ALL, NO_GUESS, 1000, costs=np.zeros(3, dtype=int), count=2)
    rounds.measure(ALL, HEIGHTS)
    assert noise.events == ["spend", "draw", "noise"] and noise.numbers == [0, 1] and rounds.counts is None
    with pytest.raises(PublishError, match="all rounds were made"):
        rounds.choose(ALL, NO_GUESS, 1000, costs=np.zeros(3, dtype=int), count=1)
