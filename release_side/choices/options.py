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
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd

from kmeanalyst.kernels import Kernel, Margins
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.dot_product import DotProduct
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.binning import RandomBinning
from kmeanalyst.kernels.features.composed import composed_features, margins_in, tables_of
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.maclaurin import RandomMaclaurin
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.tables import read_table
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.file.header import plain
from kmeanalyst.releases.file.kernel import check_kernel as check_file_kernel
from kmeanalyst.releases.file.kernel import kernel_of, kernel_work
from kmeanalyst.releases.file.limits import MOST_BYTES, MOST_KERNEL_WORK, MOST_MEMBERS, USUAL, FileRefused
from kmeanalyst.releases.file.measurement import check_readable_map
from kmeanalyst.releases.file.points import cells_of_a_row
from kmeanalyst.releases.measurement import GRID, Measurement, grid_sensitivity, mean_unit
from kmeanalyst.representation.generator.generator import check_kernel, check_torch
from kmeanalyst.representation.weights.reweight import WEIGHT_VIEWS
from release_side.door.mechanism import Noise, PublishError, RehearsalNoise, check_int64_range
from release_side.private_rows.rows import Table

FAMILIES = ("fourier", "orthogonal", "quasi-random", "binning", "maclaurin")
_FREQUENCIES = {"fourier": "independent", "orthogonal": "orthogonal", "quasi-random": "quasi-random"}
Generator = Callable[[str], np.random.Generator]  # a generator seeded by public facts and by what it is for


def check_family(family: str | None, method: str, features: int | None) -> None:
    """PublishError unless the family is known, goes with the method, and can have so many features."""
    if family is not None and family not in FAMILIES:
        raise PublishError(f"family must be one of {', '.join(FAMILIES)}, got {family!r:.80}. Name one of these.")
    if family is not None and method != "random-features":
        raise PublishError(
            f'a family of features is of the method "random-features", and {method} has its own. Leave family out, or '
            "choose that method."
        )
    paired = family is None or family in _FREQUENCIES
    if paired and features is not None and features % 2:
        raise PublishError(f"features must be even, got {features}: cosine and sine come in pairs. Add one.")


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


METHODS = ("random-features", "subspace", "generator")  # that measure a mean
EVERY_METHOD = (*METHODS, "exponential")
WEIGHTS = (*WEIGHT_VIEWS, "uniform")
DEFAULT_POINTS = 1000
_MOST_DEFAULT_POINTS = 2000  # of random features, where the noise is small enough to see the difference
_MOST_ROWS = 50_000  # rows drawn from classes or a generator: as many as the table has, within reason
_FEATURES = 4000
_GENERATOR_FEATURES = 1000  # of the random part, before it is crossed with a target
_MOST_PUBLIC_POINTS = 3000
_PAPER_TOLERANCE = 1e-5  # on the squared distance to the span, as in the code of Balog et al.


def check_strings(method: str, domain: Domain, public_points: Table | None) -> None:
    """PublishError if there are strings, and the method would have to make some up."""
    texts = ", ".join(column.name for column in domain.columns if isinstance(column, Text))
    if not texts:
        return
    if method not in ("subspace", "exponential"):
        raise PublishError(
            f"{texts} is a column of texts, and the method {method} draws or moves points: there is no string between two "
            'others. Use method "subspace" with public points, or leave the column out of the domain.'
        )
    if public_points is None:
        raise PublishError(
            f"{texts} is a column of texts, and strings drawn at random would be like none in the table. Name public "
            "points: a file of rows, with strings, that are public already."
        )


def check_ledger(ledger: object, table: object, rehearsal: object, *, uncounted: bool = False) -> None:
    """PublishError unless ledger and table are named together, and neither for a rehearsal nor for an uncounted release."""
    if (ledger is None) != (table is None):
        raise PublishError("ledger and table go together: a ledger counts by names of tables. Pass both, or neither.")
    if ledger is not None and rehearsal is not None:
        raise PublishError("a rehearsal protects nobody, so a ledger has nothing to count. Leave out one of the two.")
    if ledger is not None and uncounted:
        raise PublishError(
            "ledger and uncounted contradict each other: a release is counted in the ledger, or it is not counted. Leave out one "
            "of the two."
        )


