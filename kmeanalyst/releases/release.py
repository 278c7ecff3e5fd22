"""The published object as a value: weighted points, the noisy measurement they were made from, and the guarantee.

`ReleaseData` uses lower packages only. `kmeanalyst.release.Release` is this value with one line for each question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack

import numpy as np
import pandas as pd

from kmeanalyst.kernels import ChosenMargins, Kernel, KernelMean, Margins
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.lazy import refuse_unknown, spelled_out
from kmeanalyst.releases.declared_statement import DeclaredStatement, Statement, declared_lines
from kmeanalyst.releases.derived import Derived, derive, with_derived
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.memo import Memoised, kept, memo
from kmeanalyst.releases.rules.violations import contradicted
from kmeanalyst.releases.statement import METHOD, guarantee_lines
from kmeanalyst.releases.texts import shortened

if TYPE_CHECKING:
    import xarray

View = Literal["signed", "probability", "resampled", "fitted"]  # of these, "fitted" for statistics alone
VIEWS: tuple[View, ...] = ("signed", "probability", "resampled")
Question = str | Callable[[pd.DataFrame], Any]
Condition = Question | None  # on the rows that are asked of; None for all
_MOST_NAMED = 24  # pairs and larger sets that a summary names
_WIDEST = 40  # characters that names are padded to: one long name makes no other line longer
MISFIT = 2.0  # residual over noise, above which rows leave out a part of what was measured
_OF_THE_POINTS = ("posterior", "point features", "probability weights")  # derived columns keep these


class Making(TypedDict, total=False):
    """How the points and weights of a release were made: fields of `ReleaseData`, and explained there."""

    method: str
    weight_view: str
    fit_distance: float | None
    thinning_error: float | None


_FIELDS = ("weights", "measurement", "kernel", "domain", "statement", "derived", *Making.__annotations__)


class ReleaseData(Memoised):
    """Weighted points whose kernel mean embedding estimates a table's, with their noise and guarantee.

    points       DataFrame in natural units and levels, one row per point, one column per domain column.
    weights      (M,) finite, signed in general; used as they are, never normalised silently.
    measurement  the noisy mean and its noise; None for points from another source, and for rows that the exponential
                 mechanism drew (these have a statement).
    kernel       the kernel of the embedding, on encoded rows.
    domain       the measured columns of the table, with public bounds and levels; encoded rows have these columns.
    statement    PrivacyStatement, or DeclaredStatement of what others measured; None where no guarantee is known.
    method       how the points were made, e.g. "random-features"; "foreign" for data from another source.
    weight_view  how the weights were fitted: "probability", "bounded", "signed", "published" or "given".
    fit_distance ‖Σ w φ(z) − y‖ to the measurement, as the maker reported it; None without a measurement.
    thinning_error  RKHS distance to the release this one was thinned from; None if it was not. A file does not store it.
    derived      columns that were computed from others (`transform`), in order; `points` need not have them.

    >>> release = ka.read_release("adult.kme")
    >>> len(release), release.domain.names[:3], release.is_probability, release.is_rehearsal
    (300, ('age', 'education-num', 'marital-status'), True, False)
    >>> release.frame[["age", "sex"]].head(1), release.encoded_points.shape
    (   age   sex
    0   93  Male, (300, 7))
    >>> release.points["age"].values[:3], release.to_xarray().sizes["point"], release.embedding.squared_norm() > 0
    (array([93, 65, 35]), 300, True)
    >>> release.decode(release.encoded_points[:2])["age"].tolist(), release.replaced(weights=release.weights / 2).is_probability
    ([93, 65], False)
    >>> release.residual_over_noise, release.summary()["privacy"]
    (1.057..., 'ε = 1, δ = 1e-06 (neighbours: replace-one; ρ = 0.028)')
    >>> release  # what it is and guarantees
    kmeanalyst.Release
     table       6,000 private rows
     privacy     ε = 1, δ = 1e-06 (neighbours: replace-one; ρ = 0.028)
     attack      of 100 guesses which of two rows is in the table at most 55 are right (μ = 0.237, Gaussian differential privacy)
     mechanism   discrete gaussian, sensitivity 0.000333, analytic calibration
    ...
    """

    @spelled_out(Making, method="foreign", weight_view="given")
    def __init__(
        self, *, points: pd.DataFrame, weights: Array, measurement: Measurement | None, kernel: Kernel, domain: Domain,
        statement: Statement | None, derived: Sequence[Derived] = (), **making: Unpack[Making],
    ) -> None:  # fmt: skip
        refuse_unknown(ReleaseData.__init__, making)
        method = making.get("method", "foreign")
        weights = np.array(weights, dtype=np.float64)
        if len(points) == 0 or weights.shape != (len(points),):
            raise ValueError(
                f"a release needs one weight for each of its points, got {len(points)} points and weights of shape "
                f"{weights.shape}. Pass at least one point, and as many weights."
            )
        if not np.isfinite(weights).all():
            raise ValueError("weights must be finite: an infinite or undefined weight means nothing. Remove those points.")
        drawn = statement is not None and statement.is_selection
        if measurement is not None and drawn:
            raise ValueError(
                "the release has a measurement, and its statement is of the exponential mechanism, which measures nothing: "
                "the guarantee is about another release. Pass the statement that belongs to the measurement."
            )
        if (measurement is None) != (statement is None or drawn):
            have, lack = ("measurement", "statement") if statement is None else ("statement", "measurement")
            raise ValueError(
                f"the release has a {have} and no {lack}: a measurement without its guarantee cannot be trusted, and a "
                "guarantee is about a measurement. Pass both, or neither."
            )
        if METHOD.fullmatch(method) is None:
            raise ValueError(
                f"method must be 1 to 60 lower-case letters, digits and hyphens, got {method!a:.80}: it is shown in the "
                'middle of a sentence, where other texts could deceive. Name it in a word, such as "random-features".'
            )
        domain.check_has_columns(points, what="the frame of points")
        weights.setflags(write=False)
        read = points[list(domain.names_read)].reset_index(drop=True)
        measured = domain.completed(read)[list(domain.names)]
        self._frame, self.columns = with_derived(measured, domain, derived, check=True)
        self._encoded = domain.encode(measured)
        self._encoded.setflags(write=False)
        self.weights = weights
        self.measurement = measurement
        self.kernel = kernel
        self.domain = domain
        self.derived = tuple(derived)
        self.statement = statement
        self.method = method
        self.weight_view = making.get("weight_view", "given")
        self.fit_distance = making.get("fit_distance")
        self.thinning_error = making.get("thinning_error")

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def encoded_points(self) -> Array:
        """The points as kernels see them, (M, d) float64, read-only."""
        return self._encoded

    @property
    def frame(self) -> pd.DataFrame:
        """The points in natural units and levels, derived columns among them: (M, d), a copy."""
        return self._frame.copy(deep=False)

    @property
    def points(self) -> xarray.Dataset:
        """The points: one variable per column over the dimension "point", natural units and levels.

        A missing level, text or date is "" or NaT; a missing number or boolean is NaN. The arrays are read-only.
        """
        import xarray

        def make() -> xarray.Dataset:
            points = xarray.Dataset({name: ("point", plain_array(self._frame[name])) for name in self.columns.names})
            for one in self.derived:
                points[one.column.name].attrs["expression"] = one.expression
            for variable in points.values():
                variable.values.setflags(write=False)
            return points

        return kept(self, "dataset", make).copy()  # shares the arrays; variables that a caller adds stay the caller's

    @property
    def embedding(self) -> KernelMean:
        """Σ w_m k(z_m, ·), with the weights as released."""
        return KernelMean(self.kernel, self.encoded_points, self.weights)

    @property
    def is_probability(self) -> bool:
        """Whether the released weights are non-negative and sum to one."""
        return bool(self.weights.min() >= 0 and abs(self.weights.sum() - 1) < 1e-9)

    def replaced(self, **changes: Any) -> Self:
        """A release of the same class with some fields replaced, checked again.

        changes   any of the constructor's fields. Weights that are given are not fitted: their view is "given", unless named.
        """
        fields = {name: getattr(self, name) for name in _FIELDS} | {"points": self._frame}
        given: dict[str, Any] = {"weight_view": "given"} if "weights" in changes else {}
        return type(self)(**(fields | given | changes))

    def decode(self, rows: Array) -> pd.DataFrame:
        """Encoded rows (n, d) in natural units and levels, derived columns computed from them."""
        return with_derived(self.domain.decode(rows), self.domain, self.derived)[0]

    def transform(self, expressions: Mapping[str, str]) -> Self:
        """A release with further columns, computed from those it has: {"bmi": "mass / height**2", ...}.

        expressions   name → expression over the existing columns and the new ones before it.
        Returns       Release of the same points, weights and measurement, with the same guarantee: this is
                      post-processing. A question about a derived column is one about its expression, value and error;
                      tests against samples and other releases use the measured columns alone.
        Errors        ValueError for a name that is taken, an expression that does not fit, and one that is infinite or
                      undefined at a point. Where a missing cell makes it undefined, its cell is missing.

        >>> release.transform({"yearly hours": "`hours-per-week` * 52"}).mean("yearly hours")
        `yearly hours`: 2126 ± 32 (95 %: 2063 to 2190; privacy 19, sampling 8, resolution 24) [1 note]
        """
        derived = derive(self._frame, self.columns, expressions)
        release = self.replaced(derived=(*self.derived, *derived))
        memo(release).update((key, memo(self)[key]) for key in _OF_THE_POINTS if key in memo(self))
        return release

    def to_xarray(self) -> xarray.Dataset:
        """The points and their weights as one Dataset."""
        return self.points.assign(weight=("point", np.array(self.weights)))

    __iter__ = None  # it would be unclear whether points or columns are meant

    def __contains__(self, column: object) -> bool:
        return column in self.domain.names

    @property
    def is_rehearsal(self) -> bool:
        """Whether the noise came from a seed, so that the release is NOT PRIVATE."""
        return self.statement is not None and self.statement.is_rehearsal

    @property
    def residual_over_noise(self) -> float | None:
        """‖Σ w φ(z) − y‖ / τ√F, by the recorded fit_distance; None if that is not known.

        1 for the table's own mean; less for a fit that follows the noise; more for points that miss a part of the table.
        """
        if self.measurement is None or self.fit_distance is None:
            return None
        return self.fit_distance / (self.measurement.noise_scale * len(self.measurement.vector) ** 0.5)

    def summary(self) -> dict[str, str]:
        """The release in a few lines: label → text."""
        weights = self.weights
        lines = {
            "points": f"{len(self):,} weighted rows × {len(self.columns)} columns ({made_by(self)}, {self.weight_view} weights)",
            "weights": f"Σw = {weights.sum():.4g}, Σ|w| = {np.abs(weights).sum():.4g}, {(weights < 0).mean():.0%} negative",
        }
        if self.thinning_error is not None:
            lines["thinned"] = f"at RKHS distance {self.thinning_error:.3g} from the release it was thinned from"
        if self.derived:
            names = ", ".join(one.column.name for one in self.derived)
            lines["derived"] = f"{names}: computed from the other columns (post-processing: the guarantee is unchanged)"
        if self.domain.rules:
            broken = contradicted(self.domain, self.measurement)
            names = "; ".join(one.describe() for one in broken)
            lines["rules"] = f"{len(self.domain.rules)}" + (f", contradicted by the measurement: {names}" if names else "")
        if self.statement is None:
            return lines | {"privacy": "none known: weighted points without a measurement"}
        if self.residual_over_noise is not None:
            why = "; points are few, or rules or bounds do not hold" * (self.residual_over_noise > MISFIT)
            lines["fit"] = f"residual {self.residual_over_noise:.3g} of the noise's size{why}"
        if self.measurement is not None and isinstance(self.measurement.feature_map, MarginFeatures):
            lines |= self._counted_lines(self.measurement.feature_map.sets)
        said = self.statement
        stated = declared_lines(said) if isinstance(said, DeclaredStatement) else guarantee_lines(said)
        return stated | self._noise_lines(said) | lines

    def _counted_lines(self, sets: tuple[tuple[int, ...], ...]) -> dict[str, str]:
        """Which pairs and larger sets of columns have a table each, the larger sets first; some dozens are named."""
        possible, pairs = math.comb(len(self.domain), 2), sum(len(columns) == 2 for columns in sets)
        larger_first = sorted(sets, key=len, reverse=True)
        named = [" × ".join(shortened(self.domain.names[j], 60) for j in own) for own in larger_first]
        more = f", and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        counts = f"{pairs} of {possible} pairs of columns, larger sets: {len(sets) - pairs}"
        return {"counted": counts + f"; {', '.join(named[:_MOST_NAMED])}{more}" * bool(named)}

    def _noise_lines(self, statement: Statement) -> dict[str, str]:
        scale = f"kernel scale {self.kernel.bound:g}"
        if self.measurement is None:
            assert not isinstance(statement, DeclaredStatement)  # checked by the constructor
            return {
                "draw": f"one of {statement.n_databases:,} databases, P ∝ exp(−distance/{statement.score_scale:.3g}): "
                f"with probability 95 % at most {statement.excess():.3g} further from the table than the nearest one ({scale})"
            }
        variances, noise = self.measurement.variances, f"{self.measurement.noise_scale:.3g}"
        if self.measurement.relative_noise is not None:
            noise = f"{variances.min() ** 0.5:.3g} to {noise}"
        return {"noise": f"{noise} on each of {len(variances):,} features (total {variances.sum() ** 0.5:.3g}, {scale})"}

    def _column_lines(self) -> list[tuple[str, str]]:
        lines = [(column.name, column.describe()) for column in self.domain.columns]
        return lines + [(one.column.name, one.describe()) for one in self.derived]

    def __repr__(self) -> str:
        width = min(_WIDEST, max(len(name) for name in self.columns.names))
        columns = [f"  {shortened(name, 60):<{width}}  {extent}" for name, extent in self._column_lines()]
        lines = [f"  {label:<11} {text}" for label, text in self.summary().items()]
        rules = [f"  {rule.named(number)}" for number, rule in enumerate(self.domain.rules, 1)]
        return "\n".join(["kmeanalyst.Release", *lines, f"  columns     {len(columns)}", *[f"  {c}" for c in columns], *rules])

    def _repr_html_(self) -> str:
        return (
            f"<div><strong>kmeanalyst.Release</strong>{_html_table(list(self.summary().items()))}"
            f"<details><summary>{len(self.columns)} columns</summary>{_html_table(self._column_lines())}</details></div>"
        )


def made_by(release: ReleaseData) -> str:
    """How the points were made, in words: by margins where tables were measured, which files call random features too."""
    if release.method != "random-features" or not isinstance(release.kernel, Margins):
        return release.method
    if isinstance(release.statement, DeclaredStatement):
        return "tables of others"
    return "adaptive margins" if isinstance(release.kernel, ChosenMargins) else "margins"


def _html_table(rows: list[tuple[str, str]]) -> str:
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(a)}</th><td style="text-align:left">{escape(b)}</td></tr>' for a, b in rows
    )
    return f"<table>{cells}</table>"


def plain_array(series: pd.Series) -> Array:
    """A column as a plain numpy array: text for levels and texts ("" if missing), NaN for missing numbers and booleans."""
    if isinstance(series.dtype, pd.CategoricalDtype | pd.StringDtype):
        return series.astype(object).where(series.notna(), "").to_numpy().astype(str)
    if series.dtype.kind == "M":
        return series.to_numpy()
    if series.isna().any():
        return series.to_numpy(dtype=float, na_value=np.nan)
    return series.to_numpy(dtype={"Int64": np.int64, "boolean": np.bool_}.get(str(series.dtype), series.dtype))
