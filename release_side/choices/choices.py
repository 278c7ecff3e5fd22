"""What a curator may choose of a release: names, defaults and checks, and the command line's options.

This file imports nothing heavy, because the command line builds its options from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from release_side.errors import PublishError

METHOD_NAMES = ("random-features", "subspace", "generator", "exponential")
FAMILIES = ("fourier", "orthogonal", "quasi-random", "binning", "maclaurin")
PAIRED_FAMILIES = (None, "fourier", "orthogonal", "quasi-random")  # whose features are cosines and sines
WEIGHTS = ("probability", "bounded", "signed", "uniform", "published")
NOISES = ("gaussian", "laplace")
CALIBRATIONS = ("analytic", "zcdp")


def _option(help: str, **option: Any) -> dict[str, Any]:
    """What the command line needs of a field: the help, and what click calls type, choices and metavar."""
    return {"help": help, **option}


@dataclass(frozen=True, kw_only=True, eq=False)
class Choices:
    """What every method is offered. Subclasses refuse what their method has no use for.

    public_points   a Table of rows that are public already.
    The other fields are those of `publish`, and are explained there.
    Errors          PublishError for a choice that is unknown, or does not go with the others.
    """

    public_points: Any = field(
        default=None, metadata=_option("Rows that are already public: points to use or start from.", type="path")
    )
    points: int | None = field(
        default=None,
        metadata=_option(
            "How many points the release has; by default what the method thinks enough.", type=int, metavar="M"
        ),
    )
    features: int | None = field(
        default=None,
        metadata=_option(
            "How many feature coordinates are measured (even), 4000 by default; with a generator those of the random "
            "part of its kernel.",
            type=int,
            metavar="F",
        ),
    )
    family: str | None = field(
        default=None,
        metadata=_option(
            "Of random features: fourier (default), orthogonal or quasi-random frequencies; binning (laplacian kernel) "
            "or maclaurin (polynomial, exponential-dot).",
            choices=FAMILIES,
        ),
    )
    kernel: Any = field(
        default=None,
        metadata=_option(
            '"table" (default), "margins" (default with a target), "gaussian:lengthscale=158.1", '
            '"laplacian:lengthscale=2", "matern:nu=1.5,lengthscale=2", "rational-quadratic:alpha=1,lengthscale=2", '
            '"polynomial:degree=2,offset=1", "exponential-dot:rate=1".',
            metavar="SPEC",
        ),
    )
    target: str | None = field(
        default=None,
        metadata=_option(
            "A column that models will predict: everything else is measured together with it, and for each of its classes.",
            metavar="COLUMN",
        ),
    )
    weights: str = field(
        default="probability",
        metadata=_option(
            "Weights of the points: probabilities; signed with Σ|w| at most --bound; the best signed ones; 1/M each; "
            "or Algorithm 1's as printed.",
            choices=WEIGHTS,
        ),
    )
    bound: float | None = field(
        default=None,
        metadata=_option(
            "Largest Σ|w| for bounded (default 1) and signed (default 2) weights.", type=float, metavar="C"
        ),
    )
    float32: bool = field(default=False, metadata=_option("Round real columns of the points to single precision."))
    noise: str = field(
        default="gaussian",
        metadata=_option("The distribution of the noise; laplace goes with --delta 0.", choices=NOISES),
    )
    calibration: str | None = field(
        default=None, metadata=_option("Of Gaussian noise; analytic, the least, by default.", choices=CALIBRATIONS)
    )

    least_points = 2

    def __post_init__(self) -> None:
        if self.weights not in WEIGHTS:
            raise PublishError(f"weights must be one of {', '.join(WEIGHTS)}, got {self.weights!r}. Name one of these.")
        self.check_method()
        for name, value, least in (("points", self.points, self.least_points), ("features", self.features, 2)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise PublishError(
                    f"{name} must be a whole number of at least {least}, got {value!r}. Leave it out for the default."
                )
        self._check_family()
        self._check_bound()

    def check_method(self) -> None:
        """PublishError for what the method has no use for."""

    def _check_family(self) -> None:
        if self.family is not None and self.family not in FAMILIES:
            raise PublishError(
                f"family must be one of {', '.join(FAMILIES)}, got {self.family!r:.80}. Name one of these."
            )
        if self.family in PAIRED_FAMILIES and self.features is not None and self.features % 2:
            raise PublishError(f"features must be even, got {self.features}: cosine and sine come in pairs. Add one.")

    def _check_bound(self) -> None:
        if self.bound is None:
            return
        if self.weights not in ("bounded", "signed"):
            raise PublishError(
                f"bound goes with bounded or signed weights: {self.weights} weights have none. Leave it out."
            )
        if not (isinstance(self.bound, int | float) and 0 < self.bound < math.inf):
            raise PublishError(
                f"bound must be a positive finite number, got {self.bound!r}: it limits Σ|w|. Pass e.g. 1.0."
            )

    def refuse_family(self, method: str) -> None:
        """PublishError for a family of features, of a method that has features of its own."""
        if self.family is not None and self.family in FAMILIES:
            raise PublishError(
                f'a family of features is of the method "random-features", and {method} has its own. Leave family out, '
                "or choose that method."
            )

    def refuse_published_weights(self) -> None:
        """PublishError for Algorithm 1's weights, of another method."""
        if self.weights == "published":
            raise PublishError(
                'published weights are Algorithm 1\'s: they need method "subspace". Name it, or other weights.'
            )


__all__ = ["CALIBRATIONS", "FAMILIES", "METHOD_NAMES", "NOISES", "PAIRED_FAMILIES", "WEIGHTS", "Choices"]
