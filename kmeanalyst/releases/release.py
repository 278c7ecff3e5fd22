"""The published object: weighted points, the noisy measurement they were made from, and the promise.

A Release answers questions through thin doors into the inference room (imported when asked), so that
this module stays a value: points, weights, measurement, kernel, domain, statement, checked at birth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from kmeanalyst.kernels import Kernel, KernelMean
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases import looks
from kmeanalyst.releases.derived import Derived, at_points, derive, with_derived
from kmeanalyst.releases.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.statement import PrivacyStatement

if TYPE_CHECKING:
    import xarray

    from kmeanalyst.inference.conditional_law import ConditionalLaw
    from kmeanalyst.inference.estimate import Estimate, Estimates
    from kmeanalyst.inference.moments import MatrixEstimate
    from kmeanalyst.inference.random_variable import RandomVariable
    from kmeanalyst.inference.regression import RegressionEstimate
    from kmeanalyst.inference.tabulation import GroupBy
    from kmeanalyst.learning.encoder import Levels, Missing
    from kmeanalyst.learning.labels import Labels
    from kmeanalyst.learning.rows import TaskKind, TrainingData
    from kmeanalyst.representation.thinning import ThinWeights

View = Literal["signed", "probability", "resampled", "fitted"]  # of these, "fitted" for statistics alone
VIEWS: tuple[View, ...] = ("signed", "probability", "resampled")
_OF_THE_MEASUREMENT = (
    "population fit",
    "released mean",
    "fitted mixture",
)  # in the cache: what derived columns have no part in
Question = str | Callable[[pd.DataFrame], Any]


class Release:
    """Weighted points whose kernel mean embedding estimates a table's, with their noise and promise.

    points       DataFrame in natural units and levels, one row per point, one column per domain column.
    weights      (M,) finite, signed in general; used as they are, never normalised silently.
    measurement  the noisy mean with its noise law; None where there is none (points from elsewhere, or rows that the
                 exponential mechanism drew: these have a statement).
    kernel       the kernel of the embedding, on encoded rows.
    domain       the table's columns, with public bounds and levels: what was measured, and what encoded rows are of.
    statement    PrivacyStatement; None where no privacy is promised or known.
    method       how the points were made, e.g. "random-features"; "foreign" for data from elsewhere.
    weight_view  how the weights were fitted: "probability", "bounded", "signed", "published" or "given".
    fit_distance ‖Σ w φ(z) − y‖ to the measurement, as the maker reported it; None without a measurement.
    thinning_error  RKHS distance to the release this one was thinned from; None if it was not. A file does not keep it.
    derived      columns that were computed from others (`transform`), in order; `points` need not have them.
    """

    def __init__(
        self,
        *,
        points: pd.DataFrame,
        weights: Array,
        measurement: Measurement | None,
        kernel: Kernel,
        domain: Domain,
        statement: PrivacyStatement | None,
        method: str = "foreign",
        weight_view: str = "given",
        fit_distance: float | None = None,
        thinning_error: float | None = None,
        derived: Sequence[Derived] = (),
    ) -> None:
        weights = np.array(weights, dtype=np.float64)
        if len(points) == 0 or weights.shape != (len(points),):
            raise ValueError(
                f"a release needs one weight for each of its points, got {len(points)} points and weights of shape "
                f"{weights.shape}. Pass at least one point, and as many weights."
            )
        if not np.isfinite(weights).all():
            raise ValueError(
                "weights must be finite: an infinite or undefined weight means nothing. Remove those points."
            )
        drawn = statement is not None and statement.is_selection
        if measurement is not None and drawn:
            raise ValueError(
                "the release has a measurement, and its statement is of the exponential mechanism, which measures nothing: "
                "the promise is about another release. Pass the statement that belongs to the measurement."
            )
        if (measurement is None) != (statement is None or drawn):
            have, lack = ("measurement", "statement") if statement is None else ("statement", "measurement")
            raise ValueError(
                f"the release has a {have} and no {lack}: a measurement without its promise cannot be trusted, and a promise "
                "is about a measurement. Pass both, or neither."
            )
        domain.check_has_columns(points, what="the frame of points")
        weights.setflags(write=False)
        measured = points[list(domain.names)].reset_index(drop=True)
        self._frame, self.columns = at_points(measured, domain, derived)
        self._encoded = domain.encode(measured)
        self._encoded.setflags(write=False)
        self.weights = weights
        self.measurement = measurement
        self.kernel = kernel
        self.domain = domain
        self.derived = tuple(derived)
        self.statement = statement
        self.method = method
        self.weight_view = weight_view
        self.fit_distance = fit_distance
        self.thinning_error = thinning_error
        self.cache: dict[Any, Any] = {}  # what questions have prepared for later ones; never part of the value

    # ------------------------------------------------------------------ the points, in several forms

    def __len__(self) -> int:
        """M, the number of points."""
        return len(self.weights)

    @property
    def encoded_points(self) -> Array:
        """The points as kernels see them, (M, d) float64, read-only."""
        return self._encoded

    @property
    def points(self) -> xarray.Dataset:
        """The points: one variable per column over the dimension "point", natural units and levels.

        A missing level, text or date is "" or NaT; a missing number or boolean is NaN. The arrays are read-only.
        """
        return self._dataset.copy()  # of the frame around the arrays: a caller's own variables stay the caller's

    @cached_property
    def _dataset(self) -> xarray.Dataset:
        import xarray

        points = xarray.Dataset({name: ("point", _plain_array(self._frame[name])) for name in self.columns.names})
        for one in self.derived:
            points[one.column.name].attrs["expression"] = one.expression
        for variable in points.values():
            variable.values.setflags(write=False)
        return points

    @property
    def embedding(self) -> KernelMean:
        """Σ w_m k(z_m, ·), with the weights as released."""
        return KernelMean(self.kernel, self.encoded_points, self.weights)

    def view_weights(self, view: View = "signed") -> Array:
        """Weights (M,) of a view: "signed" as released, "probability" the nearest probability weights.

        The nearest ones in RKHS distance: they are the released weights where these are probabilities.
        """
        if view == "signed":
            return self.weights
        if view == "probability":
            return self._probability_weights
        raise ValueError(
            f'view must be "signed" or "probability" here, got {view!r}: resampled rows have no weights of their own, and '
            "the fitted population has other rows."
        )

    @cached_property
    def _probability_weights(self) -> Array:
        from kmeanalyst.representation.reweight import nearest_probability_weights

        weights = self.weights
        if self.measurement is None and weights.min() >= 0 and weights.sum() > 0:
            weights = (
                weights / weights.sum()
            )  # counts from elsewhere, say: the nearest probability would be a point or two
        return nearest_probability_weights(self.kernel, self.encoded_points, weights)

    @property
    def is_probability(self) -> bool:
        """Whether the released weights are non-negative and sum to one."""
        return bool(self.weights.min() >= 0 and abs(self.weights.sum() - 1) < 1e-9)

    def to_frame(
        self, view: View = "signed", *, rows: int | None = None, rng: np.random.Generator | int | None = None
    ) -> pd.DataFrame:
        """Columns and a "weight" column.

        view   "signed": as released. "probability": the nearest probability weights.
               "resampled": `rows` rows (M by default) of equal weight 1/rows, drawn from the latter.
        """
        if view == "resampled":
            frame = self.resample(len(self) if rows is None else rows, rng=rng)
            return frame.assign(weight=1 / len(frame))
        if rows is not None:
            raise ValueError(f'rows goes with view="resampled": the {view} view has the {len(self)} released points.')
        return self._frame.assign(weight=self.view_weights(view))

    def resample(self, n: int, *, rng: np.random.Generator | int | None = None) -> pd.DataFrame:
        """n rows of equal weight: systematic resampling of the probability view (Kitagawa 1996), shuffled.

        Each point appears ⌊n·p⌋ or ⌈n·p⌉ times, so that the rows stay as near the view as n rows can.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}: name how many rows to draw.")
        rng = np.random.default_rng(rng)
        cumulative = np.cumsum(self.view_weights("probability"))
        drawn = np.searchsorted(cumulative / cumulative[-1], (np.arange(n) + rng.random()) / n, side="right")
        return self._frame.iloc[rng.permutation(np.minimum(drawn, len(self) - 1))].reset_index(drop=True)

    def decode(self, rows: Array) -> pd.DataFrame:
        """Encoded rows (n, d) in natural units and levels, derived columns computed from them."""
        return with_derived(self.domain.decode(rows), self.domain, self.derived)[0]

    def transform(self, expressions: Mapping[str, str]) -> Release:
        """A release with further columns, computed from those it has: {"bmi": "mass / height**2", ...}.

        expressions   name → expression over the columns there are, those before it among them.
        Returns       Release of the same points, weights and measurement. The promise is the same too: this is
                      post-processing. A question about a derived column is one about its expression, value and error;
                      tests against samples and other releases look at the measured columns alone.
        Errors        ValueError for a name that is taken, an expression that does not fit, and one that is infinite or
                      undefined at a point. Where a missing cell makes it undefined, its cell is missing.
        """
        derived = derive(self._frame, self.columns, expressions)
        release = Release(
            points=self._frame, weights=self.weights, measurement=self.measurement, kernel=self.kernel,
            domain=self.domain, statement=self.statement, method=self.method, weight_view=self.weight_view,
            fit_distance=self.fit_distance, thinning_error=self.thinning_error, derived=(*self.derived, *derived),
        )  # fmt: skip
        release.cache.update((key, self.cache[key]) for key in _OF_THE_MEASUREMENT if key in self.cache)
        return release

    def thin(
        self, n: int, *, weights: ThinWeights = "probability", rng: np.random.Generator | int | None = 0
    ) -> Release:
        """A release with n of the points, as near in RKHS distance as can be found: see `kmeanalyst.thin`."""
        from kmeanalyst.representation.thinning import thin

        return thin(self, n, weights=weights, rng=rng)

    def to_xarray(self) -> xarray.Dataset:
        """The points and their weights as one Dataset."""
        return self.points.assign(weight=("point", np.array(self.weights)))

    def to_netcdf(self, path: str | Path) -> None:
        """Export points and weights to NetCDF (an export: the file of record is .kme)."""
        from kmeanalyst.releases.export import write_netcdf

        write_netcdf(self, path)

    def to_sklearn(
        self,
        target: str,
        *,
        columns: Sequence[str] | None = None,
        view: View = "probability",
        size: float | None = None,
        task: TaskKind | None = None,
        levels: Levels = "onehot",
        missing: Missing = "mark",
        labels: Labels = "released",
        rng: np.random.Generator | int | None = 0,
    ) -> TrainingData:
        """(X, y, sample_weight) for scikit-learn's own fit; `kmeanalyst.fit` also sees to what an estimator can use.

        target   the column to predict.
        columns  what to predict it from; by default all but the target and those it is computed from, or from it.
        view     "signed" (many estimators go silently wrong on these: `kmeanalyst.weight_support`), "probability",
                 "resampled" (rows of equal weight) or "fitted" (the population behind error bars).
        size     what the weights sum to; by default what the points are worth, (Σp)²/Σp² (Kish 1965).
        task     "classification" or "regression"; by default numbers and dates are regressed.
        levels   "onehot", "cells", "codes" or "natural"; missing "mark" or "nan": see `DomainEncoder`.
        labels   "released", the points' own; "measured", all that a point can have, each by its chance; "drawn", of rows
                 drawn from the measurement in the points' place, for numbers: as `kmeanalyst.fit` takes them where it can.
        Returns  X a DataFrame of features, y the target in natural units and levels, sample_weight without zeros.
        """
        from kmeanalyst.learning.rows import to_sklearn

        return to_sklearn(
            self, target, columns=columns, view=view, size=size, task=task, levels=levels, missing=missing, labels=labels,
            rng=rng,
        )  # fmt: skip

    def write(self, path: str | Path) -> None:
        """Write the release as a .kme file; the file appears whole or not at all."""
        from kmeanalyst.releases.file import write_release

        write_release(self, path)

    # ------------------------------------------------------------------ questions, answered in the inference room

    def expectation(self, question: Question, *, where: Question | None = None, view: View | None = None) -> Estimate:
        """E[question], an expression over column names or a function of a DataFrame, with its error bar."""
        from kmeanalyst.inference.expectation import expectation

        return expectation(self, question, where=where, view=view)

    def __getitem__(self, columns: str | list[str]) -> RandomVariable:
        """A column as a random variable, or a list of them as one of several components: see `variable`."""
        return self.variable(columns)

    __iter__ = None  # M weighted points, and a column is asked for by its name: neither is gone through

    def __contains__(self, column: object) -> bool:
        """Whether there is a column of this name."""
        return column in self.domain.names

    def variable(self, columns: str | Sequence[str], *, view: View | None = None) -> RandomVariable:
        """A column as a random variable, to calculate with and ask questions of; several as its components.

        view   "signed" (as released; the default) or "probability".
        """
        from kmeanalyst.inference.random_variable import variable_of

        return variable_of(self, columns, view)

    def mean(self, column: str, *, where: Question | None = None, view: View | None = None) -> Estimate:
        """The mean of a column of numbers, with its error bar."""
        from kmeanalyst.inference.expectation import mean

        return mean(self, column, where=where, view=view)

    def probability(self, condition: Question, *, where: Question | None = None, view: View | None = None) -> Estimate:
        """The probability of a condition such as "age > 50 and sex == 'Male'", with its error bar."""
        from kmeanalyst.inference.expectation import probability

        return probability(self, condition, where=where, view=view)

    def expectations(
        self, questions: Sequence[Question], *, where: Question | None = None, view: View | None = None
    ) -> Estimates:
        """E[question] for each of many questions: a thousand cost little more than one."""
        from kmeanalyst.inference.expectation import expectations

        return expectations(self, questions, where=where, view=view)

    def ratio(
        self, numerator: Question, denominator: Question, *, where: Question | None = None, view: View | None = None
    ) -> Estimate:
        """E[numerator] / E[denominator], with its error bar."""
        from kmeanalyst.inference.expectation import ratio

        return ratio(self, numerator, denominator, where=where, view=view)

    def var(self, column: Question, *, where: Question | None = None, view: View | None = None) -> Estimate:
        """The variance of a column of numbers, or of an expression, with its error bar."""
        from kmeanalyst.inference.moments import var

        return var(self, column, where=where, view=view)

    def std(self, column: Question, *, where: Question | None = None, view: View | None = None) -> Estimate:
        """The standard deviation of a column of numbers, or of an expression, with its error bar."""
        from kmeanalyst.inference.moments import std

        return std(self, column, where=where, view=view)

    def cov(
        self, columns: Sequence[str] | None = None, *, where: Question | None = None, view: View | None = None
    ) -> MatrixEstimate:
        """Covariances with error bars; of all numbers and booleans that cannot be missing by default."""
        from kmeanalyst.inference.moments import cov

        return cov(self, columns, where=where, view=view)

    def corr(
        self, columns: Sequence[str] | None = None, *, where: Question | None = None, view: View | None = None
    ) -> MatrixEstimate:
        """Pearson correlations with error bars; of all numbers and booleans that cannot be missing by default."""
        from kmeanalyst.inference.moments import corr

        return corr(self, columns, where=where, view=view)

    def cdf(
        self,
        column: Question,
        x: float | Sequence[float],
        *,
        where: Question | None = None,
        view: View | None = None,
    ) -> Estimate | Estimates:
        """P(column <= x): an Estimate for a number, Estimates for a list."""
        from kmeanalyst.inference.distribution import cdf

        return cdf(self, column, x, where=where, view=view)

    def quantile(
        self,
        column: Question,
        q: float | Sequence[float],
        *,
        where: Question | None = None,
        view: View | None = None,
    ) -> Estimate | Estimates:
        """The smallest value at which the probability view's distribution function reaches q.

        An Estimate for a number, Estimates for a list; its interval is not symmetric and stays within the bounds.
        """
        from kmeanalyst.inference.distribution import quantile

        return quantile(self, column, q, where=where, view=view)

    def histogram(
        self,
        column: str,
        *,
        bins: int | Sequence[float] | None = None,
        where: Question | None = None,
        view: View | None = None,
        level: float = 0.95,
    ) -> pd.DataFrame:
        """Probabilities of a column's groups with error bars: levels, atoms, ranges between public edges, or bins."""
        from kmeanalyst.inference.tabulation import histogram

        return histogram(self, column, bins=bins, where=where, view=view, level=level)

    def table(
        self,
        a: str,
        b: str | None = None,
        *,
        where: Question | None = None,
        view: View | None = None,
        level: float = 0.95,
    ) -> pd.DataFrame:
        """Probabilities of pairs of groups of two columns with error bars; ["probability"].unstack() is the crosstab."""
        from kmeanalyst.inference.tabulation import table

        return table(self, a, b, where=where, view=view, level=level)

    def groupby(
        self, column: str, *, where: Question | None = None, view: View | None = None, level: float = 0.95
    ) -> GroupBy:
        """Statistics for each group of a column: groupby("city").mean("age") is a DataFrame with error bars."""
        from kmeanalyst.inference.tabulation import GroupBy

        return GroupBy(self, column, where, view, level)

    def regression(
        self, target: Question, predictors: Sequence[str], *, where: Question | None = None, view: View | None = None
    ) -> RegressionEstimate:
        """Weighted least squares of a target on predictors and an intercept, each coefficient with its error bar."""
        from kmeanalyst.inference.regression import regression

        return regression(self, target, predictors, where=where, view=view)

    def conditional_expectation(
        self,
        question: Question,
        *,
        given: Mapping[str, Any] | pd.DataFrame,
        where: Question | None = None,
        view: View | None = None,
        kernel: Kernel | str | None = None,
    ) -> Estimate | Estimates:
        """E[question | columns have these values], with its error bar: given={"age": 40}, or a list of values.

        Smoothed over neighbouring values; `where` is exact. An Estimate for single values, Estimates for lists.
        """
        from kmeanalyst.inference.conditional_mean import conditional_expectation

        return conditional_expectation(self, question, given=given, where=where, view=view, kernel=kernel)

    def conditional_law(
        self,
        *,
        given: Mapping[str, Any],
        where: Question | None = None,
        view: View | None = None,
        kernel: Kernel | str | None = None,
    ) -> ConditionalLaw:
        """The law of the rows given values of some columns: weights on the points, to ask for means and quantiles."""
        from kmeanalyst.inference.conditional_law import conditional_law

        return conditional_law(self, given=given, where=where, view=view, kernel=kernel)

    @property
    def is_rehearsal(self) -> bool:
        """Whether the noise came from a seed, so that the release is NOT PRIVATE."""
        return self.statement is not None and self.statement.is_rehearsal

    @property
    def residual_over_noise(self) -> float | None:
        """‖Σ w φ(z) − y‖ / τ√F, by the recorded fit_distance; None if that is not known.

        1 for the table's own mean; less for a fit that follows the noise; more for points that leave something out.
        """
        if self.measurement is None or self.fit_distance is None:
            return None
        return self.fit_distance / (self.measurement.noise_scale * len(self.measurement.vector) ** 0.5)

    # ------------------------------------------------------------------ looks

    def summary(self) -> dict[str, str]:
        """What the release is, line by line: label → text."""
        return looks.summary(self)

    def __repr__(self) -> str:
        return looks.text(self)

    def _repr_html_(self) -> str:
        return looks.html(self)


