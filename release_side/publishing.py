"""The whole flow on one page: a private table and public choices in, a release out.

Everything chosen before the door (kernel, features, points, sizes) follows from the domain, N, ε, δ and
public files. Everything after it is post-processing of the measurement.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.columns import DomainError
from kmeanalyst.releases.domain import Domain, read_domain
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.releases.release import Release
from kmeanalyst.releases.statement import REPLACE_ROW, REPLACE_UNIT
from kmeanalyst.representation.generator import generated_rows
from kmeanalyst.representation.progress import Progress
from kmeanalyst.representation.represent import represent
from kmeanalyst.representation.reweight import weights_for
from release_side.choices import (
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
from release_side.composition import Spend
from release_side.ledger import Ledger
from release_side.mechanism import SPENT, Noise, PublishError, RehearsalNoise, noise_for
from release_side.private_mean import private_mean
from release_side.promise import statement_for
from release_side.rows import Table, open_private, paths_of, refuse_private_as_public
from release_side.small_database import ExponentialMechanism
from release_side.units import units_of

_WEAK_EPSILON = 10.0
_log = logging.getLogger("release_side")


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
    unit: str | None = None,
    rehearsal: int | None = None,
    workers: int | None = None,
    output: str | Path | None = None,
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
    noise           "gaussian", or "laplace" for a promise without exceptions (delta = 0).
    calibration     of Gaussian noise: "analytic" (default), the least that gives (epsilon, delta); or "zcdp", a little
                    more, at which (epsilon, delta) follows from ρ alone.
    ledger, table   file that counts what releases of this table add up to, and the curator's name for the table:
                    the spend is recorded before noise is drawn, and refused if it goes over the table's budget.
    unit            column that says whose row a row is: all rows of a person are protected together, and the release
                    estimates the distribution in which every person weighs the same. The number of persons is public
                    then, the number of rows is not. Rows with an empty cell there are the rows of one person.
    rehearsal       a seed: the noise can be drawn again, and the release is NOT PRIVATE and stamped so. For data
                    that the curator may play with.
    workers         threads; by default as many as there are processors. No bit of the result depends on it.
    output          file to write the release to as well; the ledger then knows it by its name.
    progress        called with what is being done and the share of it that is.
    Returns         Release; its statement lists everything that was taken as public.
    Errors          PublishError or DomainError, by public facts alone.

    >>> ages = ka.Domain((ka.Integer(name="age", lower=17, upper=90),))
    >>> published = release_side.publish("private.csv", ages, epsilon=1, delta=1e-6, features=50, points=20)
    >>> published.statement.epsilon, published.is_rehearsal, len(published)
    (1.0, False, 20)
    >>> published.write("age.kme")
    """
    if method == "exponential":
        from release_side.selecting import publish_small_database

        check_draw_choices(
            weights, features, bound, float32=float32, noise=noise, calibration=calibration, family=family, unit=unit
        )
        return publish_small_database(
            private, domain, epsilon=epsilon, delta=delta, public_points=public_points, points=points, kernel=kernel,
            target=target, ledger=ledger, table=table, rehearsal=rehearsal, output=output, progress=progress,
        )  # fmt: skip
    domain_path, domain = domain, domain if isinstance(domain, Domain) else read_domain(domain)
    mechanism = noise_for(noise, epsilon, delta, calibration=calibration, rehearsal=rehearsal)
    check_choices(method, weights, points, features, bound, workers, float32=float32, family=family)
    check_ledger(ledger, table, rehearsal)
    private_files = [] if isinstance(private, pd.DataFrame) else paths_of(private)
    check_can_appear(output, beside=(*private_files, domain_path, public_points, ledger))
    refuse_private_as_public(private, public_points)
    check_strings(method, domain, public_points)
    public = public_rows(public_points, domain)
    spec = spec_for(method, kernel, domain, target)
    rows = open_private(private)
    rows.check_columns(domain)
    units = None if unit is None else units_of(rows, unit, domain)
    n_rows = units.count if units else rows.count()
    neighbouring = REPLACE_UNIT if units else REPLACE_ROW
    chosen_kernel = kernel_for(method, spec, domain, target, mechanism, n_rows)
    feature_map, spanning = checked_features(
        method, chosen_kernel, domain, public, points, features, weights, n_rows=n_rows, family=family
    )
    spending = None
    if isinstance(mechanism, Noise):  # a rehearsal spends nothing
        spending = Spending(ledger, table, mechanism, n_rows=n_rows, method=method, neighbouring=neighbouring)
    with told_if_spent(spending):
        measurement = private_mean(
            units.grouped(rows.encoded(domain)) if units else rows.encoded(domain),
            feature_map, mechanism, n_rows=n_rows, workers=workers or processors(),
            record_spend=spending.record if spending else None, progress=progress,
        )  # fmt: skip
        del rows, units  # from here on, post-processing
        release = represented(
            measurement, mechanism, domain, chosen_kernel, method=method, spanning=spanning, public=public,
            points=points, weights=weights, bound=bound, float32=float32, neighbouring=neighbouring, progress=progress,
        )  # fmt: skip
        if output is not None:
            write_whole(release, output)
    if output is not None and spending:
        spending.published(output)
    return release


