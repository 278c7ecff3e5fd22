"""Covariances of pairs: answers follow what whole tables say of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from representation_cases import measured

from kmeanalyst.inference.posterior import through_tables
from kmeanalyst.inference.posterior.column_sums import ColumnSums
from kmeanalyst.inference.posterior.pair_sums import PairSums
from kmeanalyst.inference.posterior.through_tables import posterior_around
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import ChosenMargins, MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel
from kmeanalyst.releases.domain.numbers import Integer


@pytest.mark.parametrize("kind", ["numbers", "with missing cells", "in tables of three"])
def test_covariances_follow_whole_tables_where_noise_hides_their_cells(kind: str, monkeypatch: pytest.MonkeyPatch):
    """Rows fitted to cells that are hidden say .5 for correlations of .8 of four columns."""

    def drawn(rho: float) -> Array:
        rng = np.random.default_rng(int(10 * rho))
        cells = rng.multivariate_normal(np.zeros(4), rho + (1 - rho) * np.eye(4), 4000)
        cells[:400, 1] = np.nan if kind == "with missing cells" else cells[:400, 1]
        return np.clip(np.rint(5 * cells + 30), 0, 59)

    one = Integer(name="0", lower=0, upper=59, edges=tuple(range(22, 40, 3 if kind == "in tables of three" else 1)))
    domain = Domain(tuple(replace(one, name=str(j), missing=kind == "with missing cells" and j == 1) for j in range(4)))
    base = margin_kernel(domain)
    if kind == "in tables of three":
        cells, of_sets = (base.edges, base.atoms, base.missing, (0.5, 0.5, 0.0), base.fine), ((0.125,) * 4, (0.125,) * 4, ())
        base = ChosenMargins(*cells, chosen=((0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)), squares=of_sets)
    features, fitted, population, off = MarginFeatures(base), drawn(0.5), drawn(0.8), list[Array]()
    measurement = measured(features, population, noise_scale=0.0005)
    products, wanted = (
        np.column_stack([x[:, i] * x[:, j] for i, j in combinations(range(4), 2)])
        for x in (np.nan_to_num((rows - 30) / 5) for rows in (fitted, population))
    )
    for each in (through_tables.with_pairs, lambda columns, *_: columns):
        monkeypatch.setattr(through_tables, "with_pairs", each)
        fit = posterior_around(measurement, fitted, np.full(4000, 1 / 4000), 0.005, 60.0)
        off.append(np.abs(fit.weights @ products - wanted.mean(axis=0)))
        if isinstance(sums := fit.sums, PairSums):
            q = np.random.default_rng(0).dirichlet(np.ones(4000))
            means = q @ measurement.even_features(fitted)
            assert len(sums.products.T) == 6
            np.testing.assert_allclose(sums.shares(means[:, None], 1.0)[len(sums.columns.shown) :, 0], q @ sums.products, atol=1e-9)
    assert isinstance(fit.sums, ColumnSums) and off[0].mean() < 0.06, off
    assert kind == "in tables of three" or off[1].mean() > 0.1, off
