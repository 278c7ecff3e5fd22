"""The whole flow on one page: a private table and public choices in, a release out.

Everything before the door (kernel, features, points, sizes) follows from the domain, N, ε, δ and public files. Everything
after it is post-processing of what came through the door.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kmeanalyst.kernels import Kernel
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import feature_mean
from kmeanalyst.releases.statement import PopulationSize
from kmeanalyst.representation.progress import Progress
from release_side.budget.spending import spending_of
from release_side.choices.choices import Account, Reading
from release_side.choices.options import chosen_domain, processors
from release_side.choices.output_file import Output
from release_side.choices.statement import named_rules
from release_side.choices.workload import Source
from release_side.door.door import Door
from release_side.errors import PublishError
from release_side.executors.executor import Executor, Here
from release_side.private_rows.reading import counted_rows
from release_side.private_rows.rows import PrivateSource, Table
from release_side.publishing.methods import Measured, ReleaseMethod, chosen_kind, method_class, with_inputs
from release_side.publishing.opening import open_checked


def publish(
    private: PrivateSource,
    domain: Domain | str | Path | None = None,
    *,
    epsilon: float,
    delta: float,
    method: str = "random-features",
    public_points: Table | None = None,
    points: int | None = None,
    features: int | None = None,
    family: str | None = None,
    kernel: Kernel | str | None = None,
    target: str | Sequence[str] | None = None,
    workload: Source | None = None,
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
    n_rows: int | None = None,
    rehearsal: int | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    output: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Release:
    """Release the kernel mean embedding of a private table, once, with (epsilon, delta)-differential privacy.

    private         path, folder, glob or URL of files (CSV, Parquet, Arrow), a DataFrame, `release_side.sql(…)`, or what yields
                    Arrow batches. No type may be guessed from cells: kmeanalyst/sources/SOURCES.md says how each is read.
    domain          Domain, or the path of its TOML file: public columns, bounds and levels.
    epsilon, delta  of the guarantee; delta well below 1/N, or 0 for pure differential privacy.
    method          "random-features", "subspace", "generator" (needs PyTorch) or "exponential" (few levels, delta = 0).
    public_points   Table of rows that are already public: the points of Algorithm 1, the start of Algorithm 2.
    points          number of points M; each method has a default.
    features        number of feature coordinates F, even: 4000 by default.
    family          of random features: "fourier", "binning" or "maclaurin".
    kernel          Kernel or its text: "adaptive", "table", "margins", "generator", "gaussian:lengthscale=…" (tutorials/methods).
    target          a column that models will predict, or several: its tables with all others are measured first.
    workload        what will be asked: the path of a text, or a list of lines (`release_side.choices.workload`). Public.
    weights         "probability", "bounded" (Σ|w| ≤ bound, 1 by default), "signed" (2), "uniform" (1/M) or "published" (subspace).
    bound           the largest Σ|w| of bounded and signed weights.
    float32         real columns of the points hold single precision numbers, and the weights are fitted to these.
    noise           "gaussian", or "laplace" for pure differential privacy (delta = 0).
    calibration     of Gaussian noise: "analytic" (default), the least noise; or "zcdp", at which the guarantee follows from ρ.
    ledger, table   file that adds up what the releases of this table spend, and the table's name in it. Without: one UserWarning.
    uncounted       publish without a ledger, and without the warning.
    weak            publish although epsilon is above 10, or delta at least 1/N: an error otherwise.
    unit            column that identifies units, each protected with all its rows and of equal weight; P is public then, not N.
    n_rows          the number of rows of an Arrow stream, which is then read once; an error if it has more or fewer.
    rehearsal       a seed: the noise can be drawn again, and the release is NOT PRIVATE and stamped so. Needs no ledger.
    workers         threads; by default one for each processor. No bit of the result depends on it.
    executor        who reads the table instead: `Processes(N)` of this machine, or `Dask(client)`. Changes no bit either.
    output          file to write the release to; one that cannot be written is refused before anything is spent.
    force           whether an older file at `output` is replaced; refused otherwise.
    progress        called with the name of the current step and the share of it that is done.
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
    domain_path, domain = domain, chosen_domain(domain)
    kind = method_class(method)
    choices = kind.options(
        public_points=public_points, points=points, features=features, family=family, kernel=kernel, target=target,
        workload=workload, weights=weights, bound=bound, float32=float32, noise=noise, calibration=calibration,
    )  # fmt: skip
    mechanism = kind(choices).mechanism(epsilon, delta, rehearsal)
    if unit is not None and kind.no_units:
        raise PublishError(kind.no_units)
    measuring, choices = chosen_kind(method, choices, domain)  # rules are checked before the table is opened
    account, reading = Account(ledger, table, uncounted, weak, rehearsal), Reading(n_rows, unit, workers, executor)
    file = Output(output, force)
    rows = open_checked(
        private, domain, (account, reading, file), points=public_points, columns=domain, workload=workload,
        domain_path=domain_path,
    )  # fmt: skip
    chosen = with_inputs(measuring, choices, domain)
    with file.reserved():
        with counted_rows(rows, domain, unit, executor or Here()) as (encoded, size):
            del rows
            chosen.prepare(domain, size, mechanism)
            spending = spending_of(account, mechanism, size, chosen.name, output)
            door = Door(encoded, mechanism, size, spending.record, workers or processors(), progress)
            with spending.note_budget_spent():
                measured = chosen.measure(door, domain, size)
                del encoded, door  # from here on, post-processing
        with spending.note_budget_spent():
            release = to_release(
                chosen, measured, mechanism, domain, size, ledger_head=spending.head, progress=progress
            )
            spending.write(release.write)
    spending.published()
    return release


def to_release(
    method: ReleaseMethod,
    measured: Measured,
    mechanism: Any,
    domain: Domain,
    size: PopulationSize,
    *,
    ledger_head: str | None = None,
    progress: Progress | None = None,
) -> Release:
    """The release that a measurement or a draw becomes: everything after the door, in memory. Post-processing."""
    encoded, weights = method.represent(measured, domain, progress)
    measurement = measured.rounds[-1] if measured.rounds else None
    distance = None
    if measurement is not None:
        fitted = feature_mean(measurement.feature_map, encoded, weights)
        distance = float(np.linalg.norm(fitted - measurement.vector))
    view, statement = method.choices.weights, method.statement(measured, mechanism, size, len(encoded))
    public = (*statement.taken_as_public, *named_rules(domain))
    return Release(
        points=domain.decode(encoded, float32=method.choices.float32),
        weights=weights,
        measurement=measurement,
        kernel=measured.kernel,
        domain=domain,
        statement=replace(statement, taken_as_public=public, ledger_head=ledger_head),
        method=method.name,
        weight_view="probability" if view == "uniform" else view,
        fit_distance=distance,
    )
