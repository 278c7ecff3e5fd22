"""Kernels, feature maps and kernel mean embeddings.

>>> import kmeanalyst as ka
>>> kernel = ka.kernels.Gaussian(2.0) + 0.5 * ka.kernels.Laplacian(1.0)  # sums and products are kernels
>>> kernel.gram([[0.0]], [[1.0], [2.0]])
array([[1.066..., 0.6741... ]])
>>> sorted(ka.kernels.KERNELS)[1:4]  # by the names that files have
['gaussian', 'indicator', 'laplacian']
"""

from __future__ import annotations

from typing import Any

from kmeanalyst.kernels.base import Kernel, OnColumns, Product, Scaled, Sum
from kmeanalyst.kernels.continuous import Gaussian, Laplacian, Matern, MultiScale, Periodic, RationalQuadratic, median_lengthscale
from kmeanalyst.kernels.discrete import Indicator, SoftenedProduct
from kmeanalyst.kernels.dot_product import Polynomial
from kmeanalyst.kernels.embedding import KernelMean
from kmeanalyst.kernels.margins import ChosenMargins, Margins
from kmeanalyst.kernels.strings import StringSpectrum

_ALL: tuple[type[Kernel], ...] = (
    Gaussian, Laplacian, Matern, RationalQuadratic, MultiScale, Indicator, SoftenedProduct, Sum, Product, Scaled, OnColumns,
    Margins, ChosenMargins, Polynomial, Periodic, StringSpectrum,
)  # fmt: skip
KERNELS = {kernel.name: kernel for kernel in _ALL}
_DEEPEST = 8


def kernel_from_dict(header: Any, *, depth: int = 0) -> Kernel:
    """Rebuild a kernel from its name and parameters, as `Kernel.to_dict` wrote them; else ValueError.

    >>> ka.kernels.kernel_from_dict({"name": "gaussian", "lengthscale": 2.0})
    Gaussian(lengthscale=2.0)
    """
    if depth > _DEEPEST:
        raise ValueError(f"the kernel is nested more than {_DEEPEST} deep, which no release needs. Refused.")
    if not isinstance(header, dict) or not isinstance(header.get("name"), str) or header["name"] not in KERNELS:
        known = ", ".join(KERNELS)
        raise ValueError(f"unknown kernel {header!r:.80}. This version knows {known}; upgrade kmeanalyst.")
    parameters = {key: _revive(value, depth) for key, value in header.items() if key != "name"}
    try:
        return KERNELS[header["name"]](**parameters)
    except TypeError:
        raise ValueError(f"kernel {header['name']} has wrong parameters: {sorted(parameters)}.") from None


def _revive(value: Any, depth: int) -> Any:
    if isinstance(value, dict):
        return kernel_from_dict(value, depth=depth + 1)
    if isinstance(value, list):
        return tuple(_revive(v, depth) for v in value)
    return value


__all__ = [
    "KERNELS", "ChosenMargins", "Gaussian", "Indicator", "Kernel", "KernelMean", "Laplacian", "Margins", "Matern",
    "MultiScale", "OnColumns", "Periodic", "Polynomial", "Product", "RationalQuadratic", "Scaled", "SoftenedProduct",
    "StringSpectrum", "Sum", "kernel_from_dict", "median_lengthscale",
]  # fmt: skip
