"""Rounding: no kernel is further from its exact value than `kernel_error` certifies."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

from kmeanalyst.kernels import (
    ExponentialDot,
    Gaussian,
    MultiScale,
    OnColumns,
    Periodic,
    Product,
    Scaled,
    SoftenedProduct,
)
from kmeanalyst.kernels.features.pivots import kernel_error


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
    assert kernel_error(ExponentialDot(50.0, (0.0,), (1.0,)), 1) > 302 * 2.0**-53 * np.exp(50.0)


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
    "dates of a century": (Periodic(365.2425, (5.7,)), 20000.0),
    "a million periods": (Periodic(1.0, (0.1,)), 1e6),
    "a small softened product": (SoftenedProduct((Gaussian(1.0),), 0.001), 3.0),
    "a thousand factors": (Product((Gaussian(100.0),) * 1000), 3.0),
    "a thousand scales": (MultiScale(tuple(i + 1.0 for i in range(1000))), 3.0),
}


@pytest.mark.parametrize("name", MANY_ROUNDINGS)
@pytest.mark.slow(but="a small softened product")
def test_no_kernel_is_further_from_its_exact_value_than_its_certificate_allows(name: str):
    kernel, most = MANY_ROUNDINGS[name]
    rng = np.random.default_rng(1)
    x, y = rng.uniform(-most, most, (2, 60))
    computed = np.array([kernel.gram(a[None, None], b[None, None])[0, 0] for a, b in zip(x, y, strict=True)])
    with mpmath.workdps(50):
        off = max(
            float(abs(exactly(kernel, a, b) - k))
            for a, b, k in zip(x.tolist(), y.tolist(), computed.tolist(), strict=True)
        )
    assert 1e-17 < off <= kernel_error(kernel, 1)


def test_a_periodic_kernel_of_the_largest_numbers_is_finite():
    far = np.array([[1.7e308], [-1.7e308]])
    assert np.isfinite(Periodic(24.0, (1.0,)).gram(far, far)).all()