def represented(
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
    neighbouring: str = REPLACE_ROW,
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
            mechanism, measurement, method, n_public, given=public is not None, neighbouring=neighbouring
        ),
        method=method,
        weight_view="probability" if weights == "uniform" else weights,
        fit_distance=float(np.linalg.norm(fitted_mean - measurement.vector)),
    )


def check_can_appear(output: str | Path | None, *, beside: tuple[object, ...]) -> None:
    """PublishError, before anything is spent, if the file could not appear or would take another's place.

    beside   what else was named: tables, domain, ledger; anything that is no path is passed over.
    """
    if output is None:
        return
    path, folder = Path(output), Path(output).absolute().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise PublishError(
            f"the folder {folder} is not there or not writable, so {output} could not appear. Make it first."
        )
    for other in (Path(other) for other in beside if isinstance(other, str | Path)):
        if path.absolute() == other.absolute() or (path.exists() and other.exists() and path.samefile(other)):
            raise PublishError(
                f"{output} is named as the release's file and as another ({other}), which it would replace. "
                "Name a new file."
            )


class Spending:
    """What one release spends: checked when the size of the table is known, recorded just before the noise.

    Without a ledger nothing is recorded, which is said once.
    """

    def __init__(
        self,
        ledger: str | Path | None,
        table: str | None,
        noise: Noise | ExponentialMechanism,
        *,
        n_rows: int,
        method: str,
        neighbouring: str = REPLACE_ROW,
    ) -> None:
        self.is_spent = False
        self._ledger, self._table = None if ledger is None else Ledger(ledger), table or ""
        self._spend = Spend(
            epsilon=noise.epsilon, delta=noise.delta, mechanism=noise.name, calibration=noise.calibration,
            noise_multiplier=noise.multiplier(), n_rows=n_rows, method=method, neighbouring=neighbouring,
        )  # fmt: skip
        warn_if_weak(noise, n_rows, "persons" if neighbouring == REPLACE_UNIT else "rows")
        if self._ledger is None:
            _say_once_that_nothing_counts()
        elif not self._ledger.check(self._table, self._spend):
            _log.warning(
                "table %r has no budget in %s: its releases are recorded and not limited. Check the two names; "
                "release-side ledger init sets a budget.", self._table, ledger,
            )  # fmt: skip

    def record(self) -> None:
        """The last thing before the noise."""
        if self._ledger is not None:
            self._number = self._ledger.record(self._table, self._spend)
        self.is_spent = True

    def function_is(self, state: str, pivots: int) -> None:
        """Note what a released function came to be, for extensions."""
        if self._ledger is not None:
            self._ledger.function_is(self._number, state, pivots)

    def published(self, output: str | Path) -> None:
        """Note the file's name; what is spent and written is so whether or not this succeeds."""
        try:
            if self._ledger is not None:
                self._ledger.published(self._number, Path(output))
        except PublishError:
            _log.warning("%s is written and counted as spent; the ledger could not note its name.", output)


def warn_if_weak(noise: Noise | ExponentialMechanism, n_rows: int, counted: str = "rows") -> None:
    """Say so if a promise is kept in words only."""
    if noise.epsilon > _WEAK_EPSILON or noise.delta * n_rows >= 1:
        _log.warning(
            "a weak promise: epsilon %g, delta %g for %d %s. Above epsilon %g a release may tell one %s from another; "
            "with delta of 1/N or more it may give whole %s away. Choose less.",
            noise.epsilon, noise.delta, n_rows, counted, _WEAK_EPSILON, counted.removesuffix("s"), counted,
        )  # fmt: skip


@contextmanager
def told_if_spent(spending: Spending | None) -> Iterator[None]:
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
def _say_once_that_nothing_counts() -> None:
    _log.warning(
        "no ledger: releases of one table add up, and nothing counts them. "
        "Name a ledger and the table (--ledger, --table) to have them counted."
    )


def write_whole(release: Release, output: str | Path) -> None:
    """Write the file; PublishError if it does not come about."""
    try:
        release.write(output)
    except (OSError, ValueError) as error:
        raise PublishError(f"{output} was not written: {str(error).rstrip('.')}.") from None


__all__ = ["METHODS", "DomainError", "publish"]
