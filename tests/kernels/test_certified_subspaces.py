"""Subspaces with a certificate: images of any two rows have distance at most √2·B, on the grid and in whole numbers.

The attacks look for pairs of rows, and for pairs of units, whose integer images have a larger distance than the door claims.
The certificate itself is compared with arithmetic in 60 digits.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from contracts import KERNELS, KernelCase, every
from door_cases import HOSTILE, Claimed, measured, recorded, squared_distance
from feature_cases import worst_rows
from file_tools import Members, array, forged, refused

import release_side
from kmeanalyst.kernels import Gaussian, Laplacian, OnColumns, Polynomial, Product, Scaled, Sum
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.certified import CertifiedNystroem, excess_of, has_close_images
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.kernels.features.pivots import STRETCH
from kmeanalyst.release import read_release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.file import validate_release
from kmeanalyst.releases.measurement import GRID, SHRINK, grid_sensitivity
from kmeanalyst.releases.statement import PopulationSize
from release_side.door.mechanism import GaussianNoise
from release_side.door.private_mean import integer_features
from release_side.publishing.methods.subspace import better_basis

door = importlib.import_module("release_side.door.private_mean")
NONNEGATIVE = [case for case in KERNELS if case.kernel.nonnegative]
DOMAIN = Domain((Real(name="x", lower=-4.0, upper=4.0), Real(name="y", lower=-4.0, upper=4.0)))
CLAIM = Fraction(grid_sensitivity(Claimed(np.zeros((1, 1)), nonnegative=True))) ** 2  # (√2 · GRID)²
every_kernel = every(NONNEGATIVE)


def certified(kernel: Any, points: Array) -> CertifiedNystroem:
    found = CertifiedNystroem.of(Nystroem.fit(kernel, points))
    assert found is not None
    return found


def with_near_duplicates(case: KernelCase, rng: np.random.Generator, size: int) -> Array:
    """Rows, and the same rows moved by 10⁻³ to 10⁻¹² in the columns of numbers."""
    rows = case.rows(rng, size)
    moved = rows.copy()
    for j in case.number_columns:
        moved[:, j] += 10.0 ** rng.uniform(-12, -3, size)
    return np.vstack([rows, moved, rows])


def furthest_pair(z: Array) -> tuple[int, int]:
    squares = (z**2).sum(axis=1)
    distances = squares[:, None] + squares[None] - 2 * z @ z.T
    return np.unravel_index(int(distances.argmax()), distances.shape)  # type: ignore[return-value]


def worst_square(basis: CertifiedNystroem, rows: Array, numbers: list[int]) -> int:
    """The largest squared distance of two integer images, in Python's integers: of all pairs, then moved by an optimiser."""
    z = integer_features(rows, basis)
    i, j = furthest_pair(z)

    def distance(pair: Array) -> float:
        one, other = integer_features(pair, basis)
        return float(np.square(one - other).sum()) / GRID**2

    best, _ = worst_rows(rows[[i, j]], numbers, distance, tries=200)
    return max(squared_distance(z[i], z[j]), squared_distance(*integer_features(best, basis)))


@every_kernel
def test_no_pair_of_images_has_a_distance_above_the_square_root_of_two(case: KernelCase):
    for size in (2, 40):
        rng = np.random.default_rng(1)
        basis = certified(case.kernel, with_near_duplicates(case, rng, size))
        rows = np.vstack([basis.points, with_near_duplicates(case, rng, 100)])
        assert worst_square(basis, rows, case.number_columns) <= CLAIM


@every([*product((Gaussian, Laplacian), (1e-9, 1e-3, 0.05, 30.0, 1e6))], of="kind, lengthscale")
def test_neither_tiny_nor_huge_lengthscales_break_the_claim(kind: Any, lengthscale: float):
    rng = np.random.default_rng(2)
    case = KernelCase("numbers", kind(lengthscale), (0, 0))
    basis = certified(case.kernel, with_near_duplicates(case, rng, 60))
    rows = np.vstack([basis.points, case.rows(rng, 200), basis.points + lengthscale * rng.normal(size=(1, 2))])
    assert worst_square(basis, rows, [0, 1]) <= CLAIM


def test_the_claim_is_nearly_reached():
    """A claim that is 0.2 % smaller would be false."""
    z = integer_features(np.array([[0.0], [1.0]]), certified(Gaussian(0.1), np.array([[0.0], [1.0]])))
    assert (1 - 2.0**-9) ** 2 * CLAIM < squared_distance(*z) <= CLAIM


