"""Noisy margins of all pairs become rows of the domain, with weights of the view."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from every import every
from kernel_cases import WORKERS as PEOPLE
from kernel_cases import workers as people
from representation_cases import measured

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.representation.represent import represent
from kmeanalyst.representation.tables import within_cells
from kmeanalyst.representation.wanted import QUICK, Effort, Wanted

ROWS = PEOPLE.encode(people(6000, np.random.default_rng(0)))
SMALL = Effort(0.1)


def measurement_of(rows: Array, domain: Domain, *, noise_scale: float) -> Measurement:
    return measured(MarginFeatures(margin_kernel(domain)), rows, noise_scale=noise_scale)


def test_the_fit_is_far_nearer_to_the_table_than_its_measurement():
    measurement = measurement_of(ROWS, PEOPLE, noise_scale=0.01)
    features = measurement.feature_map
    points, weights = represent(measurement, PEOPLE, Wanted(n_points=4000, effort=Effort(0.3)))
    truth = feature_mean(features, ROWS)
    ours, noisy = (np.linalg.norm(v - truth) for v in (feature_mean(features, points, weights), measurement.vector))
    assert ours < 0.5 * noisy


def test_every_year_of_age_is_released():
    """With cuts at whole numbers the ages on a cut (31, 46, 61) were in no released row."""
    domain = Domain((Integer(name="age", lower=9, upper=98),))
    measurement = measurement_of(np.arange(9.0, 99.0)[:, None], domain, noise_scale=1e-4)
    rows, _ = represent(measurement, domain, Wanted(n_points=5000))
    counts = np.bincount(rows[:, 0].astype(int), minlength=99)[9:]
    assert counts.min() > 40  # of 56 on average


SPIKES = Domain((Integer(name="pay", lower=0, upper=99, edges=(50,), missing=True), Boolean(name="rich")))


def payments(n: int, rng: np.random.Generator) -> Array:
    """Half of the poor are paid 40 and half of the rich 60, the others any amount; some amounts are missing."""
    rich = rng.random(n) < 0.4
    pay = np.where(rng.random(n) < 0.5, np.where(rich, 60, 40), rng.integers(0, 100, n)).astype(float)
    pay[rng.random(n) < 0.1] = np.nan
    return np.column_stack([pay, rich])


def test_spikes_within_a_range_are_found():
    rows = payments(20_000, np.random.default_rng(0))
    measurement = measurement_of(rows, SPIKES, noise_scale=0.002)
    drawn, _ = represent(measurement, SPIKES, Wanted(n_points=20_000, effort=SMALL))
    for value in (40, 60, 41, 61):
        assert abs((drawn[:, 0] == value).mean() - (rows[:, 0] == value).mean()) < 0.02


def test_noise_alone_makes_no_spikes():
    """The largest noisy share of a value is halved at least: the prior holds against what noise would explain."""
    rows = np.column_stack([np.tile(np.arange(100.0), 50), np.zeros(5000)])
    measurement = measurement_of(rows, SPIKES, noise_scale=0.02)
    drawn, _ = represent(measurement, SPIKES, Wanted(n_points=20_000, effort=SMALL))
    counts = np.bincount(drawn[:, 0][~np.isnan(drawn[:, 0])].astype(int), minlength=100)
    finer = measurement.feature_map.groups[-1]
    assert finer.kind == "finer"
    noisy = measurement.vector[finer.start : finer.stop] / finer.height
    assert counts.max() / counts.sum() < 0.6 * noisy.max()


def test_a_range_that_holds_no_value_gets_none():
    """Whole numbers on a logarithmic scale: finer ranges between two of them are empty, that of the atom alone as well."""
    column = Integer(name="i", lower=0, upper=10**6, scale="log1p", edges=(3, 1000), atoms=(0,))
    domain = Domain((column,))
    rows = domain.encode(pd.DataFrame({"i": np.random.default_rng(3).integers(0, 10, 500)}))
    drawn, _ = represent(measurement_of(rows, domain, noise_scale=0.001), domain, Wanted(n_points=2000))
    np.testing.assert_array_equal(domain.encode(domain.decode(drawn)), drawn)
    edges = np.log1p([0.5, 0.7, 1.5, 2.2, 2.8, 9.5])
    assert (within_cells.sizes_within(column, edges, ()) > 0).tolist() == [False, True, True, False, True]
    values = column.decode(drawn[:, 0]).to_numpy(dtype=int)
    truth = column.decode(rows[:, 0]).to_numpy(dtype=int)
    for value in range(10):
        assert abs((values == value).mean() - (truth == value).mean()) < 0.02


def test_the_answer_depends_on_the_seed_alone_and_the_progress_ends():
    measurement, reports = measurement_of(ROWS, PEOPLE, noise_scale=0.01), []

    def report(what: str, share: float) -> None:
        reports.append((what, share))

    one, two, other = (represent(measurement, PEOPLE, Wanted(n_points=60, rng=seed, effort=SMALL), report)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)
    steps, shares = zip(*reports[: len(reports) // 3], strict=True)
    assert [*dict.fromkeys(steps)] == ["moving rows", "placing points"]
    assert list(shares) == sorted(shares) and shares[-1] == 1.0


@every(("view", "bound", "total"), [("bounded", 0.5, 0.5), ("signed", 3.0, 1.0), ("uniform", None, 1.0)])
def test_even_weights_keep_the_bound(view: str, bound: float | None, total: float):
    measurement = measurement_of(ROWS[:100], PEOPLE, noise_scale=0.05)
    _, weights = represent(measurement, PEOPLE, Wanted(n_points=20, view=view, bound=bound, effort=QUICK))
    np.testing.assert_allclose(weights, total / 20, rtol=1e-15)


HOSTILE = {
    "one level": (Domain((Categorical(name="c", levels=("a",)),)), np.zeros((5, 1)), 0.1),
    "one boolean": (Domain((Boolean(name="b"),)), np.array([[0.0], [1], [1]]), 0.1),
    "huge noise": (PEOPLE, ROWS[:50], 1e4),
    "all missing": (Domain((Real(name="r", lower=0, upper=1, missing=True),)), np.full((5, 1), np.nan), 0.05),
    "one real number": (Domain((Real(name="r", lower=-3, upper=1e300),)), np.ones((5, 1)), 0.05),
}


@every("name", HOSTILE)
@every("float32", [False, True])
def test_hostile_measurements_give_rows_of_the_domain(name: str, float32: bool):
    domain, rows, noise_scale = HOSTILE[name]
    measurement = measurement_of(rows, domain, noise_scale=noise_scale)
    points, weights = represent(measurement, domain, Wanted(n_points=7, float32=float32, effort=SMALL))
    np.testing.assert_array_equal(domain.encode(domain.decode(points)), points)
    np.testing.assert_array_equal(weights, np.full(7, 1 / 7))


def test_values_that_heap_leave_the_others_their_shares_and_are_at_a_round_value():
    """Half of all are 7.5, the last value of a cell: a smooth density that bends for it has next to none from 7.8 to 8.3."""
    rng = np.random.default_rng(0)
    private = np.where(rng.random(20_000) < 0.5, 7.5, np.clip(rng.normal(6.0, 1.5, 20_000).round(1), 0, 10))
    for step, edges in ((0.1, (6.7, 7.6, 8.4)), (None, (6.65, 7.55, 8.35))):
        column = Real(name="x", lower=0, upper=10, step=step, edges=edges)
        domain = Domain((column,))
        rows = domain.encode(pd.DataFrame({"x": private}))
        drawn = represent(measurement_of(rows, domain, noise_scale=0.0003), domain, Wanted(n_points=5000))[0][:, 0]
        after = (private > 7.7) & (private < 8.4)
        assert np.mean((drawn > 7.7) & (drawn < 8.4)) == pytest.approx(after.mean(), rel=0.25)
        assert np.mean(drawn == 7.5) == pytest.approx(np.mean(private == 7.5), abs=0.02)
