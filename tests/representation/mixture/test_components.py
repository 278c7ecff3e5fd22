"""What mixtures of every kind share: softmax in blocks, its slopes, and the weights of an average."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from scipy.optimize import approx_fprime
from scipy.special import softmax

from kmeanalyst.representation.mixture.components import (
    block_slope_in_logits,
    block_softmax,
    pooled_weights,
    slope_in_logits,
)

SIZES = np.array([3, 1, 2])  # of the blocks of 6 logits
LOGITS, SLOPE = np.random.default_rng(0).normal(size=(2, 6))


def test_each_block_has_the_softmax_of_its_own_logits_however_large():
    moved = LOGITS + 800 * np.array([1, 1, 1, -1, 1, 1])
    expected = np.concatenate([softmax(part) for part in np.split(LOGITS, np.cumsum(SIZES[:-1]))])
    assert np.allclose(block_softmax(np.stack([LOGITS, moved]), SIZES), expected)


def test_the_slope_in_logits_is_that_of_differences():
    in_blocks = block_slope_in_logits(p := block_softmax(LOGITS, SIZES), p * SLOPE, SIZES)
    assert np.allclose(in_blocks, approx_fprime(LOGITS, lambda at: SLOPE @ block_softmax(at, SIZES)), atol=1e-6)
    in_one = slope_in_logits(softmax(LOGITS), SLOPE)
    assert np.allclose(in_one, approx_fprime(LOGITS, lambda at: SLOPE @ softmax(at)), atol=1e-6)


def test_an_average_gives_each_mixture_the_same_weight():
    first, second = (SimpleNamespace(weights=np.array(weights)) for weights in ([1.0], [0.25, 0.75]))
    assert np.allclose(pooled_weights([first, second]), [0.5, 0.125, 0.375])
