"""What a curator may choose for a release: names, defaults and checks, and the options of the command line.

This file imports nothing heavy, because the command line builds its options from it.
"""

# ruff: noqa: RUF009  # _option is dataclasses.field
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, cast

from release_side.errors import PublishError

T = TypeVar("T")
METHOD_NAMES = ("random-features", "subspace", "generator", "exponential")
FAMILIES = ("fourier", "binning", "maclaurin")
WEIGHTS = ("probability", "bounded", "signed", "uniform", "published")
NOISES = ("gaussian", "laplace")
CALIBRATIONS = ("analytic", "zcdp")


def check_one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    """PublishError unless the value is one of the known ones."""
    if value not in known:
        raise PublishError(f"{name} must be one of {', '.join(known)}, got {value!r:.80}. Name one of these.")


def check_whole(name: str, value: object, least: int) -> None:
    """PublishError unless the value is a whole number of at least `least`, or None for the default."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
        raise PublishError(f"{name} must be a whole number of at least {least}, got {value!r}. Leave it out for the default.")


def chosen(kind: type[T], options: Mapping[str, Any]) -> T:
    """A value of a dataclass of choices, of those options that are its fields."""
    return kind(**{one.name: options[one.name] for one in fields(cast(Any, kind)) if one.name in options})


def _option(default: Any, help: str, **option: Any) -> Any:
    """A field with its default, and what its command-line option needs: help, type, choices, metavar, required."""
    return field(default=default, metadata={"help": help, **option})


def _one_or_several(target: Any) -> str | tuple[str, ...] | None:
    """A name, several different ones, or None; PublishError for anything else."""
    names = (target,) if isinstance(target, str) else () if target is None else target
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise PublishError(f"target must be a column's name, or a list of names, got {target!r:.80}. Name a column.")
    different = tuple(dict.fromkeys(names))
    return different if len(different) > 1 else different[0] if different else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Choices:
    """The choices that every method offers. Subclasses refuse those that their method cannot use.

    public_points   a Table of rows that are already public.
    The other fields are those of `publish`, and are explained there.
    Errors          PublishError for a choice that is unknown, or does not go with the others.
    """

    public_points: Any = _option(None, "Rows that are already public: points to use or start from.", type="path")
    points: int | None = _option(None, "Number of points of the release; the method has a default.", type=int, metavar="M")
    features: int | None = _option(
        None,
        "Number of feature coordinates that are measured (even), 4000 by default; with a generator those of the random "
        "part of its kernel.",
        type=int, metavar="F",
    )  # fmt: skip
    family: str | None = _option(
        None,
        "Of random features: fourier (default), binning (laplacian kernel) or maclaurin (polynomial kernel).",
        choices=FAMILIES,
    )
    kernel: Any = _option(
        None,
        '"adaptive" (default), "table" (default for texts and cyclic columns), "margins", "gaussian:lengthscale=158.1", '
        '"laplacian:lengthscale=2", "matern:nu=1.5,lengthscale=2", "rational-quadratic:alpha=1,lengthscale=2", '
        '"polynomial:degree=2,offset=1".',
        metavar="SPEC",
    )
    target: Any = _option(
        None,
        "A column that models will predict: its tables with every other column are measured before others, and larger sets of "
        "columns are looked for with it first. May be named several times.",
        metavar="COLUMN", multiple=True,
    )  # fmt: skip
    workload: Any = _option(
        None,
        "What will be asked: a text file with a question on each line, as \"age > 50\", \"age | income == '>50K'\" (given), "
        '"corr(a, b)", "table(a, b)", "quantile(a, 0.5)". Pairs of columns that it names are measured in any case, with three '
        "tenths of the budget for tables; everything else has the rest. The file must be public.",
        type="path", metavar="FILE",
    )  # fmt: skip
    weights: str = _option(
        "probability",
        "Weights of the points: probabilities; signed with Σ|w| at most --bound; the best signed ones; 1/M each; "
        "or Algorithm 1's as printed.",
        choices=WEIGHTS,
    )
    bound: float | None = _option(
        None, "Largest Σ|w| of bounded (default 1) or signed weights (2; none on public rows).", type=float, metavar="C"
    )
    float32: bool = _option(False, "Round real columns of the points to single precision.")
    noise: str = _option("gaussian", "The distribution of the noise; laplace goes with --delta 0.", choices=NOISES)
    calibration: str | None = _option(None, "Of Gaussian noise; analytic, the least noise, by default.", choices=CALIBRATIONS)

    least_points = 2

    def __post_init__(self) -> None:
        check_one_of("weights", self.weights, WEIGHTS)
        if self.family is not None:
            check_one_of("family", self.family, FAMILIES)
        object.__setattr__(self, "target", _one_or_several(self.target))
        self.check_method()
        check_whole("points", self.points, self.least_points)
        check_whole("features", self.features, 2)
        if self.family in (None, "fourier") and self.features is not None and self.features % 2:
            raise PublishError(f"features must be even, got {self.features}: cosine and sine come in pairs. Add one.")
        if self.bound is not None:
            self._check_bound()

    def check_method(self) -> None:
        """PublishError for choices that the method cannot use."""

    def _check_bound(self) -> None:
        if self.weights not in ("bounded", "signed"):
            raise PublishError(f"bound goes with bounded or signed weights: {self.weights} weights have none. Leave it out.")
        if not (isinstance(self.bound, int | float) and 0 < self.bound < math.inf):
            raise PublishError(f"bound must be a positive finite number, got {self.bound!r}: it limits Σ|w|. Pass e.g. 1.0.")

    def refuse_family(self, method: str) -> None:
        """PublishError for a family of features, for a method that has features of its own."""
        if self.family is not None:
            raise PublishError(
                f'family is of the method "random-features", and {method} has its own features. Leave family out, or '
                "choose that method."
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class FunctionChoices:
    """The choices for a released function. The fields are those of `publish_function`, and are explained there."""

    kind: str = _option(
        MISSING,
        "A density (kde: the same), a regression of a number, or a classifier of two classes.",
        choices=("density", "kde", "ridge", "logistic", "svm"), required=True,
    )  # fmt: skip
    target: str | None = _option(None, "The column that ridge, logistic and svm predict.", metavar="COLUMN")
    regularisation: float | None = _option(None, "λ of mean loss + λ‖f‖²; by default from N.", type=float, metavar="LAMBDA")
    kernel: Any = _option(None, 'As in publish, e.g. "gaussian:lengthscale=0.5".', metavar="SPEC")
    pivots: Any = _option(None, "Public points at which the function is measured.", type="path", metavar="FILE")
    grid: int | None = _option(None, "Measure it on a grid with this many values of each number.", type=int, metavar="SIZE")
    calibration: str | None = _option(None, "Analytic, the least noise, by default.", choices=CALIBRATIONS)

    def __post_init__(self) -> None:
        if self.pivots is not None and self.grid is not None:
            raise PublishError("pivots and grid both say where the function is measured. Pass one of them.")
        check_whole("grid", self.grid, 2)


@dataclass(frozen=True)
class Account:
    """Where a publication is counted, as the curator named it. The fields are those of `publish`, and are explained there."""

    ledger: Any = _option(
        None, "Count the spend here; refused over budget. The ledger must exist: see ledger init.", type="file",
        metavar="LEDGER",
    )  # fmt: skip
    table: str | None = _option(None, "The ledger's name for the private table.", metavar="NAME")
    uncounted: bool = _option(False, "Publish without a ledger: nothing adds this release to others.")
    weak: bool = _option(False, "Publish although epsilon is above 10, or delta at least 1/N.")
    rehearsal: int | None = _option(
        None, "Noise that can be drawn again: the file is stamped NOT PRIVATE.", type=int, metavar="SEED"
    )

    def check(self) -> None:
        """PublishError for options that contradict each other."""
        if (self.ledger is None) != (self.table is None):
            raise PublishError("ledger and table go together: a ledger counts by names of tables. Pass both, or neither.")
        if self.ledger is not None and self.rehearsal is not None:
            raise PublishError("a rehearsal is not private, so a ledger has nothing to count. Leave out one of the two.")
        if self.ledger is not None and self.uncounted:
            raise PublishError(
                "ledger and uncounted contradict each other: a release is counted in the ledger, or it is not counted. Leave "
                "out one of the two."
            )


@dataclass(frozen=True)
class Reading:
    """How a private table is read, as the curator named it. The fields are those of `publish`, and are explained there."""

    n_rows: int | None = None
    unit: str | None = _option(
        None,
        "Protect units, each with all rows that have the same identifier in COLUMN, rather than rows. The name of the column is "
        "published.",
        metavar="COLUMN",
    )
    workers: int | None = _option(None, "Threads; by default one for each processor. Changes no bit.", type=int, metavar="N")
    executor: Any = None

    def check(self) -> None:
        """PublishError for numbers that are not whole, or not positive."""
        check_whole("workers", self.workers, 1)
        check_whole("n_rows", self.n_rows, 1)
