"""Draws of the table for Rubin's rule, and replicate weights for a survey design.

Both start from deviations: draws of how the weights of the private table's own rows may differ from the fit's, by the noise
for privacy and by what the measurement leaves open (Matheron's rule; see `MeasuredErrors.deviations`). They become weights of rows
(`positive`), of which there are two kinds of sets, each for one rule and no other:

    draws        m tables of N rows. Each is what the private table may have been; rows are taken as evenly as can be, so that
                 they add no noise of drawing. For Rubin's rule: mean Ū of the usual variances, plus (1 + 1/m) B between
                 tables (`mice::pool`, Stata's `mi`). Ū is sampling, B privacy and resolution.
    replicates   one set of rows with a weight, and R replicate weights of all three parts: each is a table of N rows that is
                 drawn from a draw of the table. For the mean squared deviation from the answer under the weight.

Rules of synthetic data (`pool.syn`, Ū + B/m; `lm.synds`, Ū) hold for a table without noise. On a simulated table their 95 %
intervals held .78 and .72 at ε = 1, .54 and .35 at ε = 0.1, where draws held .98 and .94 (tests/benchmarks/draws_coverage.py).

Rows of all columns cannot have the error of every relation at once: on Adult's 15 columns slopes of a regression held .98 at ε = 1
and .54 at ε = 0.1. Of columns that are named they can: 1.00 and .98.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd

from kmeanalyst.inference.draws.positive import PositiveWeights
from kmeanalyst.inference.estimate.error_model import MeasuredErrors, fitted_model
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.weights.views import systematic_indices

FEWEST_REPLICATES = 100
_RELATED = 3.0  # variance of a relation that is expected beyond that of usual ones, relative to these


def draws(
    release: ReleaseData,
    m: int = 20,
    *,
    columns: Sequence[str] | None = None,
    rows: int | None = None,
    rng: np.random.Generator | int | None = None,
) -> list[pd.DataFrame]:
    """m tables that the private one may have been, for Rubin's Ū + (1 + 1/m) B (`mice::pool`, Stata's `mi`).

    m        at least 2: the spread between tables is the error of privacy and resolution. Sampling is what Ū adds.
    columns  those that the analysis is about; all by default. Rows of all columns have less of the error of each relation, the
             more columns the less, and at ε = 0.1 slopes are then too narrow.
    rows     of each table; N, the private table's, by default. Rubin's rule is right for N alone.
    Errors   ValueError where nothing was measured: the noise is then unknown; of an unknown column.

    >>> tables = release.draws(5, rng=0)
    >>> len(tables), len(tables[0])
    (5, 6000)
    """
    if not is_whole(m, 2):
        raise ValueError(
            f"m must be at least 2, got {m!r:.80}: a whole number of tables, whose spread gives errors. Pass m=20."
        )
    if rows is not None and not is_whole(rows, 1):
        raise ValueError(
            f"rows must be at least 1, got {rows!r:.80}. Leave it out for as many as the private table has."
        )
    rng = np.random.default_rng(rng)
    frame, _, drawn, n = _drawn(release, m, columns, rng)
    order = _even_order(frame)
    frame = frame.iloc[order]
    taken = [systematic_indices(one[order], rows or n, rng) for one in drawn.T]
    return [frame.iloc[rng.permutation(one)].reset_index(drop=True) for one in taken]


def replicates(
    release: ReleaseData,
    R: int = 100,
    *,
    columns: Sequence[str] | None = None,
    rng: np.random.Generator | int | None = None,
) -> pd.DataFrame:
    """Rows with a column "weight" and R columns "replicate_1", … of replicate weights; each sums to N.

    For R's survey::svrepdesign(type = "other", scale = 1/R, rscales = 1, combined.weights = TRUE, mse = TRUE). Weights are not
    negative, as regression programs refuse negative ones; replicate weights are whole numbers. Rows of no weight in any column
    are left out.

    R        100 or more; with fewer a warning says what standard errors lose.
    columns  those that the analysis is about; all by default.
    Errors   ValueError where nothing was measured, or R < 2; of an unknown column.

    >>> release.replicates(100, rng=0).columns[-2:].tolist()
    ['replicate_99', 'replicate_100']
    """
    if not is_whole(R, 2):
        raise ValueError(
            f"R must be at least 2, got {R!r:.80}: a whole number of replicates, whose spread gives errors. Pass R=100."
        )
    if R < FEWEST_REPLICATES:
        warnings.warn(too_few(R), stacklevel=2)
    rng = np.random.default_rng(rng)
    frame, weights, drawn, n = _drawn(release, R, columns, rng)
    counts = rng.multinomial(n, drawn.T).T
    columns = pd.DataFrame(counts, index=frame.index, columns=[f"replicate_{r + 1}" for r in range(R)])
    used = (weights > 0) | (counts > 0).any(axis=1)
    return pd.concat([frame.assign(weight=n * weights), columns], axis=1)[used].reset_index(drop=True)


def is_whole(number: object, least: int) -> bool:
    """Whether something is a whole number that is large enough."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool) and bool(number >= least)


