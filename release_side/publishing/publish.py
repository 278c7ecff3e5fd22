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
from kmeanalyst.releases.domain.domain import Domain, read_domain
from kmeanalyst.releases.measurement import feature_mean
from kmeanalyst.releases.population_size import PopulationSize
from kmeanalyst.representation.progress import Progress
from release_side.budget.spending import Counting
from release_side.choices.choices import check_whole
from release_side.choices.options import processors
from release_side.choices.statement import named_rules
from release_side.choices.workload import Source
from release_side.door.door import Door
from release_side.errors import PublishError
from release_side.executors.executor import Executor, Here, check_executor
from release_side.private_rows.reading import counted_rows
from release_side.private_rows.rows import PrivateSource, Table, open_private
from release_side.publishing.methods import Measured, ReleaseMethod, chosen_method, method_class


def publish(
    private: PrivateSource,
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

    private         path, folder, glob or URL of files (CSV, Parquet, Arrow), a DataFrame of pandas, `release_side.sql(…)`, or what
                    yields Arrow record batches; how each is read, and how to read types without guesses, is in
                    kmeanalyst/sources/SOURCES.md. With executor=Dask(client) also a DataFrame of Dask.
    domain          Domain, or the path of its TOML file: public columns, bounds and levels.
    method          "random-features" (Algorithm 2), "subspace" (Algorithm 1), "generator" (DP-MERF: a network is
                    trained on the measurement and gives rows of equal weight; needs the extra kmeanalyst[generator]), or
                    "exponential": M rows of a small domain are drawn, nothing is measured, and delta is 0.
    public_points   rows that are already public: Algorithm 1's points, Algorithm 2's start, or a grid to draw from.
    points          M; by default 1000 to 2000; for margins and a generator the table's number of rows (1000, adaptive 5000, to
                    50,000);
                    for a subspace the public rows, up to 3000.
    features        F, the number of coordinates that random features measure (cosine and sine count two); 4000 by
                    default. With a generator those of the random part of its kernel, 1000 by default: the cells of margins
                    are added, and a target multiplies them by its number of classes.
    family          of random features: "fourier", "orthogonal" or "quasi-random" frequencies; "binning" (laplacian kernel),
                    or "maclaurin" (polynomial, exponential-dot: their default).
    kernel          Kernel or its text. "adaptive" (the default, but for six columns of numbers or fewer): one-way
                    tables of levels, ranges and atoms, then tables of those pairs of columns that noisy scores show to be
                    related. "table" (the default for few numbers, for text and cyclic columns, with Laplace noise, and where
                    features, family, public points or signed weights are named): a product over the columns, by random
                    features. "margins" (the default with a target): all one-way and two-way tables, crossed with the target;
                    where these have more than 100,000 cells, "adaptive" crosses chosen pairs with it.
                    "generator" (the default of that method): numbers by a Gaussian kernel, together with one-way tables of
                    levels, atoms and missing cells.
    target          a column that models will predict: its relations to pairs of others are measured as well. With a
                    generator: the label; everything else is measured for each of its classes. A list of several: adaptive
                    margins, as with a workload of the tables of each with every other column.
    workload        what will be asked: the path of a text file with a question on each line, or a list of such lines (see
                    `release_side.choices.workload`). Adaptive margins, the default with it, then measure the pairs of columns
                    that a question names in any case, and single columns that it names better than others. Public: it must
                    not be taken from the private table.
    weights         "probability", "bounded" (Σ|w| ≤ bound, 1 by default), "signed" (2), "uniform" (1/M each; random
                    features), or "published" (subspace).
    float32         real columns of the points hold single precision numbers, and the weights are fitted to these.
    noise           "gaussian", or "laplace" for pure differential privacy (delta = 0).
    calibration     of Gaussian noise: "analytic" (default), the least noise that gives (epsilon, delta); or "zcdp", a
                    little more, at which (epsilon, delta) follows from ρ alone.
    ledger, table   file that adds up what the releases of this table spend, and the curator's name for the table: the
                    spend is recorded before noise is drawn, and refused if it exceeds the table's budget. Ledger and
                    table must exist (`release-side ledger init`). Without a ledger there is one UserWarning.
    uncounted       publish without a ledger, and without the warning. On the command line one of the two is required.
    weak            publish although epsilon is above 10, or delta at least 1/N: an error otherwise.
    unit            column that identifies the units (patients, say): all rows of a unit are protected together, and the
                    release estimates the distribution in which every unit weighs the same. The number of units is public
                    then, the number of rows is not; the column's name is published. Rows with an empty cell there are the
                    rows of one unit.
    n_rows          the number of rows of an Arrow stream, which is then read once; a RecordBatchReader needs it. An error if
                    the stream has more or fewer. With unit the number of rows is not public, and n_rows is not compared.
    rehearsal       a seed: the noise can be drawn again, and the release is NOT PRIVATE and stamped so. For data
                    that need no protection. Needs neither a ledger, nor uncounted, nor weak.
    workers         threads; by default one for each processor. No bit of the result depends on it.
    executor        who reads the table instead of the threads of this process: `Processes(N)` of this machine, or the
                    workers of a cluster, `Dask(client)`. No bit of the result depends on it.
    output          file to write the release to as well; the ledger records its name. An output that cannot be written is
                    refused before anything is spent.
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
    domain_path, domain = domain, domain if isinstance(domain, Domain) else read_domain(domain)
    kind = method_class(method)
    choices = kind.options(
        public_points=public_points, points=points, features=features, family=family, kernel=kernel, target=target,
        workload=workload, weights=weights, bound=bound, float32=float32, noise=noise, calibration=calibration,
    )  # fmt: skip
    mechanism = kind(choices).mechanism(epsilon, delta, rehearsal)
    check_whole("workers", workers, 1)
    check_executor(executor, workers)
    private = private if executor is None else executor.table_of(private)
    check_whole("n_rows", n_rows, 1)
    if unit is not None and kind.no_units:
        raise PublishError(kind.no_units)
    counting = Counting(
        ledger=ledger, table=table, uncounted=uncounted, weak=weak, rehearsal=rehearsal, output=output, force=force
    )
    counting.check_before_opening(private, public_points, domain, domain, (domain_path, public_points), workload)
    chosen = chosen_method(method, choices, domain)
    rows = open_private(private, n_rows)
    rows.check_columns(domain)
    with counted_rows(rows, domain, unit, executor or Here()) as (encoded, size):
        del rows
        chosen.prepare(domain, size, mechanism)
        spending = counting.spending(mechanism, size, chosen.name)
        door = Door(encoded, mechanism, size, spending.record, workers or processors(), progress)
        with spending.note_budget_spent():
            measured = chosen.measure(door, domain, size)
            del encoded, door  # from here on, post-processing
    with spending.note_budget_spent():
        release = to_release(chosen, measured, mechanism, domain, size, ledger_head=spending.head, progress=progress)
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
