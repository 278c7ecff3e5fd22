"""Which features a kernel is measured in, by the curator's choice: drawn from public facts alone.

fourier        independent random Fourier features, the default (Rahimi & Recht 2007)
orthogonal     Fourier features whose frequencies come in orthogonal blocks (Yu et al. 2016)
quasi-random   Fourier features whose frequencies are a Sobol sequence with a random shift (Avron et al. 2016)
binning        random binning of the laplacian kernel (Rahimi & Recht 2007): diameter √2 instead of 2
maclaurin      of polynomial and exponential-dot kernels, and their default (Kar & Karnick 2012)
hermite        of the gaussian kernel on few columns: nothing is random (DP-HP, Vinaroz et al. 2022)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.dot_product import DotProduct
from kmeanalyst.kernels.features import FeatureMap, Hermite, RandomBinning, RandomFourier, RandomMaclaurin
from kmeanalyst.releases.columns import Categorical
from kmeanalyst.releases.domain import Domain
from release_side.mechanism import PublishError

FAMILIES = ("fourier", "orthogonal", "quasi-random", "binning", "maclaurin", "hermite")
_FREQUENCIES = {"fourier": "independent", "orthogonal": "orthogonal", "quasi-random": "quasi-random"}
Generator = Callable[[str], np.random.Generator]  # a generator seeded by public facts and by what it is for


def check_family(family: str | None, method: str, features: int | None) -> None:
    """PublishError unless the family is known, goes with the method, and can have so many features."""
    if family is not None and family not in FAMILIES:
        raise PublishError(f"family must be one of {', '.join(FAMILIES)}, got {family!r:.80}. Name one of these.")
    if family is not None and method != "random-features":
        raise PublishError(
            f'a family of features is of the method "random-features", and {method} has its own. Leave family out, or '
            "choose that method."
        )
    paired = family is None or family in _FREQUENCIES
    if paired and features is not None and features % 2:
        raise PublishError(f"features must be even, got {features}: cosine and sine come in pairs. Add one.")


def features_of(family: str | None, kernel: Kernel, domain: Domain, dimension: int, generator: Generator) -> FeatureMap:
    """About `dimension` coordinates of a kernel on all columns of the domain; ValueError if the family has none for it.

    family      None for maclaurin if the kernel is a dot product, else fourier.
    generator   gives a generator seeded by public facts, told what it is for.
    """
    family = family or ("maclaurin" if isinstance(kernel, DotProduct) else "fourier")
    if family in _FREQUENCIES:
        frequencies = _FREQUENCIES[family]
        return RandomFourier.draw(
            kernel, n_columns=len(domain), dimension=dimension, missing_columns=domain.missing_columns,
            frequencies=frequencies,
            rng=generator("frequencies" if family == "fourier" else f"{frequencies} frequencies"),
        )  # fmt: skip
    if family == "maclaurin":
        return RandomMaclaurin.draw(kernel, dimension=dimension, rng=generator(family))  # type: ignore[arg-type]
    placed = {"bounds": _bounds(domain), "dimension": dimension, "missing_columns": tuple(domain.missing_columns)}
    if family == "hermite":
        return Hermite.on(kernel, **placed)  # type: ignore[arg-type]
    return RandomBinning.draw(kernel, rng=generator(family), **placed)  # type: ignore[arg-type]


def _bounds(domain: Domain) -> Array:
    """(d, 2) the columns' public bounds, encoded; ValueError if some have levels."""
    levels = [column.name for column in domain.columns if isinstance(column, Categorical)]
    if levels:
        raise ValueError(
            f"these features are of numbers, and {', '.join(levels)} have levels. Choose another family, or leave them out"
        )
    return np.array([column.bounds for column in domain.columns], dtype=float)  # type: ignore[attr-defined]
