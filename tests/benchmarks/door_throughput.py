"""The door compared with the same features summed without it: rows and features per second.

    python tests/benchmarks/door_throughput.py

The bare loop computes the features as they are used and adds them in float64: no bound enforced, no integers, sums that depend on
order. For a subspace its product is one plain matrix product; margins are counted. Both run in the same process, one after the
other, on one thread and in the same blocks; the ratio is of their fastest rounds. Cosines in whole numbers need the compiled loop
(`_turns.c`: `pip install -e .` builds it).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from harness import seconds, show
from threadpoolctl import threadpool_limits

from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import CellFeatures, FeatureMap
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel, table_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from release_side.door.private_mean import ExactSums, private_mean

ROUNDS = 5


class NoNoise:
    """A mechanism that adds nothing: what is timed is the way to the exact sum."""

    name = "discrete gaussian"

    def deviation(self, sensitivity: float) -> float:
        return sensitivity

    def add_to(self, exact_sum: Array, *, sensitivity: float) -> Array:
        return exact_sum


def census() -> Domain:
    """Fifteen columns in the manner of a census table."""
    columns: list[Column] = [Integer(name=f"integer {i}", lower=0, upper=10 ** (i + 1)) for i in range(6)]
    for i, n in enumerate((2, 2, 5, 7, 9, 14, 16, 16, 41)):
        columns.append(Categorical(name=f"{n} levels ({i})", levels=tuple(map(str, range(n)))))
    return Domain(tuple(columns))


def numbers() -> Domain:
    return Domain(tuple(Real(name=f"x{i}", lower=0, upper=1) for i in range(5)))


def bare_loop(rows: Array, feature_map: FeatureMap) -> Array:
    step, total = ExactSums(feature_map).step, np.zeros(feature_map.dimension)
    blocks = [slice(start, start + step) for start in range(0, len(rows), step)]
    if isinstance(feature_map, CellFeatures):
        for block in blocks:
            total += np.bincount(feature_map.cell_indices(rows[block]).ravel(), minlength=len(total))
        return total * np.repeat(feature_map.heights, np.diff(feature_map.starts)) / len(rows)
    features: Callable[[Array], Array] = feature_map
    if isinstance(feature_map, Nystroem):
        inverse = np.linalg.inv(feature_map._factor).T
        features = lambda rows: feature_map.kernel.gram(rows, feature_map.points) @ inverse  # noqa: E731
    for block in blocks:
        total += features(rows[block]).sum(axis=0)
    return total / len(rows)


def compare(label: str, rows: Array, feature_map: FeatureMap) -> None:
    def door() -> Array:
        return private_mean([rows], feature_map, NoNoise(), n_rows=len(rows), workers=1).vector  # type: ignore[arg-type]

    with threadpool_limits(1):
        np.testing.assert_allclose(door(), bare_loop(rows, feature_map), atol=1e-6)
        works = (lambda: bare_loop(rows, feature_map), door)
        bare, ours = (min(seconds(work) for _ in range(ROUNDS)) for work in works)
    rates = {"rows/s": len(rows) / ours, "million features/s": len(rows) * feature_map.width / ours / 1e6}
    show([{"features": label, "F": feature_map.dimension, "ratio": ours / bare} | rates])


def main() -> None:
    rng = np.random.default_rng(0)
    mixed, five = census(), numbers()
    for label, domain in (("random features, 15 mixed columns", mixed), ("random features, 5 numbers", five)):
        features = RandomFourier.draw(table_kernel(domain), n_columns=len(domain), dimension=4000, rng=0)
        compare(label, domain.draw(20_000, rng), features)
    compare("margins, 15 mixed columns", mixed.draw(100_000, rng), MarginFeatures(margin_kernel(mixed)))
    for label, kernel in (("the table kernel", table_kernel(five)), ("a Gaussian kernel", Gaussian(0.3))):
        subspace = Nystroem.fit(kernel, five.draw(1000, rng))
        compare(f"subspace of 1,000 points, {label}", five.draw(10_000, rng), subspace)


if __name__ == "__main__":
    main()
