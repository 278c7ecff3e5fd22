"""Every kernel has the properties that the privacy proof and the embeddings rest on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import refusals
from contracts import DOT_PRODUCTS, KERNELS, KernelCase, every
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gamma, kv

import kmeanalyst
from kmeanalyst import kernels
from kmeanalyst.kernels import (
    Gaussian,
    Indicator,
    Kernel,
    KernelMean,
    Laplacian,
    Matern,
    MultiScale,
    OnColumns,
    Periodic,
    Polynomial,
    Product,
    RationalQuadratic,
    Scaled,
    SoftenedProduct,
    embedding,
    kernel_from_dict,
    median_lengthscale,
)
from kmeanalyst.kernels.features.pivots import kernel_error

every_kernel = every(KERNELS)


def test_each_registered_kernel_is_in_the_contract_list():
    assert {case.kernel.name for case in KERNELS} == set(kernels.KERNELS)


@every([
    (Gaussian(5.0), np.exp(-0.5)), (Laplacian(7.0), np.exp(-1)), (Matern(0.5, 5.0), np.exp(-1)),
    (Matern(1.5, 5.0), (1 + 3**0.5) * np.exp(-(3**0.5))), (RationalQuadratic(2.0, 5.0), 1.25**-2),
    (MultiScale((5.0, 2.5)), (np.exp(-0.5) + np.exp(-2)) / 2),
], of="kernel, expected")  # fmt: skip
def test_kernels_of_numbers_have_their_textbook_values(kernel: Kernel, expected: float):
    """x = (0, 0), y = (3, 4): ‖x − y‖₂ = 5, ‖x − y‖₁ = 7."""
    assert kernel.gram([[0.0, 0.0]], [[3.0, 4.0]]).item() == pytest.approx(expected, rel=1e-15)


def test_levels_are_alike_if_they_are_equal_and_a_missing_level_is_one_of_its_own():
    levels = np.array([[0.0], [2.0], [np.nan]])
    np.testing.assert_array_equal(Indicator(3).gram(levels, levels), np.eye(3))


def test_dot_products_have_values_worked_by_hand():
    """Scaled rows u = (½, −1), v = (1, ½): s = (½ − ½)/2 = 0; with v = u, s = 5/8."""
    u, v = np.array([[5.0, 2.0]]), np.array([[10.0, 5.0]])
    polynomial = Polynomial(3, 2.0, (-10.0, 2.0), (10.0, 6.0))
    assert polynomial.gram(u, v).item() == pytest.approx(2.0**3, rel=1e-14)
    assert polynomial.gram(u, u).item() == pytest.approx((2 + 5 / 8) ** 3, rel=1e-14)


@every([0.5, 1.5, 2.5, 6.5, 10.5], of="nu")
def test_matern_is_the_formula_with_the_bessel_function(nu: float):
    """2^(1−ν)/Γ(ν) (√(2ν) r/ℓ)^ν K_ν(√(2ν) r/ℓ) (Rasmussen & Williams 2006, equation 4.14)."""
    r = np.linspace(0.01, 9, 60)
    s = np.sqrt(2 * nu) * r / 1.3
    formula = 2 ** (1 - nu) / gamma(nu) * s**nu * kv(nu, s)
    np.testing.assert_allclose(Matern(nu, 1.3).gram(r, [[0.0]])[:, 0], formula, rtol=1e-11)


@every([Matern(0.5, 1.0), Matern(10.5, 1.0), RationalQuadratic(0.01, 1.0)], of="kernel")
def test_far_rows_have_a_finite_kernel(kernel: Kernel):
    with np.errstate(over="ignore"):
        K = kernel.gram([[0.0], [1e300], [-1e300]], [[0.0], [1e10]])
    assert np.isfinite(K).all() and (K >= 0).all() and K[1, 0] < 0.1


@every([case.kernel for case in DOT_PRODUCTS], of="kernel")
def test_a_dot_product_kernel_reaches_its_bound_at_a_corner_and_nowhere_exceeds_it(kernel):
    corner = np.array([kernel.upper])
    assert np.sqrt(kernel.diagonal(corner).item()) == pytest.approx(kernel.bound, rel=1e-14)
    rows = np.random.default_rng(0).normal(0, 3, (500, len(kernel.lower)))
    rows[:4] = np.array([1e300, -1e300, np.inf, 0.0])[:, None]
    with np.errstate(over="ignore"):
        assert np.sqrt(kernel.diagonal(rows).max()) <= kernel.bound * (1 + 1e-15)
        np.testing.assert_array_equal(kernel.gram(corner, rows[:1]), kernel.gram(corner, corner))  # clamped


def test_the_softened_product_is_the_mean_over_non_empty_subsets_of_columns():
    """Two columns, p = 1/2: the subsets {1}, {2}, {1, 2} have one third each."""
    x, y = np.array([[0.0, 1.0]]), np.array([[2.0, 1.0]])
    a, b = np.exp(-2.0), 1.0  # the columns' own kernels
    kernel = SoftenedProduct((Gaussian(1.0), Indicator(2)), 0.5)
    assert kernel.gram(x, y).item() == pytest.approx((a + b + a * b) / 3, rel=1e-14)


def test_compositions_add_multiply_and_scale_the_gram_matrices():
    case = KERNELS[0]
    X = case.rows(np.random.default_rng(0), 9)
    k, l = Gaussian(1.0), Laplacian(2.0)  # noqa: E741
    np.testing.assert_array_equal((k + l).gram(X, X), k.gram(X, X) + l.gram(X, X))
    np.testing.assert_array_equal((k * l).gram(X, X), k.gram(X, X) * l.gram(X, X))
    np.testing.assert_array_equal((3 * k).gram(X, X), 3.0 * k.gram(X, X))
    assert 3 * k == k * 3 == Scaled(3.0, k)


def test_a_kernel_on_columns_sees_those_columns_only():
    X = np.random.default_rng(0).normal(size=(6, 3))
    expected = Gaussian(1.0).gram(X[:, [2, 0]], X[:, [2, 0]])
    np.testing.assert_array_equal(OnColumns(Gaussian(1.0), (2, 0)).gram(X, X), expected)
    assert (OnColumns(Gaussian(1.0), (2, 0)) * OnColumns(Gaussian(1.0), (0, 1))).columns == (2, 0, 1)
    assert (OnColumns(Gaussian(1.0), (2, 0)) + Gaussian(1.0)).columns is None


@every_kernel
def test_the_gram_matrix_is_symmetric_to_the_last_bit(case: KernelCase):
    rng = np.random.default_rng(1)
    X, Y = case.rows(rng, 40), case.rows(rng, 25)
    np.testing.assert_array_equal(case.kernel.gram(X, X), case.kernel.gram(X, X).T)
    np.testing.assert_array_equal(case.kernel.gram(X, Y), case.kernel.gram(Y, X).T)


@every_kernel
def test_the_gram_matrix_is_positive_semi_definite(case: KernelCase):
    for missing in (0.0, 0.3, 0.9):
        X = case.rows(np.random.default_rng(2), 80, missing=missing)
        assert np.linalg.eigvalsh(case.kernel.gram(X, X)).min() >= -1e-9 * len(X)


@every_kernel
def test_diagonal_and_bound_agree_with_the_gram_matrix(case: KernelCase):
    X = case.rows(np.random.default_rng(3), 50)
    diagonal = case.kernel.diagonal(X)
    np.testing.assert_allclose(diagonal, np.diagonal(case.kernel.gram(X, X)), rtol=1e-14)
    if case.constant:
        np.testing.assert_allclose(diagonal, case.kernel.bound**2, rtol=1e-14)
    assert (diagonal <= case.kernel.bound**2 * (1 + 1e-14)).all()
    assert np.abs(case.kernel.gram(X, X)).max() <= case.kernel.bound**2 * (1 + 1e-14)


@every_kernel
def test_a_kernel_that_claims_to_be_nonnegative_is(case: KernelCase):
    X = case.rows(np.random.default_rng(4), 60)
    assert case.kernel.nonnegative
    assert case.kernel.gram(X, 100 * X).min() >= -1e-16  # the softened product subtracts its constant


@every_kernel
def test_rows_missing_in_different_columns_are_less_alike_than_in_the_same(case: KernelCase):
    x = case.rows(np.random.default_rng(5), 1, missing=0.0)
    for j in range(len(case.columns)):
        y = x.copy()
        y[0, j] = np.nan
        looks = case.kernel.columns is None or j in case.kernel.columns
        same = case.kernel.diagonal(y).item()
        assert case.kernel.gram(y, y).item() == pytest.approx(same, rel=1e-14)
        assert same == pytest.approx(case.kernel.bound**2, rel=1e-14) or not case.constant
        assert (case.kernel.gram(x, y).item() < same * (1 - 1e-3)) == looks


@given(a=st.floats(-5, 5), b=st.floats(-5, 5))
def test_missing_is_a_value_of_its_own(a, b):
    one, other = np.array([[a, np.nan]]), np.array([[b, np.nan]])
    for kernel in (Gaussian(1.0), Laplacian(1.0), MultiScale((1.0, 2.0))):
        assert kernel.gram(one, other).item() == kernel.gram([[a]], [[b]]).item()
        assert kernel.gram(one, [[a, b]]).item() == 0
        assert kernel.gram(one, [[np.nan, b]]).item() == 0


@every_kernel
def test_a_kernel_read_back_from_its_header_is_the_kernel_written(case: KernelCase):
    back = kernel_from_dict(json.loads(json.dumps(case.kernel.to_dict())))
    X = case.rows(np.random.default_rng(6), 10)
    assert back == case.kernel
    np.testing.assert_array_equal(back.gram(X, X), case.kernel.gram(X, X))


@every_kernel
@pytest.mark.parametrize("block", [1, 7, 10_000])
def test_sums_in_blocks_equal_the_dense_formula(case: KernelCase, block: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embedding, "_BLOCK_ENTRIES", block)
    rng = np.random.default_rng(7)
    X, Y, u, v = case.rows(rng, 13), case.rows(rng, 9), rng.normal(size=13), rng.normal(size=9)
    a, b = KernelMean(case.kernel, X, u), KernelMean(case.kernel, Y, v)
    K, L, C = case.kernel.gram(X, X), case.kernel.gram(Y, Y), case.kernel.gram(X, Y)
    close = {"rel": 1e-12, "abs": 1e-12}
    assert a.inner(b) == pytest.approx(u @ C @ v, **close)
    assert a.squared_norm() == pytest.approx(u @ K @ u, **close)
    assert a.squared_distance(b) == pytest.approx(u @ K @ u - 2 * u @ C @ v + v @ L @ v, **close)
    assert a.distance(b) ** 2 == pytest.approx(a.squared_distance(b), **close)
    np.testing.assert_allclose(a.evaluate(Y), C.T @ u, rtol=1e-12, atol=1e-12)


def test_an_embedding_without_weights_has_equal_ones_and_distance_zero_to_itself():
    mean = KernelMean(Gaussian(1.0), [[0.0], [1.0], [5.0]])
    np.testing.assert_array_equal(mean.weights, np.full(3, 1 / 3))
    assert mean.distance(mean) == 0
    assert KernelMean(Gaussian(1.0), [[0.1]]).evaluate(np.zeros((0, 1))).shape == (0,)


# Golden values, copied from mmd_golden.json of the project's anchors:
# - shogun, tests/unit/statistical_testing/QuadraticTimeMMD_unittest.cc, kernel exp(−‖x − y‖²/8), statistic 4 · MMD²;
# - coreax, tests/unit/test_metrics.py, derived by hand there, kernel exp(−‖x − y‖²/2).
SHOGUN_X, SHOGUN_Y = np.arange(24.0).reshape(8, 3) / 23, np.arange(24.0, 48.0).reshape(8, 3) / 47
SHOGUN_BIASED, SHOGUN_UNBIASED, SHOGUN_INCOMPLETE = 0.17882546486779649, 0.13440094336133723, 0.16743977201175841
COREAX_X, COREAX_Y = np.array([[0.0, 0], [1, 1], [2, 2]]), np.array([[0.0, 0], [1, 1]])
COREAX_EQUAL = np.sqrt((3 - np.exp(-1) - 2 * np.exp(-4)) / 18)
COREAX_WEIGHTED = np.sqrt(2 / 3 - 2 / 9 * np.exp(-1) - 4 / 9 * np.exp(-4))


def test_the_unbiased_mmd_agrees_with_shogun():
    """Without the diagonals: ‖a‖² becomes (64‖a‖² − 8)/56; the incomplete form drops the paired cross terms too."""
    a, b = (KernelMean(Gaussian(2.0), rows) for rows in (SHOGUN_X, SHOGUN_Y))
    within = sum((64 * mean.squared_norm() - 8) / 56 for mean in (a, b))
    paired = np.trace(Gaussian(2.0).gram(SHOGUN_X, SHOGUN_Y))
    assert 4 * (within - 2 * a.inner(b)) == pytest.approx(SHOGUN_UNBIASED, abs=1e-10)
    assert 4 * (within - 2 * (64 * a.inner(b) - paired) / 56) == pytest.approx(SHOGUN_INCOMPLETE, abs=1e-10)


def test_the_public_mmd_has_the_golden_values():
    kernel = Gaussian(1.0)
    assert pytest.approx((0.3797286517, 0.7594573035), abs=1e-10) == (COREAX_EQUAL, COREAX_WEIGHTED)
    assert kmeanalyst.mmd(COREAX_X, COREAX_Y, kernel=kernel) == pytest.approx(COREAX_EQUAL, abs=1e-10)
    weighted = (COREAX_Y, np.array([1.0, 0.0]))
    assert kmeanalyst.mmd(COREAX_X, weighted, kernel=kernel) == pytest.approx(COREAX_WEIGHTED, abs=1e-10)
    biased = kmeanalyst.mmd(SHOGUN_X, SHOGUN_Y, kernel=Gaussian(2.0))
    assert 4 * biased**2 == pytest.approx(SHOGUN_BIASED, abs=1e-10)


def test_the_median_lengthscale_is_the_median_of_the_positive_distances():
    """Points 0, 1, 3, 3: distances 1, 2, 2, 3, 3 and one zero, which is left out."""
    assert median_lengthscale([0.0, 1.0, 3.0, 3.0]) == 2.0
    many = np.random.default_rng(0).normal(size=(3000, 1))
    assert median_lengthscale(many) == pytest.approx(0.954, abs=0.1)  # median |N(0, 2)|


@every([0, -0.3, np.nan, np.inf, "1", None, True, 1e-200, 1e200, 10**400], of="value")
def test_a_lengthscale_or_a_factor_must_be_positive(value):
    message = r"must be a positive finite number.*(not a|is a) kernel.*Pass a positive number"
    for make in (Gaussian, Laplacian, lambda v: MultiScale((1.0, v)), lambda v: Scaled(v, Gaussian(1.0))):
        with pytest.raises(ValueError, match=message):
            make(value)


class Linear(Gaussian):
    name = "linear"
    draw_spectrum = kernels.Kernel.draw_spectrum


POINT = KernelMean(Gaussian(1.0), [[0.0]])
SOFT = SoftenedProduct((Gaussian(1.0), Gaussian(1.0)), 0.5)


def test_a_wrong_value_is_refused_with_what_why_and_hint():
    refusals.check(Path(__file__).parent / "refusals_kernels.txt", lambda text: eval(text, vars(kernels) | globals()))


GAUSSIAN = {"name": "gaussian", "lengthscale": 1.0}


def test_a_header_from_a_stranger_gives_a_kernel_or_a_value_error():
    refusals.check(Path(__file__).parent / "refusals_headers.txt", lambda text: eval(text, globals()))


def test_a_kernel_nested_too_deep_is_refused():
    header: dict[str, object] = GAUSSIAN
    for _ in range(10):
        header = {"name": "scaled", "factor": 1.0, "kernel": header}
    with pytest.raises(ValueError, match="nested more than 8 deep"):
        kernel_from_dict(header)


def test_kernels_that_magnify_rounding_have_a_larger_bound():
    """Pairs almost a period from each other. A rounded π/T makes a kernel of another period, and is no error of this one."""
    kernel, rng = Periodic(24.0, (0.0025,)), np.random.default_rng(0)
    x, y = rng.uniform(0, 0.01, 300), 24 - rng.uniform(0, 0.01, 300)
    computed = kernel.gram(x[:, None], y[:, None])
    with mpmath.workdps(40):
        rate, steep = mpmath.mpf(np.pi / 24), mpmath.mpf(float(kernel._concentrations()[0]))
        exact = [
            [mpmath.exp(-2 * steep * mpmath.sin(rate * (mpmath.mpf(a) - mpmath.mpf(b))) ** 2) for b in y[:30].tolist()]
            for a in x.tolist()
        ]
        off = max(float(abs(exact[i][j] - computed[i, j])) for i in range(300) for j in range(30))
    assert 64 * 2.0**-53 * 4 < off <= kernel_error(kernel, 1)
    for made in (Scaled(1.0, kernel), OnColumns(kernel, (0,)), kernel * kernel, SoftenedProduct((kernel,), 0.5)):
        assert kernel_error(made, 1) >= kernel_error(kernel, 1)


def exactly(kernel: Any, x: float, y: float) -> Any:
    """The kernel of two numbers, in the digits of mpmath."""
    a, b = mpmath.mpf(x), mpmath.mpf(y)
    if isinstance(kernel, SoftenedProduct):
        p = mpmath.mpf(kernel.inclusion)
        rest = (1 - p) ** len(kernel.kernels)
        return (mpmath.fprod(1 - p + p * exactly(part, x, y) for part in kernel.kernels) - rest) / (1 - rest)
    if isinstance(kernel, Product):
        return mpmath.fprod(exactly(part, x, y) for part in kernel.parts)
    if isinstance(kernel, Periodic):
        angles = [mpmath.sin(mpmath.pi * (a - b) / kernel.period), *kernel.lengthscales]
        steep = [(kernel.period / (2 * mpmath.pi * scale)) ** 2 for scale in angles[1:]]
        return mpmath.fsum(mpmath.exp(-2 * each * angles[0] ** 2) for each in steep) / len(steep)
    scales = kernel.lengthscales if isinstance(kernel, MultiScale) else (kernel.lengthscale,)
    return mpmath.fsum(mpmath.exp(-((a - b) ** 2) / (2 * mpmath.mpf(s) ** 2)) for s in scales) / len(scales)


MANY_ROUNDINGS = {
    "dates of a century": (Periodic(365.2425, (5.7,)), 20000.0), "a million periods": (Periodic(1.0, (0.1,)), 1e6),
    "a small softened product": (SoftenedProduct((Gaussian(1.0),), 0.001), 3.0),
    "a thousand factors": (Product((Gaussian(100.0),) * 1000), 3.0),
    "a thousand scales": (MultiScale(tuple(i + 1.0 for i in range(1000))), 3.0),
}  # fmt: skip


@pytest.mark.parametrize("name", MANY_ROUNDINGS)
@pytest.mark.slow(but="a small softened product")
def test_no_kernel_is_further_from_its_exact_value_than_its_certificate_allows(name: str):
    kernel, most = MANY_ROUNDINGS[name]
    rng = np.random.default_rng(1)
    x, y = rng.uniform(-most, most, (2, 60))
    computed = np.array([kernel.gram(a[None, None], b[None, None])[0, 0] for a, b in zip(x, y, strict=True)])
    with mpmath.workdps(50):
        off = max(float(abs(exactly(kernel, a, b) - k)) for a, b, k in zip(x.tolist(), y.tolist(), computed.tolist(), strict=True))
    assert 1e-17 < off <= kernel_error(kernel, 1)


def test_a_periodic_kernel_of_the_largest_numbers_is_finite():
    far = np.array([[1.7e308], [-1.7e308]])
    assert np.isfinite(Periodic(24.0, (1.0,)).gram(far, far)).all()
