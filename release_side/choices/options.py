"""Defaults and checks before the door, from public facts alone, and what a release takes as public, in words.

Kernel, features, points and sizes follow from the domain, N, ε, δ and public files. Random generators have public seeds,
so that two releases with the same kernel, domain and size share a feature map.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.composed import tables_of
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.releases.domain.domain import Domain, read_domain
from kmeanalyst.releases.domain.draft import Draft
from kmeanalyst.releases.file.header import plain
from kmeanalyst.releases.file.kernel import check_kernel as check_file_kernel
from kmeanalyst.releases.file.kernel import kernel_of, kernel_work
from kmeanalyst.releases.file.limits import MOST_BYTES, MOST_KERNEL_WORK, MOST_MEMBERS, USUAL, FileRefused
from kmeanalyst.releases.file.points import cells_of_a_row
from kmeanalyst.releases.file.reading import reading_work, trying_work
from kmeanalyst.releases.statement import PopulationSize
from release_side.choices.public_inputs import open_public
from release_side.errors import PublishError
from release_side.private_rows.rows import Table

DEFAULT_POINTS = 1000
MOST_DEFAULT_POINTS = 2000  # points with random features, if the noise is small enough for more points to help
FEATURES = 4000
GENERATOR_FEATURES = 1000  # features of the random part, before it is crossed with a target
MOST_PUBLIC_POINTS = 3000
PAPER_TOLERANCE = 1e-5  # tolerance on the squared distance to the span, as in the code of Balog et al.
NO_PROTECTION = "a person whose row is public gets no protection for it"
KERNEL = "the kernel and its lengthscales, chosen from the domain or by the curator"
_RULES = "Write shorter rules, of columns with fewer values, or leave some out"


def check_readable(n_points: int, domain: Domain, feature_map: FeatureMap) -> None:
    """PublishError, before anything is spent, if the release would be larger than readers allow."""
    work = kernel_work(feature_map.kernel, domain.width)
    basis = feature_map.dimension if isinstance(feature_map, Nystroem) else 0
    cells = n_points * cells_of_a_row(domain)
    n_bytes = 8 * (feature_map.dimension + sum(array.size for array in feature_map.arrays().values())) + 40 * cells
    for what, size, most, hint in (
        ("columns", domain.width, USUAL.columns, "Publish fewer columns"),
        ("points", n_points, USUAL.points, "Pass fewer points"),
        ("cells of points", cells, USUAL.cells, "Pass fewer points"),
        ("basis points of the subspace", basis, USUAL.basis_points, "Pass fewer points"),
        ("steps to make the kernel's matrix", work, MOST_KERNEL_WORK, "Choose a simpler kernel"),
        ("steps to make the subspace", basis**2 * work, USUAL.basis_work, "Pass fewer points"),
        ("arrays", len(feature_map.arrays()), MOST_MEMBERS - 16, "Choose a simpler kernel"),
        ("tables in its margins", tables_of(feature_map.kernel), USUAL.tables, "Publish fewer columns"),
        ("bytes", n_bytes, MOST_BYTES, "Pass fewer features"),
        ("steps to read its rules", reading_work(domain.rules, domain, n_points), USUAL.derived_work, _RULES),
        ("steps to try its rules", trying_work(domain, n_points, feature_map), USUAL.rule_work, _RULES),
    ):
        if size > most:
            raise PublishError(f"the release would have {size:,} {what}, and readers allow {most:,}. {hint}.")


def chosen_domain(domain: Any) -> Domain:
    """The domain that the curator passed, or that of the file at a path; PublishError for anything else."""
    if isinstance(domain, Draft):
        raise PublishError(
            "this is the draft of a domain, and its notes say what to check: all that a domain holds is published. Read "
            "draft.notes, correct what is wrong, and pass draft.domain."
        )
    if not isinstance(domain, Domain | str | Path):
        raise PublishError(
            f"the domain must be a Domain or the path of its TOML file, got {type(domain).__name__}: names, bounds and levels of "
            "columns are public, and do not come from the table. Pass ka.Domain((ka.Real(name='x', lower=0, upper=1), "
            "ka.Boolean(name='y'))), and of an array X the table pd.DataFrame(X, columns=domain.names)."
        )
    return domain if isinstance(domain, Domain) else read_domain(domain)


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def public_rows(source: Table | None, domain: Domain) -> Array | None:
    """Public rows (m, d), encoded as the release will hold them; None if there are none."""
    if source is None:
        return None
    frame = source if isinstance(source, pd.DataFrame) else open_public(source).frame(domain)
    if len(frame) == 0:
        raise PublishError("the file of public points has no rows. Name one that has, or leave it out.")
    domain.check_has_columns(frame, what="the file of public points")
    return domain.encode(domain.decode(domain.encode(frame)))


def kernel_as_read(kernel: Kernel, domain: Domain) -> Kernel:
    """The kernel as a reader of the file will make it; PublishError, before anything is spent, if no reader could.

    A kernel that no file can name has no proven bound, so a private row could change the sum by any amount.
    """
    check_named(kernel)
    try:
        known = kernel_of(plain(kernel.to_dict()), domain.width)
        check_file_kernel(known, domain, domain.decode(domain.draw(8, 0)))
    except FileRefused:
        raise _unread(kernel) from None
    return known


def check_named(kernel: Kernel) -> None:
    """PublishError for a kernel of the caller's own, without a name or fields: no file can hold it."""
    try:
        plain(kernel.to_dict())
    except (AttributeError, TypeError):
        raise _unread(kernel) from None


def _unread(kernel: Kernel) -> PublishError:
    return PublishError(
        f"no reader would take the kernel {type(kernel).__name__}: it is unknown to them, or has no bound, or does not fit these "
        "columns. A file holds a kernel's name and parameters. Name a kernel of this package, made for the domain, as "
        'kernel="gaussian:lengthscale=0.5"; ka.mmd_test takes any Kernel.'
    )


@contextmanager
def fitting(problem: str = "the kernel does not fit the domain, so no release could be made") -> Iterator[None]:
    """Raise errors of kernels and feature maps as PublishError; `problem` opens the message."""
    try:
        yield
    except PublishError:
        raise
    except (ValueError, IndexError, ArithmeticError) as error:
        raise PublishError(f"{problem}: {error}") from None


def public_generator(what: str, kernel: Kernel, domain: Domain, size: int) -> np.random.Generator:
    """A generator seeded by public facts, so that releases of one kernel, domain and size share features."""
    facts = json.dumps([what, kernel.to_dict(), domain.to_dict(), size], sort_keys=True)
    return np.random.default_rng(int.from_bytes(hashlib.sha256(facts.encode()).digest()[:16], "big"))


def taken_as_public(size: PopulationSize, kernel: str, *others: str) -> tuple[str, ...]:
    """What a release treats as public, in words: what every release does, its kernel, and what its method adds."""
    count = "the number of rows N and the names of the columns"
    if size.unit is not None:
        count = f"the number P of {size.counted} (not that of their rows) and the names of the columns, {size.unit!r} included"
    return (count, "the domain: kinds, bounds, levels, scales, steps, defaults, edges and atoms", kernel, *others)
