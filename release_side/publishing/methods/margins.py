"""Margins: noisy tables of levels, public edges and atoms, and rows of equal weight that are drawn to fit them."""

from __future__ import annotations

from typing import ClassVar

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.tables.allowed_cells import allowed_cells
from kmeanalyst.representation.wanted import drawn_rows, most_rows
from release_side.choices.options import DEFAULT_POINTS
from release_side.errors import PublishError
from release_side.publishing.methods.base import SIZES
from release_side.publishing.methods.random_features import RandomFeatures


class Margins(RandomFeatures):
    """Random features whose features are the cells of margins. Files have one name for both methods."""

    measures = "margins"
    no_rules = None
    fewest: ClassVar[int] = DEFAULT_POINTS  # rows of a release

    def features(self, kernel: Kernel, domain: Domain) -> FeatureMap:
        """One feature for each cell of each table; PublishError or DomainError where rules leave no row, or cannot be tried."""
        if self.choices.family is not None:
            raise PublishError("margins have features of their own. Leave family out, or choose another kernel.")
        if self.public is not None:
            raise PublishError(
                "margins have no use for public points: rows are drawn from classes. Leave public points out, or choose "
                "another kernel."
            )
        if self.choices.features is not None:
            raise PublishError("margins have one feature for each cell of their tables. Leave features out.")
        allowed = allowed_cells(domain, kernel)  # type: ignore[arg-type]
        if allowed is not None and not allowed.any_left:
            raise PublishError(
                "no row of these margins keeps all rules of the domain: together they exclude everything. Leave one out."
            )
        return MarginFeatures(kernel)  # type: ignore[arg-type]

    def most_points(self, kernel: Kernel, domain: Domain) -> int:
        return self.choices.points or most_rows(domain)

    def taken_as_public(self, measured: Measurement, n_points: int) -> tuple[str, ...]:
        return ("the shares of the budget that tables have, from the domain, the number of rows and the budget", SIZES)

    def default_points(self, measurement: Measurement, domain: Domain) -> int:
        """As many rows as the table has, within limits."""
        return drawn_rows(measurement.n_rows, domain, fewest=self.fewest)