def check_choices(
    method: str,
    weights: str,
    points: int | None,
    features: int | None,
    bound: float | None,
    workers: int | None,
    *,
    float32: bool = False,
    family: str | None = None,
) -> None:
    """PublishError unless the choices are known and go together."""
    if method not in EVERY_METHOD:
        raise PublishError(f"method must be one of {', '.join(EVERY_METHOD)}, got {method!r}. Name one of these.")
    if weights not in WEIGHTS:
        raise PublishError(f"weights must be one of {', '.join(WEIGHTS)}, got {weights!r}. Name one of these.")
    if method == "subspace" and (weights == "uniform" or float32):
        raise PublishError(
            f"{'float32' if float32 else 'uniform weights'} is for points that are placed, and a subspace's points are "
            'given. Use method "random-features", or leave it out.'
        )
    if method == "generator":
        _check_generator(weights)
    if weights == "published" and method != "subspace":
        raise PublishError(
            'published weights are Algorithm 1\'s: they need method "subspace". Name it, or other weights.'
        )
    if features is not None and method == "subspace":
        raise PublishError("a subspace has as many features as it has points. Pass points, not features.")
    for name, value in (("points", points), ("features", features)):
        least = 1 if method == "exponential" else 2
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise PublishError(
                f"{name} must be a whole number of at least {least}, got {value!r}. Leave it out for the default."
            )
    check_family(family, method, features)
    if bound is not None and weights not in ("bounded", "signed"):
        raise PublishError(f"bound goes with bounded or signed weights: {weights} weights have none. Leave it out.")
    if bound is not None and not (isinstance(bound, int | float) and 0 < bound < np.inf):
        raise PublishError(f"bound must be a positive finite number, got {bound!r}: it limits Σ|w|. Pass e.g. 1.0.")
    check_workers(workers)


def check_workers(workers: int | None) -> None:
    """PublishError unless this can be a number of threads."""
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise PublishError(
            f"workers must be a whole number of at least 1, got {workers!r}. Leave it out for the default."
        )


def check_draw_choices(
    weights: str,
    features: int | None,
    bound: float | None,
    *,
    float32: bool,
    noise: str,
    calibration: str | None,
    family: str | None = None,
    unit: str | None = None,
) -> None:
    """PublishError for what has no meaning where rows are drawn and nothing is measured."""
    for name, chosen in (
        ("features", features is not None),
        ("family", family is not None),
        ("bound", bound is not None),
        ("float32", float32),
        ("noise", noise not in ("gaussian", "laplace")),
        ("calibration", calibration is not None),
        (f"{weights} weights", weights not in ("probability", "uniform")),
    ):
        if chosen:
            raise PublishError(
                f"{name} does not go with the exponential mechanism, which draws rows of equal weight and adds no noise. "
                "Leave it out, or choose another method."
            )
    if unit is not None:
        raise PublishError(
            "unit protects units by the average of all their rows, and the exponential mechanism counts single rows. "
            "Leave it out, or choose another method."
        )


def _check_generator(weights: str) -> None:
    """PublishError unless a generator can be trained, and its rows may have the weights they will have."""
    if weights not in ("probability", "uniform"):
        raise PublishError(
            f"rows of a generator have equal weights, and {weights} weights are not equal. Leave weights out, or choose "
            "another method."
        )
    try:
        check_torch()
    except ImportError as error:
        raise PublishError(str(error)) from None


def default_points(measurement: Measurement, method: str, domain: Domain) -> int:
    """How many points carry a mean of random features no worse than its noise lets it be known; by N, ε, δ alone.

    The error of well-placed weighted points falls about as 1/M, that of the mean is some twelve times the noise
    scale (a hundred parameters or more are told from the noise): M is where both meet, within limits.
    """
    if method == "generator" or isinstance(measurement.feature_map, MarginFeatures):
        return int(np.clip(measurement.n_rows, DEFAULT_POINTS, _most_rows(domain)))
    wanted = measurement.feature_map.norm_bound / (6 * measurement.noise_scale)
    return int(np.clip(wanted, DEFAULT_POINTS, _MOST_DEFAULT_POINTS))


