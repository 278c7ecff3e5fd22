"""Answers: an estimate with its error in parts, and a test result. Values, printed in one line each."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An estimated number with its standard error, in parts that are always told apart.

    value           the estimate, in the units of the question.
    standard_error  root of the sum of the squared parts.
    parts           "privacy": the noise added for privacy. "sampling": the table is itself a sample.
                    "resolution": what the release's features cannot see of the question.
                    A part that is not known (points from elsewhere) is None, and counts as zero.
    view            the weights it was computed with: "signed" or "probability".
    question        what was asked, as text.
    notes           what a reader should know beside the number.

    >>> e = Estimate(value=0.3124, standard_error=0.0113, question="age > 50", view="probability",
    ...              parts={"privacy": 0.0061, "sampling": 0.0026, "resolution": 0.0092})
    >>> e
    age > 50: 0.312 ± 0.011 (95 %: 0.290 to 0.335; privacy 0.006, sampling 0.003, resolution 0.009)
    """

    value: float
    standard_error: float
    parts: dict[str, float | None]
    view: str
    question: str
    notes: tuple[str, ...] = ()

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """(low, high): value ± z·standard_error, normal law, coverage `level` in (0, 1)."""
        from scipy.special import ndtri

        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level!r}: it is a coverage. Pass e.g. 0.95.")
        half = float(ndtri((1 + level) / 2)) * self.standard_error
        return self.value - half, self.value + half

    @property
    def digits(self) -> int:
        """Decimals that show two digits of the standard error."""
        if not np.isfinite(self.standard_error) or self.standard_error <= 0:
            return 6
        return int(np.clip(1 - np.floor(np.log10(self.standard_error)), 0, 12))

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """The estimate as plain numbers, as `expect --json` prints it."""
        return {
            "expression": self.question,
            "value": self.value,
            "standard_error": self.standard_error,
            "interval": list(self.interval(level)),
            "level": level,
            "view": self.view,
            "parts": dict(self.parts),
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        digits = self.digits
        low, high = self.interval()
        parts = ", ".join(f"{name} {'unknown' if v is None else f'{v:.{digits}f}'}" for name, v in self.parts.items())
        return (
            f"{self.question}: {self.value:.{digits}f} ± {self.standard_error:.{digits}f} "
            f"(95 %: {low:.{digits}f} to {high:.{digits}f}; {parts})"
        )


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """The result of a two-sample test, in the manner of scipy.stats.

    statistic         the test statistic (its scale depends on the method).
    pvalue            probability of a statistic at least as large if both sides have one population.
    mmd_squared       estimate of the squared maximum mean discrepancy; the unbiased one can be negative.
    estimator         which estimate that is: "unbiased" or "biased".
    method            how the statistic and its law were made, in words.
    noise_aware       whether the law includes the privacy noise; false without a measurement.
    n_release_rows    N, rows behind the release; None for plain samples and points from elsewhere.
    n_release_points  M, points of the release, or rows of the first sample.
    n_sample_rows     L, rows of the second sample (N of the second release).
    noise_floor       root mean square distance that two sides of one population would show: noise and sampling alone.
    mmd_interval      (low, high), 95 % confidence interval for the populations' MMD (not squared).
    detectable_mmd    the smallest MMD that a test at 5 % would have found with 80 % power.
    epsilon, delta    the release's promise; None where there is none.
    notes             what a reader should know: clamped values, ignored columns, what is tested.
    """

    __test__ = False  # not a test class, whatever its name

    statistic: float
    pvalue: float
    mmd_squared: float
    method: str
    noise_aware: bool
    n_release_rows: int | None
    n_release_points: int
    n_sample_rows: int
    estimator: str = "unbiased"
    noise_floor: float | None = None
    mmd_interval: tuple[float, float] | None = None
    detectable_mmd: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """The result as plain numbers, as `mmd-test --json` prints it."""
        return asdict(self) | {"notes": list(self.notes)}
