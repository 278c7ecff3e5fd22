"""What the curator chooses before the door opens, from public facts alone: checked, defaulted, drawn.

Kernel, features, points and sizes follow from the domain, N, ε, δ and public files; the seeds are public, so that
two releases of one kernel, domain and size share a feature map.

Which features a kernel is measured in, by the curator's choice: drawn from public facts alone.

fourier        independent random Fourier features, the default (Rahimi & Recht 2007)
orthogonal     Fourier features whose frequencies come in orthogonal blocks (Yu et al. 2016)
quasi-random   Fourier features whose frequencies are a Sobol sequence with a random shift (Avron et al. 2016)
binning        random binning of the laplacian kernel (Rahimi & Recht 2007): diameter √2 instead of 2
maclaurin      of polynomial and exponential-dot kernels, and their default (Kar & Karnick 2012)
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.dot_product import DotProduct
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.binning import RandomBinning
from kmeanalyst.kernels.features.composed import tables_of
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.maclaurin import RandomMaclaurin
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.tables import read_table
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.file.header import plain
from kmeanalyst.releases.file.kernel import check_kernel as check_file_kernel
from kmeanalyst.releases.file.kernel import kernel_of, kernel_work
from kmeanalyst.releases.file.limits import MOST_BYTES, MOST_KERNEL_WORK, MOST_MEMBERS, USUAL, FileRefused
from kmeanalyst.releases.file.points import cells_of_a_row
from kmeanalyst.releases.measurement import Measurement
from release_side.errors import PublishError
from release_side.private_rows.rows import Table

_FREQUENCIES = {"fourier": "independent", "orthogonal": "orthogonal", "quasi-random": "quasi-random"}
Generator = Callable[[str], np.random.Generator]  # a generator seeded by public facts and by what it is for


def features_of(family: str | None, kernel: Kernel, domain: Domain, dimension: int, generator: Generator) -> FeatureMap:
    """About `dimension` coordinates of a kernel on all columns of the domain; ValueError if the family has none for it.

    family      None for maclaurin if the kernel is a dot product, else fourier.
    generator   gives a generator seeded by public facts, told what it is for.
    """
    family = family or ("maclaurin" if isinstance(kernel, DotProduct) else "fourier")
    if family in _FREQUENCIES:
        frequencies = _FREQUENCIES[family]
        return RandomFourier.draw(
            kernel, n_columns=len(domain), dimension=dimension, missing_columns=domain.missing_columns,
            frequencies=frequencies,
            rng=generator("frequencies" if family == "fourier" else f"{frequencies} frequencies"),
        )  # fmt: skip
    if family == "maclaurin":
        return RandomMaclaurin.draw(kernel, dimension=dimension, rng=generator(family))  # type: ignore[arg-type]
    return RandomBinning.draw(
        kernel, bounds=_bounds(domain), dimension=dimension, missing_columns=tuple(domain.missing_columns),
        rng=generator(family),
    )  # fmt: skip


def _bounds(domain: Domain) -> Array:
    """(d, 2) the columns' public bounds, encoded; ValueError if some have levels."""
    levels = [column.name for column in domain.columns if isinstance(column, Categorical)]
    if levels:
        raise ValueError(
            f"these features are of numbers, and {', '.join(levels)} have levels. Choose another family, or leave them out"
        )
    return np.array([column.bounds for column in domain.columns], dtype=float)  # type: ignore[attr-defined]


DEFAULT_POINTS = 1000
MOST_DEFAULT_POINTS = 2000  # of random features, where the noise is small enough to see the difference
MOST_ROWS = 50_000  # rows drawn from classes or a generator: as many as the table has, within reason
FEATURES = 4000
GENERATOR_FEATURES = 1000  # of the random part, before it is crossed with a target
MOST_PUBLIC_POINTS = 3000
PAPER_TOLERANCE = 1e-5  # on the squared distance to the span, as in the code of Balog et al.


def check_strings(method: str, domain: Domain, public_points: Table | None, *, places_points: bool) -> None:
    """PublishError if there are strings, and the method would have to invent some."""
    texts = ", ".join(column.name for column in domain.columns if isinstance(column, Text))
    if not texts:
        return
    if places_points:
        raise PublishError(
            f"{texts} is a column of texts, and the method {method} draws or moves points: there is no string between two "
            'others. Use method "subspace" with public points, or leave the column out of the domain.'
        )
    if public_points is None:
        raise PublishError(
            f"{texts} is a column of texts, and strings drawn at random would be like none in the table. Name public "
            "points: a file of rows, with strings, that are public already."
        )


def check_workers(workers: int | None) -> None:
    """PublishError unless this can be a number of threads."""
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise PublishError(
            f"workers must be a whole number of at least 1, got {workers!r}. Leave it out for the default."
        )


def most_rows(domain: Domain) -> int:
    """How many rows are drawn at most: of a wide table as many as readers allow."""
    return min(MOST_ROWS, USUAL.cells // cells_of_a_row(domain))


def drawn_rows(measurement: Measurement, domain: Domain) -> int:
    """How many rows of equal weight are drawn by default: as many as the table has, within limits."""
    return int(np.clip(measurement.n_rows, DEFAULT_POINTS, most_rows(domain)))


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
    ):
        if size > most:
            raise PublishError(f"the release would have {size:,} {what}, and readers allow {most:,}. {hint}.")


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def public_rows(source: Table | None, domain: Domain) -> Array | None:
    """Public rows, encoded as the release will hold them."""
    if source is None:
        return None
    frame = source if isinstance(source, pd.DataFrame) else read_table(source)
    if len(frame) == 0:
        raise PublishError("the file of public points has no rows. Name one that has, or leave it out.")
    domain.check_has_columns(frame, what="the file of public points")
    return domain.encode(domain.decode(domain.encode(frame)))


def kernel_as_read(kernel: Kernel, domain: Domain) -> Kernel:
    """The kernel as a reader of the file will make it; PublishError if none could, before anything is spent.

    One that no file can name might do with a private row what nobody has proven anything about.
    """
    try:
        known = kernel_of(plain(kernel.to_dict()), domain.width)
        check_file_kernel(known, domain, domain.decode(domain.draw(8, 0)))
    except FileRefused:
        raise PublishError(
            f"no reader would take the kernel {kernel!r:.80}: it is unknown to them, or without a bound, or not of these "
            "columns. Name a kernel of this package, made for the domain."
        ) from None
    return known


@contextmanager
def fitting() -> Iterator[None]:
    """What a kernel that does not fit the domain raises, as PublishError."""
    try:
        yield
    except PublishError:
        raise
    except (ValueError, IndexError, ArithmeticError) as error:
        raise PublishError(f"the kernel does not fit the domain, so no release could be made: {error}") from None


def public_generator(what: str, kernel: Kernel, domain: Domain, size: int) -> np.random.Generator:
    """A generator seeded by public facts, so that releases of one kernel, domain and size share features."""
    facts = json.dumps([what, kernel.to_dict(), domain.to_dict(), size], sort_keys=True)
    return np.random.default_rng(int.from_bytes(hashlib.sha256(facts.encode()).digest()[:16], "big"))
