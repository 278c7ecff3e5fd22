"""The contract lists: one line per kernel, feature map and column kind. Adding a member adds a line here.

Tests parametrize over these lists, so a new member is checked for every guarantee of its kind.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
import pytest
from every import every as in_one
from hypothesis import settings

from kmeanalyst.kernels import (
    ChosenMargins,
    Gaussian,
    Indicator,
    Kernel,
    Laplacian,
    Margins,
    Matern,
    MultiScale,
    OnColumns,
    Periodic,
    Polynomial,
    Product,
    RationalQuadratic,
    Scaled,
    SoftenedProduct,
    StringSpectrum,
    Sum,
)
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.binning import RandomBinning
from kmeanalyst.kernels.features.certified import CertifiedNystroem
from kmeanalyst.kernels.features.composed import composed_features
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.maclaurin import RandomMaclaurin
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.kernels.features.pivots import Pivots
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Cyclic, Date, Integer, Real
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.domain.tree_column import Tree

settings.register_profile("specification", max_examples=50, deadline=None, derandomize=True, database=None)
settings.load_profile("specification")


@dataclass(frozen=True)
class KernelCase:
    """A kernel and the rows it is meant for: 0 for a column of numbers, else how many levels it has."""

    name: str
    kernel: Kernel
    columns: tuple[int, ...]
    constant: bool = True  # whether k(x, x) is the same for all x

    def rows(self, rng: np.random.Generator, n: int, *, missing: float = 0.2) -> Array:
        """n encoded rows; each cell is missing with the given probability."""
        parts = [rng.integers(0, levels, n) if levels else rng.normal(0, 2, n) for levels in self.columns]
        rows = np.column_stack(parts).astype(float)
        rows[rng.random(rows.shape) < missing] = np.nan
        return rows

    @property
    def number_columns(self) -> list[int]:
        """Positions of the columns of numbers."""
        return [j for j, levels in enumerate(self.columns) if not levels]


SHIFT_INVARIANT = [
    KernelCase("gaussian", Gaussian(1.5), (0, 0, 0)),
    KernelCase("laplacian", Laplacian(3.0), (0, 0)),
    KernelCase("multi-scale", MultiScale((0.5, 1.0, 4.0)), (0, 0)),
    KernelCase("indicator", Indicator(3), (3, 3)),
    KernelCase("periodic", Periodic(5.0, (0.3, 1.0)), (0, 0)),
    KernelCase("softened-product", SoftenedProduct((MultiScale((1.0, 3.0)), Indicator(4), Gaussian(2.0)), 0.4), (0, 4, 0)),
    KernelCase("sum", Sum((Gaussian(1.0), Laplacian(5.0))), (0, 0)),
    KernelCase("product", Product((OnColumns(Gaussian(2.0), (1,)), OnColumns(Indicator(3), (0,)))), (3, 0)),
    KernelCase("scaled", Scaled(2.5, Gaussian(2.0)), (0, 0)),
    KernelCase("on-columns", OnColumns(MultiScale((1.0, 2.0)), (2, 0)), (0, 5, 0)),
    KernelCase("sum of products", 0.5 * OnColumns(Gaussian(1.0), (0,)) * OnColumns(Indicator(3), (1,)) + Gaussian(3.0), (0, 3)),
    KernelCase("matern 1/2", Matern(0.5, 2.0), (0, 0)),
    KernelCase("matern 5/2", Matern(2.5, 1.5), (0, 0, 0)),
    KernelCase("rational quadratic", RationalQuadratic(0.7, 1.5), (0, 0)),
]
_ONE_WAY = Margins(((-1.0, 0.5), (0.5, 1.5)), ((0.25,), ()), (True, True), (1.0, 0, 0))  # of a number and three levels
_LABEL = OnColumns(Margins(((0.5,),), ((),), (True,), (1.0, 0, 0)), (2,))
COMPOSED = [
    KernelCase("sum with margins", Sum((Scaled(0.7, Gaussian(1.5)), Scaled(0.6, _ONE_WAY))), (0, 3)),
    KernelCase("product with margins", Product((_LABEL, OnColumns(MultiScale((0.5, 2.0)), (0, 1)))), (0, 0, 2)),
    KernelCase("scaled margins", Scaled(2.5, Sum((_ONE_WAY, Gaussian(2.0)))), (0, 3)),
    KernelCase("margins on columns", OnColumns(_ONE_WAY, (2, 0)), (3, 0, 0)),
    KernelCase(
        "labelled",
        Sum((Scaled(0.1, _LABEL), Product((_LABEL, Sum((Scaled(0.5, OnColumns(_ONE_WAY, (0, 1))),
            Scaled(0.4, OnColumns(Laplacian(2.0), (0,)))))))),
        ),
        (0, 3, 2),
    ),
]  # fmt: skip
DOT_PRODUCTS = [  # for columns that most rows fill to their bounds
    KernelCase("polynomial", Polynomial(3, 1.0, (-0.5, -1.0), (0.5, 0.8)), (0, 0), constant=False),
    KernelCase("even polynomial", Polynomial(2, 0.0, (-0.5, -0.5, 0.1), (0.5, 0.5, 0.3)), (0, 0, 0), constant=False),
]
KERNELS = [
    *SHIFT_INVARIANT,
    *COMPOSED,
    KernelCase("string-spectrum", StringSpectrum(2, 2, 1), (81,)),
    KernelCase("blended string-spectrum", StringSpectrum(3, 4, 2, blended=True), (5**4, 5**3)),
    KernelCase(
        "softened-product with strings",
        SoftenedProduct((Gaussian(2.0), StringSpectrum(2, 2, 2), Indicator(3)), 0.5),
        (0, 81, 3, 81),
    ),
    KernelCase(
        "margins", Margins(((-1.0, 0.0, 2.5), (0.5, 1.5)), ((1.0,), ()), (True, True), (0.3, 0.7, 0)), (0, 3)
    ),
    KernelCase("finer margins", Margins(
        ((0.0,), (0.5, 1.5), ()), ((1.0,), (), ()), (True,) * 3, (0.5, 0.1, 0.4),
        ((-1.0, 0.0, 0.2), (), (-0.5, 1.0)),
    ), (0, 3, 0)),
    KernelCase("deeper margins", Margins(
        ((0.5,), (1.5,)), ((), ()), (True,) * 2, (0.5, 0.1, 0.4), ((-0.5, 0.5), ()),
        deeper=((0, (-0.5, 0.5, 1.0)),),
    ), (0, 3)),
    KernelCase("chosen margins", ChosenMargins(
        ((0.0,), (0.5,), (), (1.0,)), ((), (), (0.0,), ()), (True,) * 4, (0.2, 0.5, 0.3),
        ((), (), (-0.5, 1.0), ()), ((0, 3), (2, 3), (0, 1, 3)), ((0.1, 0.02, 0.03, 0.05), (0.3, 0.15, 0.05), (0.2, 0.1)),
        deeper=((2, (-0.5, 0.5, 1.0)),),
    ), (0, 2, 0, 0)),
    *DOT_PRODUCTS,
]  # fmt: skip


@dataclass(frozen=True)
class FeatureCase:
    """A way to build a feature map for a kernel."""

    family: str
    case: KernelCase
    make: Callable[[KernelCase, int, np.random.Generator], FeatureMap]

    def build(self, size: int, seed: int = 0) -> FeatureMap:
        """A map of about `size` coordinates."""
        return self.make(self.case, size, np.random.default_rng(seed))

    @property
    def name(self) -> str:
        return f"{self.family}, {self.case.name}"


def _random_fourier(case: KernelCase, size: int, rng: np.random.Generator) -> FeatureMap:
    d, pairs = len(case.columns), max(1, size // 2)
    return RandomFourier.draw(case.kernel, n_columns=d, dimension=2 * pairs, missing_columns=range(d), rng=rng)


def _certified(case: KernelCase, size: int, rng: np.random.Generator) -> FeatureMap:
    certified = CertifiedNystroem.of(Nystroem.fit(case.kernel, case.rows(rng, size)))
    assert certified is not None
    return certified


def _composed(case: KernelCase, size: int, rng: np.random.Generator) -> FeatureMap:
    def leaf(kernel: Kernel, columns: tuple[int, ...], place: str) -> FeatureMap:
        own = KernelCase(place, kernel, tuple(case.columns[j] for j in columns))
        return _random_fourier(own, size, rng)

    return composed_features(case.kernel, tuple(range(len(case.columns))), leaf)


def bounds_of(case: KernelCase) -> Array:
    """(d, 2) bounds that most rows of the case are within."""
    return np.array([(-4.0, 5.0)] * len(case.columns))


def _binning(case: KernelCase, size: int, rng: np.random.Generator) -> FeatureMap:
    missing = tuple(range(len(case.columns)))
    return RandomBinning.draw(case.kernel, bounds=bounds_of(case), dimension=size, missing_columns=missing, rng=rng)


def _maclaurin(law: str) -> Callable[[KernelCase, int, np.random.Generator], FeatureMap]:
    def make(case: KernelCase, size: int, rng: np.random.Generator) -> FeatureMap:
        assert isinstance(case.kernel, Polynomial)
        return RandomMaclaurin.draw(case.kernel, dimension=size, law=law, rng=rng)

    return make


def close_together(feature_map: FeatureMap) -> bool:
    """Whether two images are at most √2·B from each other: no coordinate is negative, or there is a proof (PROOF.md §3b, §10)."""
    return feature_map.nonnegative or feature_map.pairwise


FAMILIES: dict[str, Callable[[KernelCase, int, np.random.Generator], FeatureMap]] = {
    "random-binning": _binning, "random-maclaurin": _maclaurin("coordinates"), "random-fourier": _random_fourier,
    "nystroem": lambda case, size, rng: Nystroem.fit(case.kernel, case.rows(rng, size), tolerance=1e-6),
    "certified-nystroem": _certified, "pivots": lambda case, size, rng: Pivots.fit(case.kernel, case.rows(rng, size)),
    "margins": lambda case, *_: MarginFeatures(case.kernel),  # its size is the kernel's
    "sum": _composed, "product": _composed, "scaled": _composed, "on-columns": _composed,
}  # fmt: skip
HATS = [
    KernelCase("laplacian", Laplacian(3.0), (0, 0)), KernelCase("fine laplacian", Laplacian(0.05), (0, 0, 0)),
    KernelCase("scaled laplacian", Scaled(2.5, Laplacian(2.0)), (0,)),
    KernelCase("matern 1/2 of one column", Matern(0.5, 2.0), (0,)),
]  # fmt: skip
_CASES = {
    "random-fourier": SHIFT_INVARIANT, "nystroem": KERNELS,
    "certified-nystroem": [case for case in KERNELS if case.kernel.nonnegative], "pivots": KERNELS,
    "margins": [case for case in KERNELS if isinstance(case.kernel, Margins)], "random-binning": HATS,
    "random-maclaurin": DOT_PRODUCTS,
}  # fmt: skip
FEATURE_MAPS = [
    *(FeatureCase(family, case, FAMILIES[family]) for family, cases in _CASES.items() for case in cases),
    *(FeatureCase(case.kernel.name, case, _composed) for case in COMPOSED),
    *(FeatureCase("signs", case, _maclaurin("signs")) for case in DOT_PRODUCTS),
]

COLUMNS: list[Column] = [
    Real(name="real", lower=-2.5, upper=1e3),
    Real(name="real steps", lower=-2.5, upper=50, step=0.05, edges=(0, 10.5), atoms=(1.25,)),
    Real(name="real log", lower=1e-3, upper=1e6, scale="log", missing=True),
    Real(name="real log1p", lower=0, upper=1e6, scale="log1p", edges=(10, 100.5), atoms=(0,)),
    Integer(name="integer", lower=-17, upper=90, default=30),
    Integer(name="integer log1p", lower=0, upper=10**6, scale="log1p", missing=True),
    Categorical(name="categorical", levels=("<=50K", ">50K", "13", 'naïve "quoted"\\', "😀")),
    Categorical(name="categorical missing", levels=("a", "NA"), missing=True, default="NA"),
    Ordinal(name="ordinal", levels=("low", "middle", "high", "1"), missing=True),
    Boolean(name="boolean"),
    Boolean(name="boolean missing", missing=True),
    Date(name="date", lower="1999-12-31", upper="2031-02-28", edges=("2010-01-01",)),
    Date(name="date missing", lower="1900-01-01", upper="2100-01-01", missing=True),
    Date(name="date seasonal", lower="2000-01-01", upper="2024-12-31", seasonal=True),
    Tree(name="tree", parents={"a1": "a", "a2": "a", "b1 x": "b", "a": "all", "b": "all", "c": ""}),
    Tree(name="tree inner", parents=(("1.1", "1"), ("1.2", "1"), ("2.1", "2")), inner=True, missing=True, default="2"),
    Cyclic(name="cyclic", lower=0, upper=24),
    Cyclic(name="cyclic missing", lower=-180.0, upper=180.0, missing=True, edges=(-90, 90), atoms=(0,)),
]
TEXTS: list[Text] = [  # whose cells are several numbers
    Text(name="text", length=30, alphabet="ACGT"),
    Text(name="text of one number", length=3, alphabet="ab", unknown="b"),
    Text(name="text default", length=40, alphabet="naïve 😀-/", unknown="/", default="na-"),
    Text(name="text missing", length=5, missing=True, default="n/a"),
]


def _some_maps() -> list[FeatureCase]:
    """Each family with its first and its last kernel, and each other kernel with one map of a subspace in turns."""
    families = dict.fromkeys(case.family for case in FEATURE_MAPS)
    of_families = [[case for case in FEATURE_MAPS if case.family == family] for family in families]
    some = {id(case) for own in of_families for case in (own[0], own[-1])}
    for n, kernel in enumerate(KERNELS):
        if not any(id(case) in some for case in FEATURE_MAPS if case.case is kernel):
            subspaces = [case for case in FEATURE_MAPS if case.case is kernel and case.family in _SUBSPACES]
            some.add(id(subspaces[n % len(subspaces)]))
    return [case for case in FEATURE_MAPS if id(case) in some]


_SUBSPACES = ("nystroem", "certified-nystroem", "pivots")
SOME_MAPS = _some_maps()  # of the default tier; the others are of the tier `product`


def every(cases: Sequence[Any], some: Sequence[Any] | None = None, *, of: str = "case") -> Callable[[Any], Any]:
    """Decorate a test to run over all cases in one; over `some` in the default tier, and the others in the tier `product`.

    of   the test's argument, or several in one text where cases are tuples: "text, level".
    """
    if some is None:
        return in_one(of, cases)
    kept = [case for case in cases if any(case is one for one in some)]
    others = [case for case in cases if not any(case is one for one in kept)]
    argument = f"every_{of.split(',')[0]}"
    tiers = [pytest.param(kept, id="some"), pytest.param(others, id="others", marks=pytest.mark.product)]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(with_fixtures := in_one(of, ())(test))
        def run(**fixtures: Any) -> None:
            in_one(of, fixtures.pop(argument))(test)(**fixtures)

        fixtures = inspect.signature(with_fixtures).parameters.values()
        own = inspect.Parameter(argument, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        run.__signature__ = inspect.Signature([own, *fixtures])  # type: ignore[attr-defined]
        return pytest.mark.parametrize(argument, tiers)(run)

    return decorate
