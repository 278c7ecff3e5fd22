"""Rows of tables of all pairs: what few latent classes cannot follow is taken from the measured tables, as far as noise lets it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from every import every
from representation_cases import measured

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.tables import rows_from_tables
from kmeanalyst.representation.tables.latent_classes import fit_latent_classes
from kmeanalyst.representation.tables.rows_from_tables import rows_from_classes
from kmeanalyst.representation.tables.tree import Tree
from kmeanalyst.representation.wanted import QUICK, Effort, Wanted

EDGES = tuple(np.arange(1.0, 12.0))
LEVELS = tuple("abcdefghijkl")
NUMBERS = Domain((
    Real(name="x", lower=0, upper=12, edges=EDGES), Real(name="y", lower=0, upper=12, edges=EDGES), Boolean(name="t"),
))  # fmt: skip
CODES = Domain((Categorical(name="x", levels=LEVELS), Categorical(name="y", levels=LEVELS), Boolean(name="t")))


def rows_of(domain: Domain) -> Array:
    """(6000, 3) encoded rows: two columns of twelve cells that are nearly one, and a third that follows them."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 12, 6000)
    y = (x + 0.3 * rng.standard_normal(6000)).clip(0, 11.99)
    values = [x, y] if domain is NUMBERS else [np.array(LEVELS)[own.astype(int)] for own in (x, y)]
    return domain.encode(
        pd.DataFrame(dict(zip(("x", "y"), values, strict=True)) | {"t": rng.random(6000) < 0.2 + 0.05 * x})
    )


def measurement_of(domain: Domain, noise: float) -> Measurement:
    return measured(MarginFeatures(margin_kernel(domain)), rows_of(domain), noise_scale=noise)


def distance(domain: Domain, measurement: Measurement, rows: Array) -> float:
    """Total variation between the tables of x and y and t of these rows and of the true ones."""
    kernel = measurement.feature_map.kernel

    def table(encoded: Array) -> Array:
        cells = np.ravel_multi_index(tuple(kernel.cells(encoded).T), kernel.sizes)
        return np.bincount(cells, minlength=int(np.prod(kernel.sizes))) / len(encoded)

    return 0.5 * float(np.abs(table(rows) - table(rows_of(domain))).sum())


@pytest.mark.parametrize("domain", [NUMBERS, CODES], ids=["numbers", "levels"])
@pytest.mark.slow(but="numbers")
def test_columns_that_are_nearly_one_stay_so(monkeypatch: pytest.MonkeyPatch, domain: Domain):
    """Classes alone, of which few follow a ridge of twelve cells, are a third as far again, at least (.61 and .68)."""
    measurement = measurement_of(domain, 2e-4)
    model = fit_latent_classes(measurement, 0, effort=Effort(0.3))

    def rows() -> Array:
        return rows_from_classes(model, measurement, domain, Wanted(n_points=6000, effort=Effort(0.3)))

    near = distance(domain, measurement, rows())
    monkeypatch.setattr(rows_from_tables, "_refined", lambda found, *_: found)
    assert near < 0.75 * distance(domain, measurement, rows())


@every("domain", [NUMBERS, CODES])
def test_much_noise_leaves_the_tables_of_the_classes(domain: Domain):
    """Where no table is further from the classes' than noise can be, they stay what they are, orders or not."""
    measurement = measurement_of(domain, 0.05)
    model = fit_latent_classes(measurement_of(domain, 2e-4), 0, effort=QUICK)
    kernel = measurement.feature_map.kernel
    found = rows_from_tables._of_classes(model, kernel, [(0, 1)], Tree.of([(0, 1)], 2), None)
    after = rows_from_tables._refined(found, measurement, domain, None)
    np.testing.assert_array_equal(after.pairs[0, 1], found.pairs[0, 1])
