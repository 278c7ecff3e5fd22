"""Random features: a noisy mean of F coordinates, and points that are placed to fit it (Algorithm 2).

The families of features, all drawn from public facts alone:

fourier     random Fourier features, the default (Rahimi & Recht 2007)
binning     random binning of the laplacian kernel (Rahimi & Recht 2007): diameter √2 instead of 2
maclaurin   of the polynomial kernel, and its default (Kar & Karnick 2012)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.dot_product import Polynomial
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.binning import RandomBinning
from kmeanalyst.kernels.features.composed import margins_in
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.maclaurin import RandomMaclaurin
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import adaptive_kernel
from kmeanalyst.releases.domain.numbers import Cyclic
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.wanted import Wanted
from release_side.choices import options as defaults
from release_side.choices.choices import Choices
from release_side.choices.options import NO_PROTECTION, public_generator
from release_side.errors import PublishError
from release_side.publishing.methods.base import SIZES, MeanMethod

_DRAWN = {  # what a feature map has drawn, by its name
    "random-binning": "the grids of the features, drawn from a public seed",
    "random-maclaurin": "the degrees and projections of the features, drawn from a public seed",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomFeaturesChoices(Choices):
    """Every choice but Algorithm 1's weights."""

    def check_method(self) -> None:
        if self.weights == "published":
            raise PublishError('published weights are Algorithm 1\'s: they need method "subspace". Name it, or other weights.')


class RandomFeatures(MeanMethod):
    """Random features of a kernel on all columns, and points that are placed."""

    name = "random-features"
    options = RandomFeaturesChoices
    no_rules: ClassVar[str | None] = "points of random features are placed freely"

    @classmethod
    def usual_kernel(cls, choices: Choices, domain: Domain) -> str:
        """Adaptive margins; the table kernel where a choice demands it, margins for rules under Laplace noise."""
        of_features = (choices.features, choices.family, choices.public_points, choices.bound)
        placed = choices.weights not in ("probability", "uniform")
        others = any(column.is_text or isinstance(column, Cyclic) for column in domain.columns)
        if domain.rules and choices.noise == "laplace" and not others:
            return "margins"
        if any(choice is not None for choice in of_features) or placed or others or choices.noise == "laplace":
            return "table"
        try:
            adaptive_kernel(domain)
        except DomainError:  # too many cells to count
            return "table"
        return "adaptive"

    def features(self, kernel: Kernel, domain: Domain) -> FeatureMap:
        """About F coordinates of the chosen family; PublishError or ValueError if it has none for this kernel."""
        if next(margins_in(kernel), None) is not None:
            raise PublishError(
                "this kernel is made of margins and other parts, and points cannot be placed for it. Choose the method "
                "generator or subspace, or another kernel."
            )
        return features_of(self.choices.family, kernel, domain, self.choices.features or defaults.FEATURES)

    def most_points(self, kernel: Kernel, domain: Domain) -> int:
        return self.choices.points or defaults.MOST_DEFAULT_POINTS

    def default_points(self, measurement: Measurement, domain: Domain) -> int:
        """How many points carry the mean no worse than its noise lets it be known; by N, ε, δ alone.

        The error of well-placed weighted points falls about as 1/M. The error of the mean is about twelve times the noise
        scale, because a hundred parameters or more can be estimated from it. M makes the two errors equal, within limits.
        """
        wanted = measurement.feature_map.norm_bound / (6 * measurement.noise_scale)
        return int(np.clip(wanted, defaults.DEFAULT_POINTS, defaults.MOST_DEFAULT_POINTS))

    def wanted(self, measurement: Measurement, domain: Domain) -> Wanted:
        """Points that start from the public rows, if there are any."""
        return Wanted(
            n_points=self.choices.points or self.default_points(measurement, domain), view=self.choices.weights,
            bound=self.choices.bound, public=self.public, float32=self.choices.float32,
        )  # fmt: skip

    def taken_as_public(self, measured: Measurement, n_points: int) -> tuple[str, ...]:
        drawn = _DRAWN.get(measured.feature_map.name, "the frequencies, drawn from a public seed")
        given = f"the rows given as public, from which the points started; {NO_PROTECTION}"
        return (drawn, SIZES, *(() if self.public is None else (given,)))


def features_of(family: str | None, kernel: Kernel, domain: Domain, dimension: int) -> FeatureMap:
    """About `dimension` coordinates of a kernel on all columns of the domain; ValueError if the family has none for it.

    family   None for maclaurin if the kernel is a dot product, else fourier.
    """
    family = family or ("maclaurin" if isinstance(kernel, Polynomial) else "fourier")
    rng = public_generator("frequencies" if family == "fourier" else family, kernel, domain, dimension)
    missing = tuple(domain.missing_columns)
    if family == "fourier":
        return RandomFourier.draw(kernel, n_columns=len(domain), dimension=dimension, missing_columns=missing, rng=rng)
    if family == "maclaurin":
        return RandomMaclaurin.draw(kernel, dimension=dimension, rng=rng)  # type: ignore[arg-type]
    return RandomBinning.draw(kernel, bounds=_bounds(domain), dimension=dimension, missing_columns=missing, rng=rng)


def _bounds(domain: Domain) -> Array:
    """(d, 2) the columns' public bounds, encoded; ValueError if some have levels."""
    levels = [column.name for column in domain.columns if column.has_levels]
    if levels:
        raise ValueError(
            f"these features are of numbers, and {', '.join(levels)} have levels. Choose another family, or leave them out"
        )
    return np.array([column.bounds for column in domain.columns], dtype=float)
