"""Feature maps of a file that are neither Fourier features nor a subspace nor margins: binning, Maclaurin, Hermite.

The maps' own constructors refuse what would break their bound (a multi-index twice, a projection that is too long, a
stride beyond its cells); here it is seen to that the arrays are there, and are of this domain and kernel.
"""

from __future__ import annotations

from kmeanalyst.kernels import Gaussian, Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.dot_product import DotProduct
from kmeanalyst.kernels.features import FeatureMap, Hermite, RandomBinning, RandomMaclaurin
from kmeanalyst.releases.columns import Categorical
from kmeanalyst.releases.domain import Domain
from kmeanalyst.releases.file.refusal import limits, refusal, refusing, too_large
from kmeanalyst.releases.text_column import Text

_BINNING = ("widths", "shifts", "missing", "strides", "cells")


def binning(kernel: Kernel, domain: Domain, arrays: dict[str, Array]) -> FeatureMap:
    """Grids over the columns of the domain."""
    _check_names(RandomBinning.name, arrays, _BINNING, domain, "widths")
    _check_numbers(RandomBinning.name, domain)
    with refusing("feature_map"):
        feature_map = RandomBinning(kernel, *(arrays[name] for name in _BINNING))
        if feature_map.dimension > limits().features:
            raise too_large(f"its grids have {feature_map.dimension} cells", f"at most {limits().features} are read")
    return feature_map


def maclaurin(kernel: Kernel, domain: Domain, arrays: dict[str, Array]) -> FeatureMap:
    """Degrees, projections and signs over the columns of the domain, of a dot-product kernel."""
    _check_names(RandomMaclaurin.name, arrays, ("degrees", "projections", "signs"), domain, "signs")
    if not isinstance(kernel, DotProduct):
        raise refusal(
            "feature_map, field name", f"the kernel {kernel.name} is no dot product, and has no such features"
        )
    with refusing("feature_map"):
        return RandomMaclaurin(kernel, arrays["degrees"], arrays["projections"], arrays["signs"])


def hermite(kernel: Kernel, domain: Domain, arrays: dict[str, Array]) -> FeatureMap:
    """Centres, ρ and distinct multi-indices over the columns of the domain, of the Gaussian kernel."""
    _check_names(Hermite.name, arrays, ("axes", "degrees"), domain, "degrees")
    _check_numbers(Hermite.name, domain)
    if not isinstance(kernel, Gaussian):
        raise refusal("feature_map, field name", f"the kernel {kernel.name} is not gaussian, and has no such features")
    with refusing("feature_map"):
        return Hermite(kernel, arrays["axes"], arrays["degrees"])


def _check_names(family: str, arrays: dict[str, Array], names: tuple[str, ...], domain: Domain, by_column: str) -> None:
    """The arrays are these and no others, and the one named last has a row for each column; none of these holds texts."""
    if texts := [column.name for column in domain.columns if isinstance(column, Text)]:
        raise refusal("feature_map, field name", f"strings have no {family} features, as in column {texts[0]!r:.80}")
    d = len(domain)
    if set(arrays) != set(names) or arrays[by_column].ndim != 2 or len(arrays[by_column]) != d:
        raise refusal(
            "feature_map, field arrays", f"{family} features have {', '.join(names)} of {d} columns, and nothing else"
        )


def _check_numbers(family: str, domain: Domain) -> None:
    levels = [column.name for column in domain.columns if isinstance(column, Categorical)]
    if levels:
        raise refusal("feature_map, field name", f"{family} features are of numbers, and {levels!r:.80} have levels")