def _plain_array(series: pd.Series) -> Array:
    """A column as a plain numpy array: text for levels and texts ("" if missing), NaN for missing numbers and booleans."""
    if isinstance(series.dtype, pd.CategoricalDtype | pd.StringDtype):
        return series.astype(object).where(series.notna(), "").to_numpy().astype(str)
    if series.dtype.kind == "M":
        return series.to_numpy()
    return (
        series.to_numpy(dtype=float, na_value=np.nan)
        if series.isna().any()
        else series.to_numpy(dtype=_numpy_type(series))
    )


def _numpy_type(series: pd.Series) -> Any:
    return {"Int64": np.int64, "boolean": np.bool_}.get(str(series.dtype), series.dtype)


def from_frame(
    frame: pd.DataFrame, *, weight: str = "weight", kernel: Kernel | str | None = None, domain: Domain | None = None
) -> Release:
    """Weighted data from elsewhere as a release without measurement: no privacy part in any answer.

    frame    columns and a weight column; weights may be signed, and are used as they are.
    weight   the name of the weight column.
    kernel   Kernel or its text; the table kernel by default.
    domain   public columns and bounds; drafted from the frame itself by default.
    """
    from kmeanalyst.releases.draft import draft_domain
    from kmeanalyst.releases.kernel_choice import kernel_from_spec

    if weight not in frame.columns:
        raise ValueError(
            f"no weight column {weight!r}; the columns are {list(frame.columns)}. Name the one with the weights."
        )
    columns = frame.drop(columns=[weight])
    domain = domain or draft_domain(columns).domain
    return Release(
        points=domain.decode(domain.encode(columns)),
        weights=frame[weight].to_numpy(dtype=float),
        measurement=None,
        kernel=kernel_from_spec(kernel, domain),
        domain=domain,
        statement=None,
    )