def test_the_attack_finds_a_matrix_that_is_a_little_too_long():
    """Its power: one direction sheared by 1 % leaves every norm inside the bound, and one pair is too far apart."""
    case = KernelCase("numbers", Gaussian(0.5), (0, 0))
    points = case.rows(np.random.default_rng(5), 30, missing=0.0)
    basis = certified(case.kernel, points)
    shear = np.eye(30)
    shear[0, 1] = -0.01
    object.__setattr__(basis, "_product", type(basis._product)((shear @ basis.inverse_factor()).T, bound=1.0))
    assert worst_square(basis, points, [0, 1]) > CLAIM
    K = basis.kernel.gram(basis.points, basis.points) + basis.jitter * np.eye(30)
    assert excess_of(basis, K) > 2.0**-11  # and the certificate refuses it


@every_kernel
def test_hostile_rows_and_units_stay_within_the_claim(case: KernelCase):
    rng = np.random.default_rng(3)
    basis = certified(case.kernel, case.rows(rng, 30))
    rows = case.rows(rng, 60)
    rows[rng.random(rows.shape) < 0.3] = rng.choice(HOSTILE)
    assert worst_square(basis, np.vstack([basis.points, rows]), []) <= CLAIM
    table = measured([0, 0, 1], basis.points[[0, 1, 0]], basis)
    for many in (1, 7, 5000):
        other = measured([0] * many + [1], np.vstack([rows[rng.integers(0, 60, many)], basis.points[:1]]), basis)
        assert squared_distance(table.exact_sum, other.exact_sum) <= Fraction(other.sensitivity) ** 2 == CLAIM


def test_an_image_that_is_too_long_becomes_zero_and_is_not_shortened():
    """Shortening is not a contraction of pairs: zero is within B of every image."""

    @dataclass(frozen=True, eq=False)
    class Long(CertifiedNystroem):
        def __call__(self, X: Array) -> Array:
            return 3 * super().__call__(X)

    honest = certified(Gaussian(1.0), np.array([[0.0], [5.0]]))
    assert not integer_features(honest.points, Long(honest.kernel, honest.points, honest.jitter)).any()
    claimed = Claimed(np.array([[3.0, 0.0]]))
    assert integer_features(claimed.all_rows, claimed).any()  # other maps shorten


@every_kernel
def test_the_door_shortens_no_row(case: KernelCase):
    """Images of rows of the domain are inside the bound by 2⁻¹² of it: what `fits` refuses does not occur."""
    rng = np.random.default_rng(4)
    basis = certified(case.kernel, with_near_duplicates(case, rng, 30))
    z = integer_features(np.vstack([basis.points, case.rows(rng, 300)]), basis)
    assert z.any(axis=1).mean() > 0.5
    assert np.sqrt((z**2).sum(axis=1).max()) <= (1 - 2.0**-12) * GRID


def exact_stretch(basis: CertifiedNystroem, kernel: Any) -> float:
    """√λ_max(A K Aᵀ) with the matrix in use and the exact Gaussian Gram matrix, in 60 digits."""
    import mpmath

    with mpmath.workdps(60):
        points, two = [mpmath.mpf(float(x)) for x in basis.points[:, 0]], 2 * mpmath.mpf(kernel.lengthscale) ** 2
        K = mpmath.matrix([[mpmath.exp(-((x - y) ** 2) / two) for y in points] for x in points])
        A = mpmath.matrix(basis._product.factor()[0].T.tolist())
        return float(mpmath.sqrt(max(mpmath.eigsy(A * K * A.T, eigvals_only=True))))


@every([1e-6, 1e-3, 0.05, 0.3], of="spacing")
def test_the_matrix_in_use_stretches_no_more_than_is_certified(spacing: float):
    """Crowded points: K is singular in float64, and A has entries up to 1/√j."""
    points = spacing * np.arange(14.0)[:, None]
    basis = CertifiedNystroem(Gaussian(1.0), points, 1e-9)
    assert exact_stretch(basis, basis.kernel) <= 1 + basis.excess <= 1 + STRETCH / 4


@pytest.mark.parametrize("points", [14, 60])
def test_images_are_as_far_from_exact_ones_as_the_certificate_allows(points: int):
    basis = CertifiedNystroem(Gaussian(1.0), 0.05 * np.arange(float(points))[:, None], 1e-9)
    rows = np.random.default_rng(0).uniform(-1, 4, (400, 1))
    values = basis.kernel.gram(rows, basis.points).astype(np.longdouble)
    exact = values @ basis._product.factor()[0].astype(np.longdouble)
    error = np.linalg.norm((basis(rows) - exact).astype(float), axis=1).max()
    assert 1e-15 < 2**0.5 * error <= basis.excess


