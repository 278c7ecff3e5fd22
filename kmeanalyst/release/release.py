"""Release, the published object: what it is asked, its views and files, and how one is read or made from weighted data.

The value is `kmeanalyst.releases.release.ReleaseData`. Its methods are functions of lower floors, which have the documentation;
plots, models and pages are imported on first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kmeanalyst.inference import claims as claimed
from kmeanalyst.inference.contingency import rates
from kmeanalyst.inference.contingency.contingency_test import contingency_test
from kmeanalyst.inference.draws import draws as drawing
from kmeanalyst.inference.questions import conditional, moments, quantiles, tables
from kmeanalyst.inference.questions import expectation as means
from kmeanalyst.inference.questions.tables import GroupBy
from kmeanalyst.inference.regression import glm as regressions
from kmeanalyst.kernels import Kernel
from kmeanalyst.lazy import instead_of
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.releases.release import Condition, ReleaseData, View
from kmeanalyst.sources.tables import as_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from kmeanalyst.inference.variables.random_variable import RandomVariable
    from kmeanalyst.learning.rows.encoder import Encoding, Missing
    from kmeanalyst.learning.rows.labels import Labels
    from kmeanalyst.learning.rows.training_rows import TrainingData
    from kmeanalyst.releases.declared_statement import Statement
    from kmeanalyst.representation.thinning import ThinWeights
    from kmeanalyst.representation.wanted import Points


_POINTS = "it has no rows; release.to_frame() are its weighted points, release.resample(n) n rows of equal weight"
_ANSWERS = "ask release.mean(column), release.std(column), release.quantile(column, [.25, .5, .75]); print(release) lists columns"
_BY_WHERE = "every question takes where=, as in release.mean('age', where=\"sex == 'Female'\")"
_INSTEAD = {  # of what a DataFrame has
    **dict.fromkeys(("head", "tail", "sample", "iloc", "loc", "values", "iterrows", "to_csv", "to_parquet"), _POINTS),
    **dict.fromkeys(("describe", "summarize", "info", "agg", "min", "max"), _ANSWERS),
    **dict.fromkeys(("query", "filter", "drop", "dropna"), _BY_WHERE),
    "shape": "len(release) points, len(release.columns) columns; release.statement.n_rows is the size of the private table",
    **dict.fromkeys(("save", "to_file", "dump"), "release.write(\"NAME.kme\") writes its file"),
    "dtypes": "release.columns has the kind and the bounds of each column",
    "to_pandas": "release.to_frame() are the weighted points", "to_polars": "polars.DataFrame(release) are the weighted points",
    "assign": 'release.transform({"name": "expression"}) adds columns',
    **dict.fromkeys(("isna", "isnull", "notna", "fillna"), 'missing(column) is a condition: release.probability("missing(age)")'),
    **dict.fromkeys(("unique", "nunique", "mode"), "release.columns has levels, release.value_counts(column) their shares"),
    **dict.fromkeys(("apply", "map", "merge", "join", "sort_values", "index", "size"), _POINTS),
    "hist": "release.histogram(column) is the table, release.plot(column) the picture",
    "pivot_table": "release.groupby(column).mean(other), or release.table(column, other)",
    **dict.fromkeys(("cite", "citation"), "release.methods_text() is a paragraph for papers"),
    **dict.fromkeys(("ols", "lm", "logit", "regress"), "release.glm(formula, family=...) fits linear, logistic and others"),
    **dict.fromkeys(("ttest", "t_test", "diff"), "release.mean(x, where=a) - release.mean(x, where=b) has its error and interval"),
    "correlations": "release.corr([columns]) has them of numbers, ka.associations(release) of every pair of columns",
}  # fmt: skip


class Release(ReleaseData):
    __doc__ = ReleaseData.__doc__  # the fields are described once, where they are

    expectation = means.expectation
    expectations = means.expectations
    mean, sum, count = means.mean, means.total, means.count
    probability = means.probability
    var, std, cov, corr = moments.var, moments.std, moments.cov, moments.corr
    cdf, quantile, median = quantiles.cdf, quantiles.quantile, quantiles.median
    histogram, table = tables.histogram, tables.table
    value_counts = crosstab = tables.table  # pandas' names of it
    conditional_expectation = conditional.conditional_expectation
    odds_ratio, standardised, survival = rates.odds_ratio, rates.standardised, rates.survival
    contingency = contingency_test
    draws, replicates, claims = drawing.draws, drawing.replicates, claimed.claims
    glm = regressions.glm

    def __getitem__(self, columns: str | list[str]) -> RandomVariable:
        """A column as a random variable, or a list of them as one of several components: see `variable`."""
        return self.variable(columns)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.columns)

    if not TYPE_CHECKING:  # for which every name would be an attribute

        def __getattr__(self, name: str) -> Any:
            """AttributeError that says what to use in place of what a DataFrame has."""
            named = {name: f"release[{name!r}] is the column"} if name in self.__dict__.get("columns", ()) else {}
            return instead_of("a release", _INSTEAD | named)(self, name)

    def variable(self, columns: str | Sequence[str], *, view: View | None = None) -> RandomVariable:
        """A column as a random variable, to calculate with and ask questions of; several as its components.

        view   as in `expectation`: "fitted" by default where something was measured.

        >>> release.variable(["age", "hours-per-week"])  # or release["age"] for one
        age: 38.60 ± 0.43 (16,000 points)
        `hours-per-week`: 40.89 ± 0.60 (16,000 points)
        """
        from kmeanalyst.inference.variables.random_variable import variable_of

        return variable_of(self, columns, view)

    def groupby(self, column: str, *, where: Condition = None, view: View | None = None, level: float = 0.95) -> GroupBy:
        """Statistics for each group of a column: groupby("city").mean("age") is a DataFrame with error bars.

        >>> release.groupby("sex").mean("hours-per-week")[["value", "standard_error"]]
                    value  standard_error
        sex
        Female  38.612230        1.512282
        Male    42.023168        0.852545
        """
        return GroupBy(self, column, where, view, level)

    def to_frame(
        self, view: View = "signed", *, rows: int | None = None, rng: np.random.Generator | int | None = None
    ) -> pd.DataFrame:
        """Columns and a "weight" column.

        view   "signed": as released. "probability": the nearest probability weights.
               "resampled": `rows` rows (M by default) of equal weight 1/rows, drawn from the probability view.
               "fitted": the rows and weights that default answers are sums over, some of them perhaps negative.

        >>> release.to_frame("probability")[["age", "sex", "weight"]].head(2)
           age     sex    weight
        0   93    Male  0.000546
        1   65  Female  0.004763
        """
        from kmeanalyst.inference.estimate.error_model import fitted_frame
        from kmeanalyst.representation.weights.views import view_frame

        if view == "fitted" and rows is None:
            return fitted_frame(self)
        return view_frame(self, view, rows=rows, rng=rng)

    def resample(self, n: int, *, rng: np.random.Generator | int | None = None) -> pd.DataFrame:
        """n rows of equal weight: systematic resampling of the probability view (Kitagawa 1996), shuffled.

        Each point appears ⌊n·p⌋ or ⌈n·p⌉ times, so that the rows are as close to the view as n rows can be.

        >>> release.resample(1000, rng=1)[["age", "income"]].head(2)
           age income
        0   36  <=50K
        1   35  <=50K
        """
        from kmeanalyst.representation.weights.views import resample

        return resample(self, n, rng=rng)

    def thin(self, n: int, *, weights: ThinWeights = "probability", rng: np.random.Generator | int | None = 0) -> Release:
        """A release with n of the points, as close in RKHS distance as the search finds: see `kmeanalyst.thin`.

        >>> small = release.thin(50)
        >>> len(small), small.mean("age")
        (50, age: 38.57 ± 0.44 (95 %: 37.70 to 39.43; privacy 0.28, sampling 0.18, resolution 0.29))
        """
        from kmeanalyst.representation.thinning import thin

        return thin(self, n, weights=weights, rng=rng)

    def to_arrow(self) -> Any:
        """Points and weights as released, as a table of pyarrow; the schema's metadata has the statement "privacy".

        >>> release.to_arrow().column_names[-1]
        'weight'
        """
        from kmeanalyst.releases.file.export import to_arrow

        return to_arrow(self)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Of `to_arrow`, for libraries that read Arrow: `polars.DataFrame(release)`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_netcdf(self, path: str | Path) -> None:
        """Export points and weights to NetCDF (an export: the file of record is .kme).

        >>> release.to_netcdf("adult.nc")
        """
        from kmeanalyst.releases.file.export import write_netcdf

        write_netcdf(self, path)

    def to_sklearn(
        self, target: str, *, columns: Sequence[str] | None = None, view: View = "probability",
        effective_rows: float | None = None, encoding: Encoding = "onehot", missing: Missing = "mark",
        labels: Labels = "released", rng: np.random.Generator | int | None = 0,
    ) -> TrainingData:  # fmt: skip
        """(X, y, sample_weight) for scikit-learn's own fit; `kmeanalyst.fit` also chooses what the estimator can use.

        target          the column to predict.
        columns         what to predict it from; by default all but the target and those computed from it, or it from them.
        view            "signed" (most estimators silently misuse negative weights), "probability", "resampled" (rows of equal
                        weight) or "fitted" (the population that error bars use).
        effective_rows  what the weights sum to; by default the effective size of the points, (Σp)²/Σp² (Kish 1965).
        encoding        "onehot", "cells", "codes" or "natural"; missing "mark" or "nan": see `DomainEncoder`.
        labels          "released", the rows' own, or "smoothed": see `kmeanalyst.fit`, which takes these first.
        Returns         X a DataFrame of features, y the target in natural units and levels, sample_weight without zeros.

        >>> X, y, sample_weight = release.to_sklearn("income")
        >>> X.shape, y[:2], round(sample_weight.sum())
        ((288, 12), array(['<=50K', '<=50K'], dtype=object), 154)
        """
        from kmeanalyst.learning.rows.training_rows import to_sklearn

        return to_sklearn(
            self, target, columns=columns, encoding=encoding, missing=missing, labels=labels, view=view,
            effective_rows=effective_rows, rng=rng,
        )  # fmt: skip

    def report(
        self, path: str | Path, *, source: str | Path | None = None, columns: Sequence[str] | None = None,
        view: View | None = None,
    ) -> None:  # fmt: skip
        """Write one HTML page for a colleague: what the release guarantees, shows and cannot show; it needs no network.

        source   the .kme file of the release; the page then states its name and SHA-256.
        columns  names of the columns to show; the first sixty by default.
        view     as in `expectation`.

        >>> release.report("adult.html", columns=["age", "income"])
        """
        from kmeanalyst.report import write_report

        write_report(self, path, source=source, columns=columns, view=view)

    def methods_text(self, source: str | Path | None = None) -> str:
        """A paragraph for papers, with the name and SHA-256 of `source`, the release's file; also `kmeanalyst methods`.

        >>> release.methods_text("adult.kme")
        'No private row was seen: the data are a noisy measurement of 6,000 rows with the columns age, ...'
        """
        from kmeanalyst.report import methods

        return str(methods(self, source)["text"])

    def write(self, path: str | Path) -> None:
        """Write the release as a .kme file; the file appears whole or not at all.

        >>> release.thin(50).write("small.kme")
        """
        from kmeanalyst.releases.file import write_release

        write_release(self, path)

    def plot(
        self, column: str | None = None, other: str | None = None, *, where: Condition = None, view: View | None = None,
        level: float = 0.95, ax: Axes | None = None,
    ) -> Axes:  # fmt: skip
        """Draw a column's histogram, or the table of two columns, on Axes; returns them. More options: `kmeanalyst.plots`.

        >>> axes = release.plot("age")
        >>> axes.figure.savefig("age.png")
        """
        from kmeanalyst import plots

        if column is None:
            raise ValueError(
                f"a release has {len(self.columns)} columns, and one or two are drawn. Name a column: plot(NAME); or make the "
                "report, which shows all of them: report('report.html')."
            )
        if other is None:
            return plots.histogram(self, column, where=where, view=view, level=level, ax=ax)
        return plots.table(self, column, other, where=where, view=view, level=level, ax=ax)


def release_of_points(
    points: Points, measurement: Measurement, domain: Domain, statement: Statement, *, method: str, view: str = "probability",
    float32: bool = False,
) -> Release:  # fmt: skip
    """The release of encoded points (M, d) and weights (M,) that were fitted to a measurement, as they will be written.

    view   of the weights; "uniform" ones are probabilities.
    """
    encoded, weights = points
    fitted = feature_mean(measurement.feature_map, encoded, weights)
    return Release(
        points=domain.decode(encoded, float32=float32), weights=weights, measurement=measurement,
        kernel=measurement.feature_map.kernel, domain=domain, statement=statement, method=method,
        weight_view="probability" if view == "uniform" else view,
        fit_distance=float(np.linalg.norm(fitted - measurement.vector)),
    )  # fmt: skip


def read_release(path: str | Path, *, allow_rehearsal: bool = False, large: bool = False) -> Release:
    """Read a .kme file; raises FileRefused, which says what is wrong, for a file that is not sound.

    Nothing is returned unless checksums, shapes, values and the arithmetic of the privacy statement agree.

    allow_rehearsal   read a file that is stamped NOT PRIVATE too: a rehearsal, whose noise can be drawn again from a seed.
    large             lift the usual limits on size and work, for a file whose maker you trust (FORMAT.md §8).

    >>> ka.read_release("adult.kme").statement.epsilon
    1.0
    """
    from kmeanalyst.releases.file import reading

    return reading.read_release(path, Release, allow_rehearsal=allow_rehearsal, large=large)


def from_frame(
    frame: pd.DataFrame, *, weight: str = "weight", kernel: Kernel | str | None = None, domain: Domain | None = None
) -> Release:
    """Weighted data from elsewhere as a release without measurement: no privacy part in any answer.

    frame    columns and a weight column, of pandas or what yields Arrow batches; weights may be signed: they are used as they are.
    weight   the name of the weight column.
    kernel   Kernel or its text; the table kernel by default.
    domain   public columns and bounds; drafted from the frame itself by default.

    >>> frame = pd.DataFrame({"x": [0.0, 1.0, 2.0], "w": [0.5, 0.25, 0.25]})
    >>> ka.from_frame(frame, weight="w").mean("x")
    x: 0.75 ± 0.51 (95 %: -0.25 to 1.75; privacy unknown, sampling 0.51, resolution unknown) [1 note]
    """
    from kmeanalyst.releases.domain.draft import draft_domain
    from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec

    frame = as_frame(frame)
    if weight not in (names := list(getattr(frame, "columns", []))):
        raise ValueError(f"no weight column {weight!r}; the columns are {names}. Pass a DataFrame that has it, and name it.")
    columns = frame.drop(columns=[weight])
    domain = domain or draft_domain(columns).domain
    return Release(
        points=domain.decode(domain.encode(columns)), weights=frame[weight].to_numpy(dtype=float), measurement=None,
        kernel=kernel_from_spec(kernel, domain), domain=domain, statement=None,
    )  # fmt: skip
