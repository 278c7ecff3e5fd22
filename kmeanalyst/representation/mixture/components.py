"""What mixtures of every kind share: probabilities as softmax of logits, in one block or in several, and their averages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from kmeanalyst.kernels.base import Array


class Components(Protocol):
    """Any mixture: weights (K,) of its components."""

    @property
    def weights(self) -> Array: ...


def pooled_weights(mixtures: Sequence[Components]) -> Array:
    """Weights of the average of several mixtures, with the components of the first, then of the second, and so on."""
    return np.concatenate([mixture.weights / len(mixtures) for mixture in mixtures])


def slope_in_logits(p: Array, slope: Array) -> Array:
    """The slope in the logits of p (n,) = softmax(logits), from the slope (n,) in p."""
    return p * (slope - p @ slope)


def block_softmax(logits: Array, sizes: Array) -> Array:
    """Probabilities (..., T): the softmax of each block of the last axis, which has blocks of these sizes."""
    starts = np.cumsum(sizes) - sizes
    p = np.exp(logits - np.repeat(np.maximum.reduceat(logits, starts, axis=-1), sizes, axis=-1))
    return p / np.repeat(np.add.reduceat(p, starts, axis=-1), sizes, axis=-1)


def block_slope_in_logits(p: Array, pull: Array, sizes: Array) -> Array:
    """The slope in the logits of p = block_softmax(logits, sizes), from `pull`: p times the slope in p."""
    starts = np.cumsum(sizes) - sizes
    return pull - p * np.repeat(np.add.reduceat(pull, starts, axis=-1), sizes, axis=-1)
