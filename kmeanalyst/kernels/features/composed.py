"""Feature maps made of feature maps, as kernels are made of kernels: sums, products, multiples, some columns only.

With margins and random Fourier features as parts these are the maps of DP-MERF (Harder, Adamczewski & Park 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from kmeanalyst.kernels.base import Array, Kernel, OnColumns, Product, Scaled, Sum, as_rows
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.margins import MarginFeatures, Margins

Leaf = Callable[[Kernel, tuple[int, ...], str], FeatureMap]  # of a kernel, the columns it uses, and its position


@dataclass(frozen=True, eq=False)
class _Several(FeatureMap):
    """What concatenations and products share.

    kernel   a sum or a product.
    maps     one for each of its parts, with that part as its kernel.
    """

    kernel: Kernel
    maps: tuple[FeatureMap, ...]

    def __post_init__(self) -> None:
        parts = getattr(self.kernel, "parts", ())
        if len(parts) == 0 or [each.kernel for each in self.maps] != list(parts):
            raise ValueError(
                f"features of the kernel {self.kernel.name} need a map for each of its {len(parts)} parts, with that part "
                "as its kernel: the bound is composed of theirs. Pass the maps in the parts' order."
            )

    @property
    def nonnegative(self) -> bool:
        return all(each.nonnegative for each in self.maps)

    def arrays(self) -> dict[str, Array]:
        """Those of the i-th part with part_<i>_ before their names."""
        return {f"part_{i}_{name}": array for i, each in enumerate(self.maps) for name, array in each.arrays().items()}


class Concatenation(_Several):
    """φ(x) = (φ₁(x), φ₂(x), ...), of the kernel k₁ + k₂ + ...: the root of the sum of the squared bounds bounds it."""

    name: ClassVar[str] = "sum"

    @property
    def dimension(self) -> int:
        return sum(each.dimension for each in self.maps)

    @property
    def norm_bound(self) -> float:
        return float(np.sqrt(sum(each.norm_bound**2 for each in self.maps)))

    def __call__(self, X: Array) -> Array:
        return np.hstack([each(X) for each in self.maps])

    def mean(self, X: Array, weights: Array) -> Array:
        return np.concatenate([each.mean(X, weights) for each in self.maps])


class TensorProduct(_Several):
    """φ(x) = φ₁(x) ⊗ φ₂(x) ⊗ ..., the first index slowest, of the kernel k₁ · k₂ · ...: bounds multiply."""

    name: ClassVar[str] = "product"

    @property
    def dimension(self) -> int:
        return int(np.prod([each.dimension for each in self.maps], dtype=object))  # Python's integers do not wrap

    @property
    def norm_bound(self) -> float:
        return float(np.prod([each.norm_bound for each in self.maps]))

    def __call__(self, X: Array) -> Array:
        features = self.maps[0](X)
        for each in self.maps[1:]:
            features = (features[:, :, None] * each(X)[:, None, :]).reshape(len(features), -1)
        return features


@dataclass(frozen=True, eq=False)
class _Around(FeatureMap):
    """What maps around one other map share: its size, its sign and its arrays.

    kernel   scaled, or on some columns; the map inside is of the kernel inside.
    """

    kernel: Scaled | OnColumns
    map: FeatureMap

    @property
    def dimension(self) -> int:
        return self.map.dimension

    @property
    def nonnegative(self) -> bool:
        return self.map.nonnegative

    def arrays(self) -> dict[str, Array]:
        return self.map.arrays()


@dataclass(frozen=True, eq=False)
class ScaledFeatures(_Around):
    """√c φ(x), of the kernel c · k."""

    kernel: Scaled
    name: ClassVar[str] = "scaled"

    def __post_init__(self) -> None:
        _check_inner(self.kernel, Scaled, self.map)

    @property
    def root(self) -> float:
        return float(np.sqrt(self.kernel.factor))

    @property
    def norm_bound(self) -> float:
        return self.root * self.map.norm_bound

    def __call__(self, X: Array) -> Array:
        return self.root * self.map(X)

    def mean(self, X: Array, weights: Array) -> Array:
        return self.root * self.map.mean(X, weights)


@dataclass(frozen=True, eq=False)
class ColumnFeatures(_Around):
    """φ of some columns of x only, of the kernel on those columns."""

    kernel: OnColumns
    _on: list[int] = field(init=False, repr=False)
    name: ClassVar[str] = "on-columns"

    def __post_init__(self) -> None:
        _check_inner(self.kernel, OnColumns, self.map)
        object.__setattr__(self, "_on", list(self.kernel.on))

    @property
    def norm_bound(self) -> float:
        return self.map.norm_bound

    def __call__(self, X: Array) -> Array:
        return self.map(as_rows(X)[:, self._on])

    def mean(self, X: Array, weights: Array) -> Array:
        return self.map.mean(as_rows(X)[:, self._on], weights)


def _check_inner(kernel: Kernel, kind: type[Kernel], inner: FeatureMap) -> None:
    if not isinstance(kernel, kind) or inner.kernel != kernel.kernel:  # type: ignore[attr-defined]
        raise ValueError(
            f"these are features of a kernel {kind.name} and need the map of the kernel inside it: the bound is composed of "
            "its bound. Pass that map."
        )


def margins_in(kernel: Kernel) -> Iterator[Margins]:
    if isinstance(kernel, Margins):
        yield kernel
    for part in getattr(kernel, "parts", ()):
        yield from margins_in(part)


def tables_of(kernel: Kernel) -> int:
    return sum(margins.n_tables for margins in margins_in(kernel))


def composed_features(kernel: Kernel, columns: tuple[int, ...], leaf: Leaf, prefix: str = "") -> FeatureMap:
    """The features of a kernel on these columns, composed as it is.

    leaf    makes the features of a part that holds no margins, given the part, the columns that its rows have and the
            prefix of the names of its arrays.
    """
    if isinstance(kernel, Margins):
        return MarginFeatures(kernel)
    if next(margins_in(kernel), None) is None:
        return leaf(kernel, columns, prefix)
    if isinstance(kernel, Scaled):
        return ScaledFeatures(kernel, composed_features(kernel.kernel, columns, leaf, prefix))
    if isinstance(kernel, OnColumns):
        inside = tuple(columns[j] for j in kernel.on)
        return ColumnFeatures(kernel, composed_features(kernel.kernel, inside, leaf, prefix))
    assert isinstance(kernel, Sum | Product)
    maps = tuple(composed_features(part, columns, leaf, f"{prefix}part_{i}_") for i, part in enumerate(kernel.parts))
    return Concatenation(kernel, maps) if isinstance(kernel, Sum) else TensorProduct(kernel, maps)
