"""The whole flow on one page: a private table and public choices in, a release out.

Everything chosen before the door (kernel, features, points, sizes) follows from the domain, N, ε, δ and
public files. Everything after it is post-processing of the measurement.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.columns import DomainError
from kmeanalyst.releases.domain.domain import Domain, read_domain
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.releases.statement import counted_as, neighbouring_of
from kmeanalyst.representation.generator.generator import generated_rows
from kmeanalyst.representation.progress import Progress
from kmeanalyst.representation.represent import represent
from kmeanalyst.representation.weights.reweight import weights_for
from release_side.budget.composition import Spend
from release_side.budget.ledger import Ledger
from release_side.choices.options import (
    METHODS,
    check_choices,
    check_draw_choices,
    check_ledger,
    check_strings,
    checked_features,
    default_points,
    kernel_for,
    processors,
    public_rows,
    spec_for,
)
from release_side.choices.output_file import check_output
from release_side.choices.public_inputs import refuse_private_as_public
from release_side.choices.statement import statement_for
from release_side.choices.subspaces import better_basis, certified_basis
from release_side.door.exponential_mechanism import ExponentialMechanism
from release_side.door.mechanism import SPENT, Noise, PublishError, RehearsalNoise, noise_for
from release_side.door.private_mean import private_mean
from release_side.private_rows.rows import Table, open_private
from release_side.private_rows.units import units_of

_WEAK_EPSILON = 10.0
NO_LEDGER = (
    "no ledger: releases of one table add up, and nothing counts this one. Name a ledger and the table (ledger=…, table=…; see "
    "release-side ledger init), or pass uncounted=True."
)
_log = logging.getLogger("release_side")


class LedgerWarning(UserWarning):
    """A release that no ledger counts, or whose total in the ledger holds only under a condition.

    >>> issubclass(release_side.LedgerWarning, UserWarning)
    True
    """


def publish(
    private: Table,
    domain: Domain | str | Path,
    *,
    epsilon: float,
    delta: float,
    method: str = "random-features",
    public_points: Table | None = None,
    points: int | None = None,
    features: int | None = None,
    family: str | None = None,
    kernel: Kernel | str | None = None,
    target: str | None = None,
    weights: str = "probability",
    bound: float | None = None,
    float32: bool = False,
    noise: str = "gaussian",
    calibration: str | None = None,
    ledger: str | Path | None = None,
    table: str | None = None,
    uncounted: bool = False,
    weak: bool = False,
    unit: str | None = None,
    rehearsal: int | None = None,
    workers: int | None = None,
    output: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Release:
    """Release the kernel mean embedding of a private table, once, with (epsilon, delta)-differential privacy.

    private         path of a CSV (.gz), Parquet, a directory or glob of them; or a DataFrame whose cells do not depend on
                    other rows (read with dtype=str: type inference lets one cell change its column).
    domain          Domain, or the path of its TOML file: public columns, bounds and levels.
    method          "random-features" (Algorithm 2), "subspace" (Algorithm 1), "generator" (DP-MERF: a network is
                    trained on the measurement and gives rows of equal weight; needs the extra kmeanalyst[generator]), or
                    "exponential": M rows of a small domain are drawn, nothing is measured, and delta is 0.
    public_points   rows that are already public: Algorithm 1's points, Algorithm 2's start, or a grid to draw from.
    points          M; by default 1000 to 2000, as many as the table has rows (1000 to 50,000) for margins and a generator,
                    or the public rows up to 3000 for a subspace.
    features        F, coordinates measured by random features (cosine and sine count two); 4000 by default. With a
                    generator those of the random part of its kernel, 1000 by default: the cells of margins come
                    beside them, and a target has them once for each of its classes.
    family          of random features: "fourier", "orthogonal" or "quasi-random" frequencies; "binning" (laplacian kernel),
                    "maclaurin" (polynomial, exponential-dot: their default) or "hermite" (gaussian, few columns).
    kernel          Kernel or its text; "table", a product over the columns, by default. "margins" (the default with a
                    target): all one-way and two-way tables of levels, public edges and atoms, no random features.
                    "generator" (the default of that method): numbers by a Gaussian kernel, beside one-way tables of
                    levels, atoms and missing cells.
    target          a column that models will predict: its relations to pairs of others are measured as well. With a
                    generator: the label, which everything else is measured for each class of.
    weights         "probability", "bounded" (Σ|w| ≤ bound, 1 by default), "signed" (2), "uniform" (1/M each; random
                    features), or "published" (subspace).
    float32         real columns of the points hold single precision numbers, and the weights are fitted to those.
    noise           "gaussian", or "laplace" for pure differential privacy (delta = 0).
    calibration     of Gaussian noise: "analytic" (default), the least that gives (epsilon, delta); or "zcdp", a little
                    more, at which (epsilon, delta) follows from ρ alone.
    ledger, table   file that counts what releases of this table add up to, and the curator's name for the table:
                    the spend is recorded before noise is drawn, and refused if it goes over the table's budget.
                    Ledger and table must be there (`release-side ledger init`). Without a ledger there is one UserWarning.
    uncounted       publish without a ledger, and without the warning. On the command line one of the two is required.
    weak            publish although epsilon is above 10, or delta at least 1/N: an error otherwise.
    unit            column that identifies the units (patients, say): all rows of a unit are protected together, and the
                    release estimates the distribution in which every unit weighs the same. The number of units is public
                    then, the number of rows is not; the column's name is published. Rows with an empty cell there are the
                    rows of one unit.
    rehearsal       a seed: the noise can be drawn again, and the release is NOT PRIVATE and stamped so. For data
                    that the curator may play with. Needs neither a ledger, nor uncounted, nor weak.
    workers         threads; by default as many as there are processors. No bit of the result depends on it.
    output          file to write the release to as well; the ledger then knows it by its name. Where that would fail, it
                    is refused before anything is spent.
    force           whether an older file at `output` is replaced; refused otherwise.
    progress        called with what is being done and the share of it that is.
    Returns         Release; its statement lists everything that was taken as public.
    Errors          PublishError or DomainError, by public facts alone.

    >>> ages = ka.Domain((ka.Integer(name="age", lower=17, upper=90),))
    >>> published = release_side.publish(
    ...     "private.csv", ages, epsilon=1, delta=1e-6, features=50, points=20, uncounted=True
    ... )
    >>> published.statement.epsilon, published.is_rehearsal, len(published)
    (1.0, False, 20)
    >>> published.write("age.kme")
    """
    if method == "exponential":
        from release_side.publishing.exponential import publish_small_database

        check_draw_choices(
            weights, features, bound, float32=float32, noise=noise, calibration=calibration, family=family, unit=unit
        )
        return publish_small_database(
            private, domain, epsilon=epsilon, delta=delta, public_points=public_points, points=points, kernel=kernel,
            target=target, ledger=ledger, table=table, uncounted=uncounted, weak=weak, rehearsal=rehearsal, output=output,
            force=force, progress=progress,
        )  # fmt: skip
    domain_path, domain = domain, domain if isinstance(domain, Domain) else read_domain(domain)
    mechanism = noise_for(noise, epsilon, delta, calibration=calibration, rehearsal=rehearsal)
    check_choices(method, weights, points, features, bound, workers, float32=float32, family=family)
    check_ledger(ledger, table, rehearsal, uncounted=uncounted)
    check_output(output, private=private, ledger=ledger, others=(domain_path, public_points), force=force)
    refuse_private_as_public(private, public_points, domain, () if rehearsal is not None else domain.samples)
    check_strings(method, domain, public_points)
    public = public_rows(public_points, domain)
    spec = spec_for(method, kernel, domain, target)
    rows = open_private(private)
    rows.check_columns(domain)
    units = None if unit is None else units_of(rows, unit, domain)
    n_rows = units.count if units else rows.count()
    chosen_kernel = kernel_for(method, spec, domain, target, mechanism, n_rows)
    feature_map, spanning = checked_features(
        method, chosen_kernel, domain, public, points, features, weights, n_rows=n_rows, family=family
    )
    feature_map = better_basis(feature_map, certified_basis(feature_map), spanning, mechanism, n_rows=n_rows)
    spending = None
    if isinstance(mechanism, Noise):  # a rehearsal spends nothing
        spending = Spending(
            ledger, table, mechanism, n_rows=n_rows, method=method, unit=unit, uncounted=uncounted, weak=weak
        )
    with note_budget_spent(spending):
        measurement = private_mean(
            units.grouped(rows.encoded(domain)) if units else rows.encoded(domain),
            feature_map, mechanism, n_rows=n_rows, workers=workers or processors(),
            record_spend=spending.record if spending else None, progress=progress,
        )  # fmt: skip
        del rows, units  # from here on, post-processing
        release = to_release(
            measurement, mechanism, domain, chosen_kernel, method=method, spanning=spanning, public=public,
            points=points, weights=weights, bound=bound, float32=float32, unit=unit,
            ledger_head=spending.head if spending else None, progress=progress,
        )  # fmt: skip
        if output is not None:
            write_release_whole(release, output)
    if output is not None and spending:
        spending.published(output)
    return release


def to_release(
    measurement: Measurement,
    mechanism: Noise | RehearsalNoise,
    domain: Domain,
    kernel: Kernel,
    *,
    method: str,
    spanning: Array | None,
    public: Array | None,
    points: int | None,
    weights: str,
    bound: float | None,
    float32: bool,
    unit: str | None = None,
    ledger_head: str | None = None,
    progress: Progress | None,
) -> Release:
    """The release that a measurement becomes: everything after the door, in memory. Post-processing."""
    n_public = 0
    if method == "subspace":
        assert spanning is not None
        # the points as the file will hold them: public rows were decoded and encoded again, drawn ones are of the domain
        encoded, n_public = spanning, len(spanning) if public is not None else 0
        fitted = weights_for(weights, encoded, measurement, bound=bound, n_public=n_public)
    elif method == "generator":
        n_points = points or default_points(measurement, method, domain)
        rows = generated_rows(measurement, domain, n_points=n_points, progress=progress)
        encoded = domain.encode(domain.decode(rows, float32=float32))
        fitted = np.full(n_points, 1 / n_points)
    else:
        n_points = points or default_points(measurement, method, domain)
        encoded, fitted = represent(
            measurement, domain, n_points=n_points, view=weights, bound=bound,
            public=public, float32=float32, rng=0, progress=progress,
        )  # fmt: skip
    frame = domain.decode(encoded, float32=float32)
    fitted_mean = feature_mean(measurement.feature_map, encoded, fitted)
    return Release(
        points=frame,
        weights=fitted,
        measurement=measurement,
        kernel=kernel,
        domain=domain,
        statement=statement_for(
            mechanism, measurement, method, n_public, given=public is not None, unit=unit, ledger_head=ledger_head
        ),
        method=method,
        weight_view="probability" if weights == "uniform" else weights,
        fit_distance=float(np.linalg.norm(fitted_mean - measurement.vector)),
    )


class Spending:
    """What one release spends: checked when the size of the table is known, recorded just before the noise.

    head   digest of the ledger's entry for this release, once it is recorded; None without a ledger.

    Without a ledger nothing is recorded, which one UserWarning says unless the release is meant to be uncounted.
    """

    def __init__(
        self,
        ledger: str | Path | None,
        table: str | None,
        noise: Noise | ExponentialMechanism,
        *,
        n_rows: int,
        method: str,
        unit: str | None = None,
        uncounted: bool = False,
        weak: bool = False,
    ) -> None:
        self.is_spent, self.head = False, None
        self._ledger, self._table = None if ledger is None else Ledger(ledger), table or ""
        self._spend = Spend(
            epsilon=noise.epsilon, delta=noise.delta, mechanism=noise.name, calibration=noise.calibration,
            noise_multiplier=noise.multiplier(), n_rows=n_rows, method=method,
            neighbouring=neighbouring_of(unit), unit=unit,
        )  # fmt: skip
        if not weak:
            check_strength(noise, n_rows, unit)
        if self._ledger is not None:
            if warning := self._ledger.check(self._table, self._spend):
                warnings.warn(warning, LedgerWarning, stacklevel=3)
        elif not uncounted:
            _warn_once_that_nothing_counts()

    def record(self) -> None:
        """The last thing before the noise."""
        if self._ledger is not None:
            self._number = self._ledger.record(self._table, self._spend)
            self.head = self._ledger.release(self._number).digest
        self.is_spent = True

    def published(self, output: str | Path) -> None:
        """Note the file's name; what is spent and written is so whether or not this succeeds."""
        try:
            if self._ledger is not None:
                self._ledger.published(self._number, Path(output))
        except PublishError:
            _log.warning("%s is written and counted as spent; the ledger could not note its name.", output)


