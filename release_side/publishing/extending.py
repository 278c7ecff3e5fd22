"""Later points of a released function, without a further spend (Hall, Rinaldo & Wasserman 2013, §3.2).

A release of coordinates is a part of one noisy function: further pivots add further coordinates of the same function,
orthogonal to the old ones, with noise of their own, and old and new together are what one release at all pivots would
have been. Three things must hold for that, and are seen to: old and new coordinates are bounded together; each coordinate
is drawn once (the ledger lets a state of the function be extended once); and the table is the one it was. The last is
the curator's word: nobody looks at the rows, and no error or count tells whether they have changed. PROOF.md §12.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from kmeanalyst.kernels.features.pivots import Pivots
from kmeanalyst.releases.domain.domain import Domain, read_domain
from kmeanalyst.releases.file import read_function
from kmeanalyst.releases.function import ReleasedFunction, function_of
from kmeanalyst.representation.progress import Progress
from release_side.budget.ledger import Ledger
from release_side.choices.options import check_workers, processors, public_rows
from release_side.choices.output_file import check_output
from release_side.choices.public_inputs import refuse_private_as_public
from release_side.door.kernel_machines import MOST_PARTS, plan_machine
from release_side.door.mechanism import SPENT, GaussianNoise, PublishError
from release_side.private_rows.rows import Table, open_private
from release_side.publishing.functions import (
    candidate_points,
    check_pivots,
    function_digest,
    measured,
    taken_as_public,
    write_function,
)

_SAME_NOISE = 1e-9  # relative; the noise of old and new coordinates is one number in the file


def extend_function(
    private: Table,
    domain: Domain | str | Path,
    function: ReleasedFunction | str | Path,
    *,
    ledger: str | Path,
    table: str,
    pivots: Table | None = None,
    grid: int | None = None,
    workers: int | None = None,
    output: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> ReleasedFunction:
    """Measure a released function at further public points. Old and new together cost what the old did.

    private, domain  the table and the domain that the function was published with: the same rows, unchanged.
    function         the latest release of it, or its file.
    ledger, table    where it was counted: one state of a function can be extended once, and only by this ledger.
    pivots, grid     the further points, as in `publish_function`; those that the old pivots span are left out.
    Returns          ReleasedFunction at the old pivots, whose coordinates stay what they were, and the new ones.
    Errors           PublishError or DomainError, by public facts alone.

    Guarantee        (ε, δ) of the function's statement holds for old and new coordinates together, if the table is as it
                     was. If it is not, this is a second release of ε and δ, which nobody counts.

    >>> account = release_side.Ledger("functions.ledger").init("people", epsilon=2.0, delta=1e-6)
    >>> counted = {"ledger": "functions.ledger", "table": "people"}
    >>> ages = ka.Domain((ka.Integer(name="age", lower=17, upper=90),))
    >>> few = release_side.publish_function("private.csv", ages, kind="density", epsilon=1, delta=1e-6, grid=5, **counted)
    >>> more = release_side.extend_function("private.csv", ages, few, grid=9, **counted)
    >>> len(few.pivots), len(more.pivots) > len(few.pivots)
    (5, True)
    """
    check_workers(workers)
    domain_path, domain = domain, domain if isinstance(domain, Domain) else read_domain(domain)
    function_path = function if isinstance(function, str | Path) else None
    released = function if isinstance(function, ReleasedFunction) else _read(function)
    _check_same_columns(released, domain)
    check_output(output, private=private, ledger=ledger, others=(domain_path, pivots, function_path), force=force)
    refuse_private_as_public(private, pivots, released.domain, domain.samples)
    state, book = function_digest(released), Ledger(ledger)
    book.check_extensible(table, state, most=MOST_PARTS)
    mechanism = _same_noise(released)
    basis = _further(released, pivots, grid, book.parts(state))
    rows, n_rows = open_private(private), released.statement.n_rows
    rows.check_columns(domain)
    if rows.count() != n_rows:
        raise PublishError(
            f"the table has {rows.count()} rows, and the function is of {n_rows}: it is another table. Name the same one."
        )
    if released.form.target is not None:
        plan_machine(released.form, basis, n_rows)
    releases: list[int] = []
    with _told_if_drawn(releases):
        noisy = measured(
            rows, domain, released.form, basis, mechanism, n_rows=n_rows, workers=workers or processors(),
            progress=progress, record_spend=lambda: releases.append(book.extend(table, state, most=MOST_PARTS)),
        )  # fmt: skip
        extended = _joined(released, basis, noisy.noisy_sum, given=pivots is not None, ledger_head=book.head())
        book.register_function(releases[0], function_digest(extended), basis.dimension)
        if output is not None:
            write_function(extended, output)
    return extended


@contextmanager
def _told_if_drawn(releases: list[int]) -> Iterator[None]:
    """Whatever fails after the state was marked says that it cannot be extended again."""
    try:
        yield
    except PublishError as error:
        if not releases:
            raise
        raise PublishError(
            f"{error} The noise had been drawn, so the old file counts as extended: publish another function."
        ) from None
    except BaseException as error:
        if releases:
            error.add_note(SPENT)
        raise


def _read(path: str | Path) -> ReleasedFunction:
    try:
        return read_function(path)
    except ValueError as error:
        raise PublishError(str(error)) from None


def _check_same_columns(function: ReleasedFunction, domain: Domain) -> None:
    target = function.form.target
    inputs = tuple(column for column in domain.columns if target is None or column.name != target.name)
    same_target = target is None or (target.name in domain.names and domain[target.name] == target)
    if inputs != function.domain.columns or not same_target:
        raise PublishError(
            "the domain is not the one that the function was published with, so its rows would not be encoded alike. Name "
            "the same domain file."
        )


def _further(
    function: ReleasedFunction, pivots: Table | None, grid: int | None, parts: Sequence[int]
) -> Pivots:  # fmt: skip
    """The old pivots and the new ones; parts says how many pivots there were after each part."""
    if (pivots is None) == (grid is None):
        raise PublishError("an extension needs further points: pivots, or a grid, and not both. Pass one of them.")
    old = function.basis
    points = public_rows(pivots, function.domain) if pivots is not None else None
    if points is None:
        points = candidate_points(old.kernel, function.domain, grid)
    check_pivots(old.dimension + len(points), old.kernel, function.domain)
    try:
        return old.extended(points, parts=parts)
    except ValueError as error:
        raise PublishError(f"there is nothing to extend: {error}") from None


def _same_noise(function: ReleasedFunction) -> GaussianNoise:
    """The law of the noise that the old coordinates have."""
    promise, form = function.statement, function.form
    if function.is_rehearsal:
        raise PublishError("the function is a rehearsal, which protects nobody and is not extended. Rehearse it anew.")
    noise = GaussianNoise(promise.epsilon, promise.delta, promise.calibration)
    scale = noise.deviation(form.grid_sensitivity(function.basis)) * form.unit(function.basis, promise.n_rows)
    if not math.isclose(scale, function.noise_scale, rel_tol=_SAME_NOISE):
        raise PublishError(
            f"the function's noise is {function.noise_scale:.9g}, and this software would draw {scale:.9g}: one law has to "
            "hold for all of it. Extend it with the software that made it, which its statement names."
        )
    return noise


def _joined(
    function: ReleasedFunction, basis: Pivots, noisy_sum: np.ndarray, *, given: bool, ledger_head: str
) -> ReleasedFunction:
    """The old coordinates as they are, and of the newly drawn ones those that are new; the rest is thrown away.

    ledger_head   digest of an entry at or after the one that counted the extension.
    """
    old = function.basis.dimension
    added = basis.dimension - old
    promise = replace(function.statement, ledger_head=ledger_head)
    if given:
        public = promise.public_points + added
        promise = replace(promise, public_points=public, taken_as_public=taken_as_public(function.form, given=True))
    return function_of(
        form=function.form, domain=function.domain, basis=basis,
        noisy_sum=np.concatenate([function.noisy_sum, noisy_sum[old:]]),
        statement=promise,
    )  # fmt: skip


__all__ = ["extend_function"]