def too_few(R: int) -> str:
    """What a small number of replicates costs."""
    return (
        f"R = {R} replicates give standard errors that are off by ± {100 / np.sqrt(2 * R):.0f} %, and intervals need a t "
        f"distribution with {R - 1} degrees of freedom. Take R = {FEWEST_REPLICATES} or more."
    )


def _drawn(
    release: ReleaseData, k: int, columns: Sequence[str] | None, rng: np.random.Generator
) -> tuple[pd.DataFrame, Array, Array, int]:
    """Rows, their probabilities (n,), k draws of them (n, k) by privacy and resolution, and N.

    Rows of a few columns can have the errors of more questions about these than rows of all (`positive`). Of columns that are named
    a relation is expected, so that what the measurement leaves open is drawn wider, by one factor for all questions about them:
    a regression's own errors are of its coefficients (`expected_relation`), and a draw has one error for all.
    """
    model = _measured_model(release)
    assert release.measurement is not None
    wider = 1.0 if columns is None else float(np.sqrt(1 + _RELATED * model.fit.assumed))
    deviations = model.deviations(k, rng, wider)
    frame = model.frame[_names(release, columns)]
    n_first = len(model.weights)
    centre = np.append(model.weights, np.zeros(len(frame) - n_first))
    base = model.fit.probabilities
    if not model.fit.on_points:
        base = np.append((1 - _OF_POINTS) * base, _OF_POINTS * np.maximum(model.point_weights, 0.0))
        base /= base.sum()
    positive = PositiveWeights.of(frame, base, centre)
    nearest = positive.nearest(centre[:, None] + np.column_stack([np.zeros(len(centre)), deviations]))
    at, drawn = nearest[:, 0], nearest[:, 1:]
    # where weights are cut off at 0 the mean of draws is not the weights that they are around; drawn again around less of that
    drawn = positive.nearest((centre + at - drawn.mean(axis=1))[:, None] + deviations)
    return frame, at, drawn, release.measurement.n_rows


def _names(release: ReleaseData, columns: Sequence[str] | None) -> list[str]:
    """The columns that are drawn, in the release's order; ValueError where one is unknown or named twice, or none is named."""
    known = list(release.columns.names)
    if columns is None:
        return known
    if isinstance(columns, str) or not len(columns) or len(set(columns)) < len(columns):
        raise ValueError(
            f"columns must be a list of different columns, got {columns!r:.80}. Name each once, such as {known[:2]!r}, or leave "
            "it out for all."
        )
    if unknown := [name for name in columns if name not in known]:
        raise ValueError(f"{unknown[0]!r:.80} is no column of the release. Its columns are {', '.join(known)}.")
    return [name for name in known if name in columns]


_OF_POINTS = 0.2  # share of released points in the rows of a fit that has others


def _measured_model(release: ReleaseData) -> MeasuredErrors:
    if release.measurement is None:
        raise ValueError(
            "draws are of what the measurement leaves open, and this release has none: its noise is unknown. Use a release as "
            "it was published, with its measurement."
        )
    return fitted_model(release)


def _even_order(frame: pd.DataFrame) -> Array:
    """An order of the rows in which neighbours are alike: by the column of fewest values first."""
    codes = [pd.factorize(frame[name], sort=True)[0] for name in frame]
    return np.lexsort(sorted(codes, key=lambda one: -len(np.unique(one))))