def test_what_the_certificate_rests_on_is_computed_and_not_believed():
    """A matrix that is 0.1 % too long, a factor of another matrix, and a jitter below the rounding: none passes."""
    basis = certified(Gaussian(1.0), 0.3 * np.arange(14.0)[:, None])
    K = basis.kernel.gram(basis.points, basis.points) + basis.jitter * np.eye(basis.dimension)
    assert excess_of(basis, K) == basis.excess < 2.0**-12

    def changed(**fields: Any) -> CertifiedNystroem:
        other = CertifiedNystroem(basis.kernel, basis.points, basis.jitter)
        for name, value in fields.items():
            object.__setattr__(other, name, value)
        return other

    longer = type(basis._product)(1.001 * basis.inverse_factor().T, bound=1.0)
    assert excess_of(changed(_product=longer), K) > 2.0**-11
    assert excess_of(changed(_factor=0.999 * basis._factor), K) == np.inf
    assert excess_of(changed(jitter=1e-17), K) == np.inf
    message = r"jitter is too small for these points\. Use CertifiedNystroem\.of|not linearly"
    with pytest.raises(ValueError, match=message):
        CertifiedNystroem(basis.kernel, basis.points, 1e-17)


def test_the_rounding_of_the_kernel_in_a_rows_image_counts(monkeypatch: pytest.MonkeyPatch):
    """Two far points, A nearly the identity: values off by e move each image by √2 e, a pair by twice that; relative to √2."""
    monkeypatch.setattr("kmeanalyst.kernels.features.certified.kernel_error", lambda kernel, n_columns: 1e-4)
    basis = CertifiedNystroem(Gaussian(0.1), np.array([[0.0], [1.0]]), 1e-2)
    assert 2e-4 <= basis.excess <= 3e-4  # ‖A‖ is bounded by its Frobenius norm, √2 times too large


def test_only_kernels_that_are_proven_to_be_nonnegative_have_close_images():
    assert all(has_close_images(case.kernel) for case in NONNEGATIVE)
    signed = Polynomial(3, 0.0, (-1.0,), (1.0,))

    class Odd(Gaussian):
        """Says that it is non-negative, as what it is derived from does."""

        def gram(self, X: Array, Y: Array) -> Array:
            return 2 * super().gram(X, Y) - 1

    message = r"not known to be non-negative, so two images can have.*2·B\. Use Nystroem"
    for kernel in (
        signed, Scaled(2.0, signed), Sum((Gaussian(1.0), signed)), Product((signed, Gaussian(1.0))), OnColumns(signed, (0,)),
        Odd(1.0), Sum((Odd(1.0), Gaussian(1.0))),
    ):  # fmt: skip
        assert not has_close_images(kernel)
        assert CertifiedNystroem.of(Nystroem.fit(kernel, np.array([[-1.0], [0.5]]))) is None
        with pytest.raises(ValueError, match=message):
            CertifiedNystroem(kernel, np.array([[-1.0], [0.5]]), 1e-9)


def test_a_kernel_with_negative_values_has_images_at_distance_two_bounds():
    """√2 would understate it: s³ at −1 and 1."""
    basis = Nystroem.fit(Polynomial(3, 0.0, (-1.0,), (1.0,)), np.array([[0.9]]))
    one, other = (recorded(np.array([[x]]), basis) for x in (-1.0, 1.0))
    assert squared_distance(one.exact_sum, other.exact_sum) > 1.99 * CLAIM
    assert Fraction(one.sensitivity) ** 2 >= squared_distance(one.exact_sum, other.exact_sum)


