"""Subspace: the noisy mean in the span of points that are given or drawn beforehand, and weights on them (Algorithm 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.certified import CertifiedNystroem
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.file.kernel import kernel_work
from kmeanalyst.releases.file.limits import USUAL
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.population_size import PopulationSize
from kmeanalyst.representation.wanted import Wanted
from release_side.choices import options as defaults
from release_side.choices.choices import Choices
from release_side.choices.options import public_generator
from release_side.choices.statement import NO_PROTECTION
from release_side.choices.subspaces import better_basis, certified_basis
from release_side.door.mechanism import Noise, RehearsalNoise
from release_side.errors import PublishError
from release_side.publishing.methods.base import SIZES, MeanMethod, Measured


@dataclass(frozen=True, kw_only=True, eq=False)
class SubspaceChoices(Choices):
    """No features, no family, and nothing that moves points."""

    def check_method(self) -> None:
        if self.weights == "uniform" or self.float32:
            raise PublishError(
                f"{'float32' if self.float32 else 'uniform weights'} is for points that are placed, and a subspace's points "
                'are given. Use method "random-features", or leave it out.'
            )
        if self.features is not None:
            raise PublishError("a subspace has as many features as it has points. Pass points, not features.")
        self.refuse_family("subspace")


class Subspace(MeanMethod):
    """Nyström coordinates of a kernel, and weights on the points that span them."""

    name: ClassVar[str] = "subspace"
    options: ClassVar[type[Choices]] = SubspaceChoices
    places_points: ClassVar[bool] = False
    follows_noise: ClassVar[bool] = False

    def __init__(self, choices: Any, public: Array | None = None) -> None:
        super().__init__(choices, public)
        self._certified: dict[int, CertifiedNystroem | None] = {}  # by the map it is of, which this method keeps

    def spanning(self, kernel: Kernel, domain: Domain) -> Array:
        """The points (M, d), encoded: the first of the public rows, or rows that are drawn from the domain."""
        most = max(2, math.isqrt(USUAL.basis_work // kernel_work(kernel, domain.width)))  # that readers take
        if self.public is not None:
            return self.public[: self.choices.points or min(defaults.MOST_PUBLIC_POINTS, most)]
        size = self.choices.points or min(defaults.DEFAULT_POINTS, most)
        return domain.draw(size, public_generator("points", kernel, domain, size))

    def features(self, kernel: Kernel, domain: Domain) -> FeatureMap:
        """The basis; for published weights that of the papers' code: points in their order, near-dependent ones left out."""
        printed: dict[str, Any] = {"tolerance": defaults.PAPER_TOLERANCE, "in_given_order": True}
        basis = printed if self.choices.weights == "published" else {}
        return Nystroem.fit(kernel, self.spanning(kernel, domain), **basis)

    def most_points(self, kernel: Kernel, domain: Domain) -> int:
        """The points that there are."""
        return len(self.spanning(kernel, domain))

    def by_noise(
        self, feature_map: FeatureMap, domain: Domain, size: PopulationSize, noise: Noise | RehearsalNoise
    ) -> FeatureMap:
        """The basis with a certificate where that has the smaller expected error."""
        if id(feature_map) not in self._certified:
            self._certified[id(feature_map)] = certified_basis(feature_map)
        spanning = self.spanning(feature_map.kernel, domain)
        return better_basis(feature_map, self._certified[id(feature_map)], spanning, noise, n_rows=size.count)

    def wanted(self, measurement: Measurement, domain: Domain) -> Wanted:
        """Weights on the points, as the file will hold them: public rows were decoded and encoded again."""
        given = self.spanning(measurement.feature_map.kernel, domain)
        return Wanted(
            n_points=len(given), view=self.choices.weights, bound=self.choices.bound, given=given,
            n_public=0 if self.public is None else len(given),
        )  # fmt: skip

    def n_public(self, n_points: int) -> int:
        """All points, or none."""
        return 0 if self.public is None else n_points

    def taken_as_public(self, measured: Measured, n_points: int) -> tuple[str, ...]:
        """The points, the sizes, and how many of the points were given."""
        given = f"{n_points} rows given as public points; {NO_PROTECTION}"
        return ("the points of the subspace", SIZES, *(() if self.public is None else (given,)))


__all__ = ["Subspace"]
