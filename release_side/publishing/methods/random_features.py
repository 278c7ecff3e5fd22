"""Random features: a noisy mean of F coordinates, and points that are placed to fit it (Algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.composed import margins_in
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.wanted import Wanted
from release_side.choices import options as defaults
from release_side.choices.choices import Choices
from release_side.choices.options import features_of, public_generator
from release_side.choices.statement import NO_PROTECTION
from release_side.errors import PublishError
from release_side.publishing.methods.base import SIZES, MeanMethod, Measured

_FREQUENCIES = "the frequencies, drawn from a public seed"
_FEATURES = {
    "random-binning": "the grids of the features, drawn from a public seed",
    "random-maclaurin": "the degrees and projections of the features, drawn from a public seed",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomFeaturesChoices(Choices):
    """Every choice but Algorithm 1's weights."""

    def check_method(self) -> None:
        self.refuse_published_weights()


class RandomFeatures(MeanMethod):
    """Random features of a kernel on all columns, and points that are placed."""

    name: ClassVar[str] = "random-features"
    options: ClassVar[type[Choices]] = RandomFeaturesChoices

    def features(self, kernel: Kernel, domain: Domain) -> FeatureMap:
        """About F coordinates of the family that was chosen."""
        if next(margins_in(kernel), None) is not None:
            raise PublishError(
                "this kernel is made of margins and other parts, and points cannot be placed for it. Choose the method "
                "generator or subspace, or another kernel."
            )
        dimension = self.choices.features or defaults.FEATURES
        return features_of(
            self.choices.family, kernel, domain, dimension,
            lambda what: public_generator(what, kernel, domain, dimension),
        )  # fmt: skip

    def most_points(self, kernel: Kernel, domain: Domain) -> int:
        """As many as were asked for, or the most that are placed by default."""
        return self.choices.points or defaults.MOST_DEFAULT_POINTS

    def default_points(self, measurement: Measurement, domain: Domain) -> int:
        """How many points carry the mean no worse than its noise lets it be known; by N, ε, δ alone.

        The error of well-placed weighted points falls about as 1/M, that of the mean is some twelve times the noise
        scale (a hundred parameters or more are told from the noise): M is where both meet, within limits.
        """
        wanted = measurement.feature_map.norm_bound / (6 * measurement.noise_scale)
        return int(np.clip(wanted, defaults.DEFAULT_POINTS, defaults.MOST_DEFAULT_POINTS))

    def wanted(self, measurement: Measurement, domain: Domain) -> Wanted:
        """Points that start from the public rows, if there are any."""
        return Wanted(
            n_points=self.choices.points or self.default_points(measurement, domain), view=self.choices.weights,
            bound=self.choices.bound, public=self.public, float32=self.choices.float32,
        )  # fmt: skip

    def taken_as_public(self, measured: Measured, n_points: int) -> tuple[str, ...]:
        """The features, the sizes, and the public rows from which the points started."""
        features = _FEATURES.get(measured.rounds[-1].feature_map.name, _FREQUENCIES)
        given = f"the rows given as public, from which the points started; {NO_PROTECTION}"
        return (features, SIZES, *(() if self.public is None else (given,)))


__all__ = ["RandomFeatures"]
