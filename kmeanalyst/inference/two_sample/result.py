"""The result of a two-sample test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.texts import Printed

OF_UNITS = "the release gives each unit the same weight, however many rows it has: compare it with rows of which each unit has one"
_LEAST = 1e-9  # a p-value below it is not told apart from 0
_FOUND = {  # by the hypothesis: what is said where it is rejected, and where it is not
    "equality": ("The populations of both sides differ", "No difference found", "both sides may be of one population"),
    "independence": ("The columns depend on each other", "No dependence found", "they may be independent"),
    "untested independence": ("", "Nothing is known of this", "the columns were not counted together"),
}


@dataclass(frozen=True, kw_only=True, repr=False)
class TestResult(Printed):
    """The result of a two-sample test, in the manner of scipy.stats.

    statistic         the test statistic (its scale depends on the method).
    pvalue            probability of a statistic at least as large if both sides have one population; corrected for their
                      number where several are tested.
    mmd_squared       estimate of the squared maximum mean discrepancy; the unbiased one can be negative.
    estimator         which estimate that is: "unbiased" or "biased".
    method            how the statistic and its distribution were computed, in words.
    noise_aware       whether the distribution includes the privacy noise; false without a measurement.
    n_release_rows    N, rows (or protected units) behind the release; None for plain samples and points from elsewhere.
    n_release_points  M, points of the release, or rows of the first sample.
    n_sample_rows     L, rows of the second sample (N of the second release).
    noise_floor       root mean square distance between two sides of one population: noise and sampling alone.
    mmd_interval      (low, high), 95 % confidence interval for the populations' MMD (not squared).
    detectable_mmd    the smallest MMD that a test at 5 % would have found with 80 % power.
    hypothesis        what was tested: "equality" of both sides' populations, or "independence" of columns; "untested
                      independence" where the release did not count them together.
    epsilon, delta    of the release's privacy guarantee; None if it has none.
    notes             what a reader should know: clamped values, ignored columns, what is tested.

    >>> result = ka.mmd_test(release, sample)
    >>> result.pvalue, result.mmd_interval
    (0.1499..., (0.0, 0.02278...))
    >>> result.method, result.noise_aware
    ('noise-aware weighted MMD, release against sample', True)
    """

    __test__ = False  # not a test class, whatever its name

    statistic: float
    pvalue: float
    mmd_squared: float
    method: str
    noise_aware: bool = False
    n_release_rows: int | None = None
    n_release_points: int = 0
    n_sample_rows: int
    estimator: str = "unbiased"
    noise_floor: float | None = None
    mmd_interval: tuple[float, float] | None = None
    detectable_mmd: float | None = None
    hypothesis: Literal["equality", "independence", "untested independence"] = "equality"
    epsilon: float | None = None
    delta: float | None = None
    notes: tuple[str, ...] = field(default=())

    def to_text(self, level: float = 0.05) -> str:
        """The result in words, as `mmd-test` prints it: first what was found, last how.

        >>> print(ka.mmd_test(release, sample).to_text())
        No difference found (p = 0.1499, level 0.05): both sides may be of one population.
        MMD          0 (95 %: 0 to 0.0228)
        MMD²         -4.88e-05 (unbiased; negative values happen when both sides agree)
        noise floor  0.0508 (MMD of two sides of one population, before noise is subtracted)
        detectable   0.0186 (smallest MMD found at 5 % with 80 % power)
        method       noise-aware weighted MMD, release against sample; privacy noise included
        """
        (rejected, kept, possible), p = _FOUND[self.hypothesis], self.pvalue
        numbers = f"p {f'< {_LEAST:g}' if p < _LEAST else f'= {p:.4g}'}, level {level:g}"
        first = f"{rejected} ({numbers})." if self.pvalue < level else f"{kept} ({numbers}): {possible}."
        sign = "; negative values happen when both sides agree" if self.estimator == "unbiased" else ""
        lines = [("note", text) for text in self.notes]  # first: the sample's cells may be the whole difference
        if self.mmd_interval is not None:
            low, high = self.mmd_interval
            lines.append(("MMD", f"{max(self.mmd_squared, 0.0) ** 0.5:.3g} (95 %: {low:.3g} to {high:.3g})"))
        lines.append(("MMD²", f"{self.mmd_squared:.4g} ({self.estimator}{sign})"))
        if self.noise_floor is not None:
            what = "MMD of two sides of one population, before noise is subtracted"
            lines.append(("noise floor", f"{self.noise_floor:.3g} ({what})"))
        if self.detectable_mmd is not None:
            lines.append(("detectable", f"{self.detectable_mmd:.3g} (smallest MMD found at 5 % with 80 % power)"))
        lines.append(("method", f"{self.method}; privacy noise {'included' if self.noise_aware else 'not known'}"))
        return "\n".join([first, *(f"{label:<12} {text}" for label, text in lines)])

    def __repr__(self) -> str:
        return self.to_text()

    def to_dict(self) -> dict[str, Any]:
        """The result as plain numbers, as `mmd-test --json` prints it.

        >>> ka.mmd_test(release, sample).to_dict()["pvalue"]
        0.1499...
        """
        return asdict(self) | {"notes": list(self.notes)}


def result_about(release: ReleaseData, *, notes: Sequence[str] = (), **fields: Any) -> TestResult:
    if derived := ", ".join(one.column.name for one in release.derived):
        notes = (*notes, f"derived columns were left out, as they follow from the measured ones: {derived}")
    if release.statement and release.statement.declared_by:
        notes = (*notes, release.statement.claim)
    if release.statement and release.statement.protects_units:
        notes = (*notes, OF_UNITS)
    about = fields_about([release])
    return TestResult(n_release_points=len(release), notes=tuple(notes), **about, **fields)


def fields_about(releases: Sequence[ReleaseData]) -> dict[str, Any]:
    """The fields of a TestResult about the privacy of releases; N, ε and δ of a single one."""
    one = releases[0].statement if len(releases) == 1 else None
    return {
        "noise_aware": all(release.measurement is not None for release in releases), "n_release_rows": one and one.n_rows,
        "epsilon": one and one.epsilon, "delta": one and one.delta,
    }  # fmt: skip
