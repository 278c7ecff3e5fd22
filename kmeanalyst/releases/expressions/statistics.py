"""The statistics that a question may name as text: how many arguments each takes, and how it is written.

`kmeanalyst.inference.questions.statistics.ask` answers them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Statistic:
    """Fewest and most arguments of a statistic, and an example of it."""

    fewest: int
    most: int
    usage: str


STATISTICS = {
    "mean": Statistic(1, 1, "mean(a)"),
    "var": Statistic(1, 1, "var(a)"),
    "std": Statistic(1, 1, "std(a)"),
    "cov": Statistic(2, 2, "cov(a, b)"),
    "corr": Statistic(2, 2, "corr(a, b)"),
    "quantile": Statistic(2, 2, "quantile(a, 0.5)"),
    "table": Statistic(1, 2, "table(a) or table(a, b)"),
}
