"""Level and power of tests of independence of a release, over sizes and budgets, with the χ² test of the private rows next to it.

    python tests/benchmarks/independence_tests.py [--releases 60] [--tables independent collider simulated adult]
                        [--kernels margins adaptive] [--epsilon 0.1 1 10] [--rows 1000 10000] [--target COLUMN] [--fit]

Every pair of columns of every release is one test at 5 %, those that were not counted too (p = 1). Independent, simulated and
Adult are those of `populations.py`; collider has five triples a, b and c = a + b, of which the five pairs a × b, which are
independent, are tested. With --target the tests are those given that column, of pairs of the others. Private: Pearson's test of
the same cells of the same rows. With --fit the points are fitted, and the test along leading functions (HSIC), which uses them,
is made too: it was the test of tables before this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
from harness import command_line, show
from level_of_mmd_test import fit_nothing
from populations import population
from scipy.stats import chi2, chi2_contingency

import release_side
from kmeanalyst.inference.compare import independence
from kmeanalyst.inference.contingency.contingency_test import Contrasts, mantel_haenszel, weighted_test
from kmeanalyst.inference.contingency.strata import strata_of
from kmeanalyst.kernels.base import Array
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel
from kmeanalyst.releases.domain.levels import Categorical
from release_side.publishing.methods.adaptive.shares_of_rounds import with_sets

LEVEL = 0.05
_LEVELS = tuple("klm")
COLLIDER = Domain(tuple(
    Categorical(name=f"{name}{t}", levels=_LEVELS if name != "c" else tuple("vwxyz")) for t in range(5) for name in "abc"
))  # fmt: skip


def collider_rows(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Five times a and b, independent, and their sum."""
    found = {}
    for t in range(5):
        a, b = rng.integers(0, 3, (2, n))
        found |= {f"a{t}": np.take(_LEVELS, a), f"b{t}": np.take(_LEVELS, b), f"c{t}": np.take(list("vwxyz"), a + b)}
    return pd.DataFrame(found)


@dataclass(frozen=True)
class Setting:
    """What one line of the results is of."""

    table: str
    kernel: str
    epsilon: float
    rows: int
    target: str | None
    fit: bool


def drawn(setting: Setting) -> tuple[Domain, Any, list[tuple[str, str]]]:
    """The domain, how rows are drawn, and the pairs that are tested."""
    if setting.table == "collider":
        return COLLIDER, collider_rows, [(f"a{t}", f"b{t}") for t in range(5)]
    domain, draw, _ = population(setting.table)
    return domain, draw, list(combinations([name for name in domain.names if name != setting.target], 2))


def pvalues(setting: Setting, releases: int) -> Array:
    """(releases, pairs, 5): weighted, χ² (or CMH), HSIC, of the private rows, and whether the pair was counted."""
    domain, draw, pairs = drawn(setting)
    if not setting.fit:
        fit_nothing(domain.draw(10, 0))
    found, kernel = np.ones((releases, len(pairs), 5)), setting.kernel
    if setting.target is not None and kernel == "margins":
        own = domain.position(setting.target)
        kernel = with_sets(margin_kernel(domain), [s for s in combinations(range(len(domain)), 3) if own in s])
    for i in range(releases):
        rng = np.random.default_rng([i, int(setting.epsilon * 10), setting.rows])
        rows = draw(setting.rows, rng)
        release = release_side.publish(
            rows, domain, epsilon=setting.epsilon, delta=1e-6, kernel=kernel, workers=1,
            target=None if setting.kernel == "margins" else setting.target, rehearsal=int(rng.integers(2**62)), uncounted=True,
        )  # fmt: skip
        cells = release.measurement.feature_map.kernel.cells(domain.encode(rows))  # type: ignore[attr-defined, union-attr]
        found[i] = [_tests(setting, release, cells, a, b) for a, b in pairs]
    return found


def _tests(setting: Setting, release: Release, cells: Array, a: str, b: str) -> tuple[float, ...]:
    names = release.domain.names
    private = _private(cells, names, a, b, setting.target)
    strata = strata_of(release, a, b, setting.target)
    if strata is None or not len(strata.tables):
        return 1.0, 1.0, 1.0 if setting.fit else np.nan, private, 0.0
    contrasts = Contrasts.of(strata)
    own = contrasts.pvalue if setting.target is None else mantel_haenszel(contrasts)[2]
    sides = ((names.index(a),), (names.index(b),))
    hsic = independence._noise_aware_test(release, sides).pvalue if setting.fit else np.nan
    return weighted_test(contrasts)[1], own, hsic, private, 1.0


def _private(cells: Array, names: tuple[str, ...], a: str, b: str, given: str | None) -> float:
    """Pearson's χ² test, summed over strata."""
    strata = np.zeros(len(cells)) if given is None else cells[:, names.index(given)]
    statistic, degrees = 0.0, 0
    for stratum in np.unique(strata):
        own = cells[strata == stratum]
        x, y = (np.unique(own[:, names.index(name)], return_inverse=True)[1] for name in (a, b))
        table = np.bincount(x * (y.max() + 1) + y, minlength=(x.max() + 1) * (y.max() + 1)).reshape(x.max() + 1, -1)
        if min(table.shape) > 1:
            one = chi2_contingency(table, correction=False)
            statistic, degrees = statistic + one.statistic, degrees + one.dof
    return float(chi2.sf(statistic, degrees)) if degrees else 1.0


def main() -> None:
    asked = command_line(
        __doc__, releases=60, tables=("independent", "simulated"), kernels=("margins", "adaptive"), epsilon=(0.1, 1.0, 10.0),
        rows=(1000, 10_000), target=None, fit=False,
    )  # fmt: skip
    for table, kernel, rows, epsilon in product(asked.tables, asked.kernels, asked.rows, asked.epsilon):
        found = pvalues(Setting(table, kernel, epsilon, rows, asked.target, asked.fit), asked.releases)
        rejected = np.where(np.isnan(found), np.nan, found <= LEVEL).mean(axis=(0, 1))
        line = {"table": table, "kernel": kernel, "N": rows, "ε": epsilon}
        line |= dict(zip(("weighted", "χ² or CMH", "HSIC", "private"), rejected, strict=False))
        error = 3 * np.sqrt(LEVEL * (1 - LEVEL) / found[..., 0].size)
        show([line | {"counted": found[..., 4].mean(), "3 s.e. of the level": error}])


if __name__ == "__main__":
    main()
