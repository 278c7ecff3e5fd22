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
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.statement import PopulationSize, PrivacyStatement
from kmeanalyst.representation.progress import Progress
from release_side.budget.spending import spending_of
from release_side.choices.choices import Account, Reading
from release_side.choices.options import chosen_domain, processors
from release_side.choices.output_file import Output
from release_side.choices.workload import Source
from release_side.door.door import Door
from release_side.errors import PublishError
from release_side.executors.executor import Executor, Here
from release_side.private_rows.reading import counted_rows
from release_side.private_rows.rows import PrivateSource, Table
from release_side.publishing.methods import Drawn, MeanMethod, ReleaseMethod, chosen_kind, method_class, with_inputs
from release_side.publishing.opening import open_checked
from release_side.publishing.unfinished import Begun, kept_until_written


def publish(
    private: PrivateSource, domain: Domain | str | Path | None = None, *, epsilon: float, delta: float,
    method: str = "random-features", public_points: Table | None = None, points: int | None = None,
    features: int | None = None, family: str | None = None, kernel: Kernel | str | None = None,
    target: str | Sequence[str] | None = None, workload: Source | None = None,
    like: str | Path | Release | None = None, weights: str = "probability", bound: float | None = None,
    float32: bool = False, noise: str = "gaussian", calibration: str | None = None,
    ledger: str | Path | None = None, table: str | None = None, uncounted: bool = False, weak: bool = False,
    unit: str | None = None, n_rows: int | None = None, rehearsal: int | None = None, workers: int | None = None,
    executor: Executor | None = None, output: str | Path | None = None, force: bool = False,
    progress: Progress | None = None,
) -> Release:  # fmt: skip
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
    like            a release of adaptive margins, or its file: the same tables are measured, to be compared cell by cell.
    weights         "probability", "bounded" (Σ|w| ≤ bound, 1 by default), "signed" (2), "uniform" (1/M) or "published" (subspace).
    bound           the largest Σ|w| of bounded and signed weights (by default none of signed ones on public rows alone).
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
    if like is not None:
        if method != "random-features" or kernel or target or workload:
            raise PublishError(
                "like takes over what another release measured, and method, kernel, target or workload say something else. Leave "
                "them out."
            )
        kernel = _kernel_like(like, domain, rehearsal)
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
        others=(domain_path, like),
    )  # fmt: skip
    chosen = with_inputs(measuring, choices, domain)
    with file.reserved():
        with counted_rows(rows, domain, unit, executor or Here()) as (encoded, size):
            del rows
            chosen.prepare(domain, size, mechanism)
            spending = spending_of(account, mechanism, size, chosen.measures or chosen.name, output)
            door = Door(encoded, mechanism, size, spending.record, workers or processors(), progress)
            with spending.note_budget_spent():
                measured = chosen.measure(door, domain, size)
                del encoded, door  # from here on, post-processing
        with spending.note_budget_spent():
            begun = begun_with(chosen, measured, mechanism, domain, size, spending.head, is_like=like is not None)
            with kept_until_written(output, begun):
                release = begun.release(progress) if begun else _of_draw(chosen, measured, mechanism, domain, size, spending.head)
                spending.write(release.write)
    spending.published()
    return release


def _kernel_like(like: str | Path | Release, domain: Domain, rehearsal: int | None) -> Kernel:
    """The kernel that counts the tables of another release, whose file is public; PublishError where this domain has others.

    Nothing is chosen by rows then, and so nothing is spent on choosing.
    """
    if not isinstance(like, Release):
        try:
            like = read_release(like, allow_rehearsal=rehearsal is not None)
        except (ValueError, OSError) as error:
            raise PublishError(str(error)) from None
    if like.is_rehearsal and rehearsal is None:
        raise PublishError(
            "the release to be like is a rehearsal, whose noise can be subtracted: if its table is this one, its choice of tables "
            "is private. Name a published release."
        )
    if like.measurement is None or not isinstance(like.measurement.feature_map, MarginFeatures):
        raise PublishError("the release to be like measured no tables of columns. Name one of adaptive margins, the default.")
    if like.domain.columns != domain.columns:
        raise PublishError(
            "the release to be like has other columns, bounds or levels than this domain, so its cells are not those of this "
            "table. Publish with the domain of that release."
        )
    return like.measurement.feature_map.kernel


_LIKE = "which tables are measured, as another release has them"


def begun_with(
    method: ReleaseMethod, measured: Measurement | Drawn, mechanism: Any, domain: Domain, size: PopulationSize,
    head: str | None = None, *, is_like: bool = False,
) -> Begun | None:  # fmt: skip
    """A measurement with its statement: everything after the door is post-processing of it. None for a draw.

    head      digest of the ledger's entry.
    is_like   whether the tables are those of another release.
    """
    if isinstance(measured, Drawn):
        return None
    assert isinstance(method, MeanMethod)
    wanted = method.wanted(measured, domain)
    statement = method.statement(measured, mechanism, size, wanted.n_points)
    statement = _completed(statement, domain, head, *([_LIKE] if is_like else []))
    return Begun(measurement=measured, domain=domain, statement=statement, wanted=wanted, method=method.name)


def _of_draw(
    method: ReleaseMethod, measured: Any, mechanism: Any, domain: Domain, size: PopulationSize, head: str | None
) -> Release:
    """The release of a database that was drawn instead of measured: points of weight 1/M, twice where a row was drawn twice."""
    rows = measured.rows
    statement = _completed(method.statement(measured, mechanism, size, len(rows)), domain, head)
    return Release(
        points=domain.decode(rows, float32=method.choices.float32), weights=np.full(len(rows), 1 / len(rows)), measurement=None,
        kernel=measured.databases.kernel, domain=domain, statement=statement, method=method.name, weight_view="probability",
    )  # fmt: skip


def _completed(statement: PrivacyStatement, domain: Domain, head: str | None, *public: str) -> PrivacyStatement:
    rules = [f"rules of the domain: {len(domain.rules)}"] if domain.rules else []
    return replace(statement, taken_as_public=(*statement.taken_as_public, *rules, *public), ledger_head=head)