def _most_rows(domain: Domain) -> int:
    """How many rows are drawn at most: of a wide table as many as readers allow."""
    return min(_MOST_ROWS, USUAL.cells // cells_of_a_row(domain))


def most_points(
    points: int | None, spanning: Array | None, feature_map: FeatureMap, method: str, domain: Domain
) -> int:
    """The number of points that a release may come to have."""
    if spanning is not None:
        return len(spanning)
    drawn = method == "generator" or isinstance(feature_map, MarginFeatures)
    return points or (_most_rows(domain) if drawn else _MOST_DEFAULT_POINTS)


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


def spec_for(method: str, spec: Kernel | str | None, domain: Domain, target: str | None) -> Kernel | str:
    """The kernel asked for or the method's own, as `kernel_for` takes it; DomainError if there is none such.

    A target asks for margins, which rows for models are best drawn from; error bars are best of the table kernel.
    """
    if spec is None and method == "generator":
        spec = "generator"
    spec = spec or ("table" if target is None else "margins")
    kernel_from_spec(spec, domain, target)
    return spec


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


def kernel_for(
    method: str,
    spec: Kernel | str,
    domain: Domain,
    target: str | None,
    noise: Noise | RehearsalNoise,
    n_rows: int,
) -> Kernel:
    """The kernel that a release of n_rows rows is measured in, from public facts alone."""
    finer = method != "generator"  # whose rows are chances of cells
    kernel = kernel_from_spec(spec, domain, target, finer=finer)
    if isinstance(spec, Kernel) or not isinstance(kernel, Margins) or method == "subspace":
        return kernel
    features = MarginFeatures(kernel)
    check_int64_range(n_rows=n_rows, dimension=features.dimension, grid=GRID)
    deviation = noise.deviation(grid_sensitivity(features, noise.name)) * mean_unit(n_rows=n_rows, feature_map=features)
    return kernel_from_spec(spec, domain, target, deviation, finer=finer)


def feature_map_for(
    method: str,
    kernel: Kernel,
    domain: Domain,
    public: Array | None,
    points: int | None,
    features: int | None,
    as_printed: bool,
    family: str | None = None,
) -> tuple[FeatureMap, Array | None]:
    """φ, and for a subspace the points it is spanned by; from public facts alone.

    family       of random features: see `families`.
    as_printed   the basis the papers' code builds: points in their order, near-dependent ones left out.
    """
    if method == "subspace":
        most = _most_spanning(kernel, domain)
        size = points or min(DEFAULT_POINTS, most)
        rng = public_generator("points", kernel, domain, size)
        spanning = domain.draw(size, rng) if public is None else public[: points or min(_MOST_PUBLIC_POINTS, most)]
        basis = {"tolerance": _PAPER_TOLERANCE, "in_given_order": True} if as_printed else {}
        return Nystroem.fit(kernel, spanning, **basis), spanning  # type: ignore[arg-type]
    if method == "generator":
        return _generator_features(kernel, domain, public, features), None
    if isinstance(kernel, Margins):
        if family is not None:
            raise PublishError("margins have features of their own. Leave family out, or choose another kernel.")
        if public is not None:
            raise PublishError(
                "margins have no use for public points: rows are drawn from classes. Leave public points out, or choose "
                "another kernel."
            )
        if features is not None:
            raise PublishError("margins have one feature for each cell: the domain says how many. Leave features out.")
        return MarginFeatures(kernel), None
    if next(margins_in(kernel), None) is not None:
        raise PublishError(
            "this kernel is made of margins and other parts, and points cannot be placed for it. Choose the method "
            "generator or subspace, or another kernel."
        )
    dimension = features or _FEATURES
    measured = features_of(
        family, kernel, domain, dimension, lambda what: public_generator(what, kernel, domain, dimension)
    )
    return measured, None


def _most_spanning(kernel: Kernel, domain: Domain) -> int:
    """How many points readers build a subspace of, under this kernel."""
    return max(2, math.isqrt(USUAL.basis_work // kernel_work(kernel, domain.width)))


def _fourier(kernel: Kernel, domain: Domain, dimension: int, what: str = "frequencies") -> RandomFourier:
    """`dimension` coordinates of a kernel on all columns of the domain; ValueError if it has none."""
    rng = public_generator(what, kernel, domain, dimension)
    return RandomFourier.draw(
        kernel, n_columns=len(domain), dimension=dimension, missing_columns=domain.missing_columns, rng=rng
    )


def _generator_features(kernel: Kernel, domain: Domain, public: Array | None, features: int | None) -> FeatureMap:
    """Composed as the kernel is; each part without margins has `features` coordinates of its own."""
    if public is not None:
        raise PublishError(
            "a generator starts from noise and has no use for public points. Leave them out, or choose another method."
        )
    drawn = []

    def leaf(part: Kernel, columns: tuple[int, ...], place: str) -> FeatureMap:
        own = Domain(tuple(domain.columns[j] for j in columns))
        drawn.append(_fourier(part, own, features or _GENERATOR_FEATURES, f"frequencies {place}"))
        return drawn[-1]

    try:
        check_kernel(kernel, len(domain))
        feature_map = composed_features(kernel, tuple(range(len(domain))), leaf)
    except ValueError as error:
        raise PublishError(str(error)) from None
    if features is not None and not drawn:
        raise PublishError(
            "this kernel has no random part: its features are cells, as many as the domain says. Leave features out."
        )
    return feature_map


def checked_features(
    method: str,
    kernel: Kernel,
    domain: Domain,
    public: Array | None,
    points: int | None,
    features: int | None,
    weights: str,
    *,
    n_rows: int,
    family: str | None = None,
) -> tuple[FeatureMap, Array | None]:
    """φ and, for a subspace, the points it is spanned by; PublishError if sums or files could not hold the release."""
    with fitting():
        feature_map, spanning = feature_map_for(
            method, kernel, domain, public, points, features, as_printed=weights == "published", family=family
        )
    check_int64_range(n_rows=n_rows, dimension=feature_map.dimension, grid=GRID)
    check_readable(most_points(points, spanning, feature_map, method, domain), domain, feature_map)
    with fitting():
        feature_map(domain.draw(2, 0))
        check_readable_map(feature_map, domain)
    return feature_map, spanning


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
