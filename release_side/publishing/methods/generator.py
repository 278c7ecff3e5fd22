"""Generator: a noisy mean of features that are composed like the kernel, and a network trained on it (DP-MERF)."""

from __future__ import annotations

from dataclasses import dataclass

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.composed import composed_features
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.generator.generator import check_kernel, check_torch
from kmeanalyst.representation.wanted import Wanted, drawn_rows, most_rows
from release_side.choices import options as defaults
from release_side.choices.choices import Choices
from release_side.choices.options import DEFAULT_POINTS, public_generator
from release_side.errors import PublishError
from release_side.publishing.methods.base import SIZES, MeanMethod


@dataclass(frozen=True, kw_only=True, eq=False)
class GeneratorChoices(Choices):
    """No family, and equal weights."""

    def check_method(self) -> None:
        if self.weights not in ("probability", "uniform"):
            raise PublishError(
                f"rows of a generator have equal weights, and {self.weights} weights are not equal. Leave weights out, or "
                "choose another method."
            )
        try:
            check_torch()
        except ImportError as error:
            raise PublishError(str(error)) from None
        self.refuse_family("generator")


class Generator(MeanMethod):
    """Margins and random Fourier features, composed; rows of equal weight from a trained network."""

    name = "generator"
    options = GeneratorChoices
    default_kernel = "generator"
    no_rules = "rows of a generator are drawn freely"
    finer = False  # its rows are probabilities of cells

    def features(self, kernel: Kernel, domain: Domain) -> FeatureMap:
        """Composed like the kernel; each part without margins has F coordinates of its own."""
        if self.public is not None:
            raise PublishError(
                "a generator starts from noise and has no use for public points. Leave them out, or choose another method."
            )
        drawn: list[RandomFourier] = []
        dimension = self.choices.features or defaults.GENERATOR_FEATURES

        def leaf(part: Kernel, columns: tuple[int, ...], place: str) -> FeatureMap:
            own = Domain(tuple(domain.columns[j] for j in columns))
            rng = public_generator(f"frequencies {place}", part, own, dimension)
            drawn.append(
                RandomFourier.draw(part, n_columns=len(own), dimension=dimension, missing_columns=own.missing_columns, rng=rng)
            )
            return drawn[-1]

        try:
            check_kernel(kernel, len(domain))
            feature_map = composed_features(kernel, tuple(range(len(domain))), leaf)
        except ValueError as error:
            raise PublishError(str(error)) from None
        if self.choices.features is not None and not drawn:
            raise PublishError("this kernel's features are cells, whose number follows from the domain. Leave features out.")
        return feature_map

    def most_points(self, kernel: Kernel, domain: Domain) -> int:
        return self.choices.points or most_rows(domain)

    def wanted(self, measurement: Measurement, domain: Domain) -> Wanted:
        """Rows of equal weight, by default as many as the table has, within limits."""
        n_points = self.choices.points or drawn_rows(measurement.n_rows, domain, fewest=DEFAULT_POINTS)
        return Wanted(n_points=n_points, float32=self.choices.float32)

    def taken_as_public(self, measured: Measurement, n_points: int) -> tuple[str, ...]:
        return ("the frequencies, drawn from a public seed", SIZES)
