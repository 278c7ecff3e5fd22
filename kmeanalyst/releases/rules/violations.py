"""How many rows of the table break a rule, as far as the measurement sees it. Post-processing: it costs no privacy.

Rules are assumptions. A rule whose columns have a measured table together, or in a table with others, has there cells that no
row can be in if the rule holds: the sum of their noisy shares estimates v, the share of rows that break it. An answer given the
rules may be off from the table as recorded by up to v/(1 − v).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.rule import DERIVE

CONTRADICTED = 4.0  # standard deviations


@dataclass(frozen=True)
class Violation:
    """An estimate of the share of rows that break a rule.

    rule                 its index among the domain's rules.
    name                 the rule with its number, from 1, and its text.
    share                noisy, so that it can be below 0; cells where only some rows break the rule do not count, so that more may.
    standard_deviation   of its noise.
    """

    rule: int
    name: str
    share: float
    standard_deviation: float

    @property
    def is_contradicted(self) -> bool:
        """Whether the share exceeds four of its standard deviations: the table has rows that break the rule."""
        return self.share > CONTRADICTED * self.standard_deviation

    def describe(self) -> str:
        """What the measurement says of the rule.

        >>> Violation(0, "rule 1 (never ill)", 0.02, 0.001).describe()
        'rule 1 (never ill): at least 2.00 % ± 0.10 % of the rows of the table break it'
        """
        share, deviation = max(0.0, 100 * self.share), 100 * self.standard_deviation
        return f"{self.name}: at least {share:.2f} % ± {deviation:.2f} % of the rows of the table break it"


def violations_of(domain: Domain, measurement: Measurement | None) -> tuple[Violation, ...]:
    """For each rule whose columns have a measured table, what share of the rows breaks it; () where no margins were measured.

    Derived columns are computed in every row, so that none breaks their rules.
    """
    if measurement is None or not domain.rules or not isinstance(measurement.feature_map, MarginFeatures):
        return ()
    features, rules, found = measurement.feature_map, rules_of(domain), []
    for i, one in enumerate(rules.compiled):
        if one.rule.kind == DERIVE:
            continue
        tables = list(_tables_with(features, one.columns))
        if not tables:
            continue
        forbidden = ~rules.cells_allowed(features.kernel, i)
        sums = [_forbidden(measurement, table, forbidden, one.columns) for table in tables]
        share, deviation = min(sums, key=lambda one: one[1])
        found.append(Violation(i, one.rule.named(i + 1), share, deviation))
    return tuple(found)


def contradicted(domain: Domain, measurement: Measurement | None) -> tuple[Violation, ...]:
    return tuple(one for one in violations_of(domain, measurement) if one.is_contradicted)


def _tables_with(features: MarginFeatures, columns: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], int, float]]:
    """Columns, first feature and squared height of the measured tables, finer ones aside, that have all these columns."""
    for group in features.groups:
        if group.kind != "finer":
            for table, square, start in zip(group.tables, group.squares, group.starts, strict=True):
                if set(columns) <= set(table):
                    yield table, int(start), square


def _forbidden(
    measurement: Measurement, table: tuple[tuple[int, ...], int, float], forbidden: Array, columns: tuple[int, ...]
) -> tuple[float, float]:
    features = measurement.feature_map
    assert isinstance(features, MarginFeatures)
    (of_table, start, square), sizes = table, features.kernel.sizes
    shape = tuple(sizes[j] for j in of_table)
    shares = measurement.vector[start : start + math.prod(shape)].reshape(shape) / math.sqrt(square)
    order = np.argsort([of_table.index(j) for j in columns])  # of the rule's axes, as they are in the table
    cells = forbidden.transpose(order).reshape([sizes[j] if j in columns else 1 for j in of_table])
    cells = np.broadcast_to(cells, shape)
    variances = measurement.variances[start : start + math.prod(shape)].reshape(shape)[cells]
    return float(shares[cells].sum()), math.sqrt(max(float(variances.sum()), measurement.noise_scale**2) / square)