def weakness(noise: Noise | ExponentialMechanism, n_rows: int, unit: str | None = None) -> str | None:
    """Why a promise protects little, from public facts alone: ε, δ and N; None if it does not."""
    what = counted_as(unit)
    if noise.epsilon > _WEAK_EPSILON:
        return f"epsilon {noise.epsilon:g} is a weak promise: above {_WEAK_EPSILON:g} a release may tell single {what} apart"
    if noise.delta >= 1 / n_rows:
        return (
            f"delta {noise.delta:g} is a weak promise for N = {n_rows:,} {what}: with delta of 1/N or more a release may give "
            f"whole {what} away"
        )
    return None


def check_strength(noise: Noise | ExponentialMechanism, n_rows: int, unit: str | None) -> None:
    """PublishError for a weak promise, before anything is spent."""
    if reason := weakness(noise, n_rows, unit):
        raise PublishError(
            f"{reason}. Nothing was spent. Choose less, or, if that is meant, pass --weak (in Python weak=True)."
        )


@contextmanager
def note_budget_spent(spending: Spending | None) -> Iterator[None]:
    """Whatever fails after noise was drawn says that the release counts."""
    try:
        yield
    except PublishError as error:
        raise PublishError(f"{error} {SPENT}" if spending and spending.is_spent else str(error)) from None
    except BaseException as error:
        if spending and spending.is_spent:
            error.add_note(SPENT)
        raise


@cache
def _warn_once_that_nothing_counts() -> None:
    warnings.warn(NO_LEDGER, LedgerWarning, stacklevel=4)


def write_release_whole(release: Release, output: str | Path) -> None:
    """Write the file; PublishError if it does not come about."""
    try:
        release.write(output)
    except (OSError, ValueError) as error:
        raise PublishError(f"{output} was not written: {str(error).rstrip('.')}.") from None


__all__ = ["METHODS", "DomainError", "LedgerWarning", "publish"]