def test_too_many_points_have_no_certificate(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kmeanalyst.kernels.features.certified.MOST_CERTIFIED_POINTS", 5)
    basis = Nystroem.fit(Gaussian(0.1), np.arange(6.0)[:, None])
    assert CertifiedNystroem.of(basis) is None
    with pytest.raises(ValueError, match=r"at most 5 points, got 6\. Use Nystroem"):
        CertifiedNystroem(basis.kernel, basis.points, 1e-9)


@every([0.0, -1e-9, 1.5, np.nan, np.inf], of="jitter")
def test_a_jitter_outside_its_range_is_refused(jitter: float):
    with pytest.raises(ValueError, match=r"jitter must be positive and at most sup k\(x, x\)"):
        CertifiedNystroem(Gaussian(1.0), np.array([[0.0]]), jitter)


def test_features_of_basis_points_need_no_kernel_and_know_the_jitter():
    basis = certified(Gaussian(1.0), 0.02 * np.arange(40.0)[:, None])
    indices = np.array([0, basis.dimension - 1, 2])
    features = basis(basis.points[indices])
    np.testing.assert_allclose(basis.basis_features(indices), features, rtol=0, atol=1e-7)
    assert np.abs(basis._factor[indices] - features).max() > 1e-6  # what a basis without jitter would give


def published(**choices: Any) -> Any:
    rows = np.random.default_rng(0).uniform(-4, 4, (300, 2))
    frame = pd.DataFrame({"x": rows[:, 0].astype(str), "y": rows[:, 1].astype(str)})
    given = {"method": "subspace", "points": 30, "epsilon": 1.0, "delta": 1e-6, "kernel": "gaussian:lengthscale=2"}
    return release_side.publish(frame, DOMAIN, **(given | choices))


@pytest.mark.parametrize("weights", ["probability", "signed", "published"])
def test_a_subspace_is_published_with_the_noise_of_the_square_root_of_two(weights: str, tmp_path):
    release = published(weights=weights, output=tmp_path / "one.kme")
    assert release.statement.sensitivity == pytest.approx(2**0.5 / 300, rel=2 * STRETCH)
    expected = GaussianNoise(1.0, 1e-6).multiplier() * 2**0.5 / 300
    assert release.measurement.noise_scale == pytest.approx(expected, rel=2 * STRETCH)
    again = read_release(tmp_path / "one.kme")
    assert again.measurement.feature_map.name == "certified-nystroem"
    assert again.statement == release.statement
    assert validate_release(tmp_path / "one.kme") == []


def test_a_plan_names_the_noise_that_publishing_adds():
    planned = release_side.plan(
        DOMAIN, rows=300, epsilon=1.0, delta=1e-6, method="subspace", points=30, kernel="gaussian:lengthscale=2"
    )
    assert planned["noise_scale"][0] == pytest.approx(published().measurement.noise_scale, rel=1e-12)


def test_with_very_little_noise_the_basis_without_a_jitter_is_better():
    """2·B of very little noise is less than the error that the jitter makes; both are computed from public points."""
    points = DOMAIN.draw(60, 1)
    plain = Nystroem.fit(Gaussian(2.0), points)
    other = CertifiedNystroem.of(plain)
    assert better_basis(plain, other, points, GaussianNoise(1.0, 1e-6), PopulationSize(10**4)) is other
    assert better_basis(plain, other, points, GaussianNoise(1e4, 1e-6), PopulationSize(10**9)) is plain
    assert better_basis(plain, None, points, GaussianNoise(1.0, 1e-6), PopulationSize(10**4)) is plain


def test_a_kernel_with_negative_values_keeps_the_larger_noise(tmp_path):
    release = published(kernel="polynomial:degree=3,offset=0")
    assert release.measurement.feature_map.name == "nystroem"
    assert release.statement.sensitivity == pytest.approx(2 / (300 * SHRINK), rel=1e-9)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("certified") / "sound.kme"
    published(output=path)
    return path


edited = partial(array, declare=True)


def without_certificate(header: dict[str, Any], members: Members) -> None:
    """The same points as a plain subspace, with the smaller sensitivity still claimed."""
    header["measurement"]["feature_map"]["name"] = "nystroem"
    del header["measurement"]["feature_map"]["arrays"]["jitter"], members["measurement/jitter.npy"]


def crowded(points: Array) -> Array:
    return points[:1] + 1e-9 * np.arange(len(points))[:, None]


FORGED = {
    "a jitter below the rounding": (edited("jitter", lambda a: 0 * a + 1e-17), "certificate", "jitter is too small|not lin"),
    "no jitter": (edited("jitter", lambda a: 0 * a), "certificate", "jitter must be positive"),
    "a jitter that is NaN": (edited("jitter", lambda a: a * np.nan), "certificate", "jitter must be positive"),
    "two jitters": (edited("jitter", lambda a: np.repeat(a, 2)), "field arrays", "points and one number jitter"),
    "crowded points": (
        lambda h, m: (edited("points", crowded)(h, m), edited("jitter", lambda a: 0 * a + 1e-14)(h, m)), "certificate",
        "jitter is too small|not linearly",
    ),
    "no certificate": (without_certificate, "grid_noise_scale|claims sensitivity", "one of the two is wrong|another"),
}  # fmt: skip


def test_a_file_that_claims_the_square_root_of_two_without_a_certificate_is_refused(path, tmp_path):
    assert validate_release(path) == []
    for edit, what, why in FORGED.values():
        refused(forged(path, edit), tmp_path, what, why)


def test_a_consistent_file_without_a_certificate_is_refused_for_its_sensitivity(path, tmp_path):
    """The noise is rewritten in the plain map's units: what is left is √2 where the map has 2."""

    def edit(header: dict[str, Any], members: Members) -> None:
        without_certificate(header, members)
        for table, name in (("measurement", "noise_scale"), ("statement", "noise_scale"), ("statement", "sensitivity")):
            header[table][name] /= 1 + STRETCH

    hint = "Do not rely on it; ask its maker for a correct file"
    refused(forged(path, edit), tmp_path, "claims sensitivity", "another", hint)


def test_a_negative_kernel_cannot_be_certified_by_a_file(path, tmp_path):
    def edit(header: dict[str, Any], members: Members) -> None:
        header["kernel"] = Polynomial(3, 0.0, (-4.0, -4.0), (4.0, 4.0)).to_dict()

    refused(forged(path, edit), tmp_path, "certificate", "not known to be non-negative")
