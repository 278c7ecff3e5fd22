"""Tables of more than 2³² rows: a test of arithmetic and not of time.

A few rows are read, and their sums multiplied: the sums of a table that repeats them. By hand: 10¹⁰ rows that are all in one
cell of height GRID · SHRINK have the sum 10¹⁰ · 2²⁸ · (1 − 2⁻¹⁸) = 2.684·10¹⁸, of the 2⁶² = 4.612·10¹⁸ that are allowed.
"""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from door_cases import Claimed, unread

from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import CellFeatures, FeatureMap
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.release import read_release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer
from kmeanalyst.releases.file import validate_release
from kmeanalyst.releases.measurement import GRID, SHRINK
from kmeanalyst.releases.statement import PopulationSize
from release_side.door.mechanism import GaussianNoise, LaplaceNoise, Noise, PublishError, RehearsalNoise
from release_side.door.private_mean import integer_features, private_mean, sum_over_rows
from release_side.door.private_tables import TableRounds, count_tables
from release_side.private_rows import reading
from release_side.publishing.publish import publish

# the packages' own names are the functions'
door, private_tables = (importlib.import_module(f"release_side.door.{name}") for name in ("private_mean", "private_tables"))
MOST = 2**34  # rows
N = 10**10
LARGE = pytest.mark.parametrize("n_rows", [N, MOST])
DOMAIN = Domain((
    Categorical(name="c", levels=("a", "b", "z")), Boolean(name="b"), Integer(name="n", lower=0, upper=9),
))  # fmt: skip
ROWS = 1000
TABLE = pd.DataFrame({"c": ["a"] * 999 + ["b"], "b": [True, False, False, False] * 250, "n": [0, 2, 4, 6, 8] * 200})


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch):
    """Call it with k: from then on sums over a table of N rows are k times those of the N/k that are read."""

    def repeat(times: int) -> None:
        def sum_of(*facts: Any, n_rows: int, **rest: Any) -> Array:
            exact = sum_over_rows(*facts, n_rows=n_rows // times, **rest)
            assert max(abs(int(each)) for each in exact) * times <= 2**62
            return exact * times

        for room in (door, private_tables):
            monkeypatch.setattr(room, "sum_over_rows", sum_of)

    return repeat


def cells() -> MarginFeatures:
    return MarginFeatures(margin_kernel(DOMAIN))


MAPS: dict[str, tuple[FeatureMap, Array]] = {
    "the bound": (Claimed(np.array([[1.0], [-1.0]])), np.array([[0.0]])),
    "the bound below 0": (Claimed(np.array([[1.0], [-1.0]])), np.array([[1.0]])),
    "cosines": (RandomFourier(Gaussian(1.0), np.array([[1.0, 2.0]])), np.array([[0.0]])),
    "cells": (cells(), np.zeros((1, 3))),
}
NOISES: dict[str, Any] = {
    "gaussian": GaussianNoise(1.0, 1e-12), "much gaussian": GaussianNoise(1e-5, 1e-12), "laplace": LaplaceNoise(1.0, 0),
    "rehearsal": RehearsalNoise(GaussianNoise(1.0, 1e-12), 1), "rehearsed laplace": RehearsalNoise(LaplaceNoise(1.0, 0), 1),
}  # fmt: skip


@LARGE
def test_noise_meets_the_sum_of_as_many_rows_without_wrapping(n_rows: int, repeated):
    """All rows are one row: sums of N · z, z its integers, and noise within 40 deviations (P < 1e-12 for Laplace noise)."""
    for noise in NOISES:
        for case in MAPS:
            feature_map, row = MAPS[case]
            if isinstance(feature_map, CellFeatures):
                z = [int(h) for h in door.counted_sums(feature_map, door.integer_heights(feature_map))(row)]
            else:
                z = [int(a) for a in integer_features(row, feature_map)[0]]
            repeated(n_rows)
            measurement = private_mean([row], feature_map, NOISES[noise], n_rows=n_rows)
            deviation = measurement.noise_scale * measurement.grid_steps * n_rows
            assert max(n_rows * abs(each) for each in z) > 2**59
            for noisy, exact in zip(measurement.noisy_sum, z, strict=True):
                assert abs(int(noisy) - n_rows * exact) < 40 * deviation
            image = feature_map(row)[0]
            # half a step for features that were rounded, and float64's last bit
            step = feature_map.norm_bound / (GRID * SHRINK)
            assert np.abs(measurement.vector - image).max() < 40 * measurement.noise_scale + 0.51 * step


@LARGE
def test_the_sum_of_so_many_rows_of_both_signs_is_exact(n_rows: int, repeated):
    """Half of them 1, half −1, and one pair less: the partial sums are near ±2⁶¹, and the sum is 0."""
    repeated(n_rows // 2)
    found = private_mean([np.array([[0.0], [1.0]])], MAPS["the bound"][0], GaussianNoise(1.0, 1e-12), n_rows=n_rows)
    assert abs(int(found.noisy_sum[0])) < 40 * found.noise_scale * found.grid_steps * n_rows


def test_more_rows_than_64_bits_hold_are_refused_with_the_number_that_they_hold(monkeypatch: pytest.MonkeyPatch):
    message = r"17179869185 rows are more than exact 64-bit sums can hold \(17179869184\)\. Release a part\."
    for feature_map in (MAPS["cosines"][0], cells()):
        with pytest.raises(PublishError, match=message):
            private_mean(unread(), feature_map, GaussianNoise(1.0, 1e-12), n_rows=MOST + 1)
    with pytest.raises(PublishError, match=message):
        count_tables(unread(), cells(), n_rows=MOST + 1)
    monkeypatch.setattr(reading, "PopulationSize", lambda count, unit: PopulationSize(MOST + 1, unit))
    for own in ({}, {"kernel": "margins"}, {"features": 20}, {"method": "subspace"}):
        with pytest.raises(PublishError, match=message):
            publish(TABLE, DOMAIN, epsilon=1.0, delta=1e-12, uncounted=True, **own)


def rounds_of(n_rows: int, noise: Noise | RehearsalNoise) -> TableRounds:
    """All rows in the first cell of every table."""
    everything = cells()
    counts = count_tables([np.zeros((1, 3))], everything, n_rows=n_rows)
    assert counts.max() == n_rows * GRID
    return TableRounds(everything, counts, noise, n_rows, [4.0 * GRID] * 4)


@LARGE
def test_rounds_of_so_many_rows_do_not_wrap(n_rows: int, repeated):
    """Tables with the height GRID, scores at the largest step · N = 2⁶⁰, and a draw among such scores."""
    for noise in ["gaussian", "much gaussian", "rehearsal"]:
        repeated(n_rows)
        rounds = rounds_of(n_rows, NOISES[noise])
        sizes = np.diff(rounds.tables.starts)
        within = 10 * rounds.deviation
        first = rounds.measure(np.array([0]), np.array([GRID]))
        assert abs(int(first[0]) - n_rows * GRID) < within and np.abs(first[1:]).max() < within

        step = 2**60 // n_rows
        with pytest.raises(PublishError, match="a whole step that 64 bits can hold"):
            rounds.scores(np.array([0]), np.zeros(sizes[0], dtype=int), step + 1)
        wanted = np.array([0, 1])
        right = np.zeros(sizes[:2].sum(), dtype=np.int64)
        right[[0, sizes[0]]] = step * n_rows
        wrong = right.copy()
        wrong[[0, 1]] = 0, step * n_rows  # the first table's rows are guessed in another cell than they are in
        scores = rounds.scores(wanted, wrong, step)
        assert abs(int(scores[0]) - 2 * step * n_rows) < within and abs(int(scores[1])) < within
        assert 2 * step * n_rows > 2**60
        for guesses, costs, likely in ((wrong, [0, 2**61], 0), (right, [2**61, 0], 1)):
            chosen, scale = rounds.choose(wanted, guesses, step, costs=np.array(costs), count=1)
            assert chosen.tolist() == [likely] and scale < 2**50


@pytest.mark.parametrize(
    "own", [{"kernel": "adaptive"}, {"kernel": "margins"}, {"features": 60}, {"method": "subspace"}],
    ids=["adaptive", "margins", "features", "a subspace"],
)  # fmt: skip
def test_a_release_of_so_many_rows_is_written_read_and_asked(
    own: dict[str, Any], tmp_path: Path, repeated, monkeypatch: pytest.MonkeyPatch
):
    """The integers come back, the file validates, the answers are right, and errors of sampling are those of N = 10¹⁰ rows."""
    times, path = N // ROWS, tmp_path / "large.kme"
    repeated(times)
    monkeypatch.setattr(reading, "PopulationSize", lambda count, unit: PopulationSize(count * times, unit))
    made = publish(TABLE, DOMAIN, epsilon=1.0, delta=1e-12, uncounted=True, output=path, points=60, **own)
    assert validate_release(path) == []
    release = read_release(path)
    assert made.measurement is not None and release.measurement is not None
    np.testing.assert_array_equal(release.measurement.noisy_sum, made.measurement.noisy_sum)
    np.testing.assert_array_equal(release.measurement.vector, made.measurement.vector)
    assert release.statement is not None and release.statement.n_rows == release.measurement.n_rows == N
    assert release.measurement.sensitivity < 2.1 / N
    for question, share in {"c == 'a'": 0.999, "b": 0.25, "n > 5": 0.4}.items():
        found = release.expectation(question)
        sampling, privacy = found.parts["sampling"], found.parts["privacy"]
        assert sampling is not None and privacy is not None
        assert abs(found.value - share) < 4 * found.standard_error
        assert question == "n > 5" or abs(found.value - share) < 5e-6  # random features do not resolve n
        assert sampling == pytest.approx(math.sqrt(share * (1 - share) / N), rel=0.1)
        assert 0 < privacy < 1e-6
