"""What exactness costs at the door: its throughput compared with a bare loop over the same features.

The bare loop evaluates the features of one block of rows after another and adds them in float64: no bound enforced,
no integers, sums that depend on order. For a subspace its product is one plain matrix product; margins are counted.
Both run in the same process, one after the other, on one thread and in the same blocks; the ratio is of their fastest
rounds. Cosines in whole numbers are also timed "in NumPy", as without the compiled loop (`_turns.c`: `pip install -e .` builds
it), and "rounded", as if the door rounded cosines of float64 like other features. "float32 product" is one plain product of
matrices, rows by columns and columns by features. Then the time of 10⁴ and 10⁵ noisy coordinates, and of two workers against
one.

    python tests/benchmarks/door_throughput.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from unittest.mock import patch

import numpy as np
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
from release_side.door.exact_sums import _blocks
from release_side.door.mechanism import GaussianNoise, LaplaceNoise, Noise
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


def bare_features(feature_map: FeatureMap) -> Callable[[Array], Array]:
    if isinstance(feature_map, Nystroem):
        inverse = np.linalg.inv(feature_map._factor).T
        return lambda rows: feature_map.kernel.gram(rows, feature_map.points) @ inverse
    return feature_map


def bare_loop(rows: Array, feature_map: FeatureMap) -> Array:
    blocks, total = _blocks(len(rows), ExactSums(feature_map).step), np.zeros(feature_map.dimension)
    if isinstance(feature_map, CellFeatures):
        for block in blocks:
            total += np.bincount(feature_map.cell_indices(rows[block]).ravel(), minlength=len(total))
        return total * np.repeat(feature_map.heights, np.diff(feature_map.starts)) / len(rows)
    features = bare_features(feature_map)
    for block in blocks:
        total += features(rows[block]).sum(axis=0)
    return total / len(rows)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(label: str, rows: Array, feature_map: FeatureMap) -> None:
    def door(workers: int = 1) -> Array:
        return private_mean([rows], feature_map, NoNoise(), n_rows=len(rows), workers=workers).vector  # type: ignore[arg-type]

    def rounded() -> None:
        with patch("release_side.door.private_mean._has_turns", lambda feature_map: False):
            door()

    def numpy_alone() -> None:
        with patch("release_side.door.turns.compiled", None):
            door()

    def product() -> None:
        for block in _blocks(len(rows), ExactSums(feature_map).step):
            small[block] @ columns

    small, columns = rows.astype(np.float32), np.ones((rows.shape[1], feature_map.dimension), dtype=np.float32)
    works: dict[str, Callable[[], object]] = {
        "bare": lambda: bare_loop(rows, feature_map), "door": door, "two workers": lambda: door(2),
    }  # fmt: skip
    if isinstance(feature_map, RandomFourier):
        works |= {"in NumPy": numpy_alone, "rounded": rounded, "float32 product": product}
    with threadpool_limits(1):
        np.testing.assert_allclose(door(), bare_loop(rows, feature_map), atol=1e-6)
        times = {name: min(seconds(work) for _ in range(ROUNDS)) for name, work in works.items()}
    print(f"{label}, F = {feature_map.dimension}: ratio {times['door'] / times['bare']:.2f}")
    for name, time_ in times.items():
        rate = len(rows) * feature_map.width / time_ / 1e6
        print(f"    {name:<16} {len(rows) / time_:12,.0f} rows/s {rate:8,.0f} million features/s", flush=True)


def noise(law: Noise, n_coordinates: int, sensitivity: float) -> None:
    total = np.zeros(n_coordinates, dtype=np.int64)
    best = min(seconds(lambda: law.add_to(total, sensitivity=sensitivity)) for _ in range(ROUNDS))
    print(f"{law.name:<44} {n_coordinates:>7,} noisy coordinates: {best:.3f} s", flush=True)


def main() -> None:
    rng = np.random.default_rng(0)
    for label, domain in (("random features, 15 mixed columns", census()), ("random features, 5 numbers", numbers())):
        features = RandomFourier.draw(table_kernel(domain), n_columns=len(domain), dimension=4000, rng=0)
        compare(label, domain.draw(20_000, rng), features)
    domain = census()
    for label, target in (("margins, 15 mixed columns", None), ("the same with a target", domain.names[6])):
        compare(label, domain.draw(100_000, rng), MarginFeatures(margin_kernel(domain, target)))
    domain = numbers()
    for label, kernel in (("the table kernel", table_kernel(domain)), ("a Gaussian kernel", Gaussian(0.3))):
        subspace = Nystroem.fit(kernel, domain.draw(1000, rng))
        compare(f"subspace of 1,000 points, {label}", domain.draw(10_000, rng), subspace)
    for n_coordinates in (10**4, 10**5):
        noise(GaussianNoise(1.0, 1e-6), n_coordinates, 2.0**31)
        noise(LaplaceNoise(1.0, 0), n_coordinates, 2.0**31 * n_coordinates**0.5 // 1)


if __name__ == "__main__":
    main()
