"""Which function of a table is released, and how far one row can move it (Hall, Rinaldo & Wasserman 2013).

A density estimate is f = 1/N Σ k(x_i, ·). A kernel machine is the f that minimises

    J(f) = 1/N Σ ℓ(f(x_i), y_i) + λ‖f‖²

over the kernel's space (RKHS), without a free intercept. J is 2λ-strongly convex, so that replacing one row moves f by at
most Lκ/(Nλ), L the largest slope of ℓ in f(x) and κ = sup √k(x, x) (their §4.2 has λ/2 for λ, and twice this). PROOF.md
§11 derives every constant; they stand here because readers compute them again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kmeanalyst.kernels.features import Pivots
from kmeanalyst.releases.columns import Categorical, Column, Number
from kmeanalyst.releases.measurement import GRID, grid_sensitivity, mean_unit
from kmeanalyst.releases.noise import GAUSSIAN

KINDS = ("density", "ridge", "logistic", "svm")
CLASSIFIERS = ("logistic", "svm")
SLACK = 2.0**-8  # of a machine's sensitivity: pays for its solver, its rounding and the stretch of its coordinates
HINGE_WIDTH = 0.1  # the hinge is rounded over margins within this of 1, so that a fixed number of steps suffices
_STEPS = 2 * GRID  # a machine's sensitivity in steps of its grid
_CURVATURE = {"ridge": 2.0, "logistic": 0.25, "svm": 1 / (2 * HINGE_WIDTH)}


@dataclass(frozen=True)
class FunctionForm:
    """What kind of function is released.

    kind            "density", "ridge", "logistic" or "svm".
    target          the column that a machine predicts: a number for ridge, two levels for a classifier; else None.
    regularisation  λ of a machine; else None.
    """

    kind: str
    target: Column | None = None
    regularisation: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r:.80}. Name one of these.")
        if self.kind == "density":
            if self.target is not None or self.regularisation is not None:
                raise ValueError(
                    "a density predicts no target and has no regularisation, which are of machines. Leave them out, or "
                    "choose ridge, logistic or svm."
                )
            return
        value = self.regularisation
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-12 <= value <= 1e12:
            raise ValueError(
                f"regularisation must be a number between 1e-12 and 1e12, got {value!r}: without λ one row could move the "
                "function without limit. Pass e.g. 0.01."
            )
        self._check_target()

    def _check_target(self) -> None:
        if self.target is None:
            raise ValueError(f"{self.kind} predicts a column, and none is named. Name the target.")
        name, classes = self.target.name, self.levels
        if self.target.missing:
            raise ValueError(
                f"the target {name} may be missing, and a machine needs a value. Declare it never missing."
            )
        if self.is_classifier and len(classes) != 2:
            raise ValueError(
                f"{self.kind} parts two classes, and the target {name} has {len(classes) or 'no'} levels. Name a boolean "
                "column, or one of two levels."
            )
        number = isinstance(self.target, Number) and self.target.kind != "date" and self.target.scale == "linear"
        if self.kind == "ridge" and not number:
            raise ValueError(f"ridge predicts numbers on a linear scale, and the target {name} is none. Name another.")

    @property
    def is_classifier(self) -> bool:
        """Whether the sign of f says which of two classes."""
        return self.kind in CLASSIFIERS

    @property
    def levels(self) -> tuple[Any, ...]:
        """The target's levels; none for numbers."""
        if self.target is not None and self.target.kind == "boolean":
            return (False, True)
        return self.target.levels if isinstance(self.target, Categorical) else ()

    @property
    def penalty(self) -> float:
        """λ of a machine."""
        assert self.regularisation is not None
        return float(self.regularisation)

    @property
    def centre(self) -> float:
        """The middle of a number's public bounds: f predicts what is above it."""
        return sum(self._bounds) / 2

    @property
    def reach(self) -> float:
        """B, half the distance of a number's public bounds; 1 for two classes, which are −1 and 1."""
        low, high = self._bounds
        return (high - low) / 2

    @property
    def _bounds(self) -> tuple[float, float]:
        return self.target.bounds if self.kind == "ridge" and isinstance(self.target, Number) else (-1.0, 1.0)

    @property
    def curvature(self) -> float:
        """The largest second derivative of ℓ: 2 for (f − y)², ¼ for log(1 + e^−yf), 1/2w for the hinge rounded over ±w."""
        return _CURVATURE[self.kind]

    def slope(self, bound: float) -> float:
        """L, the largest |∂ℓ/∂f| that matters: 1 for classifiers, 2B(1 + κ/2√λ) for ridge, where |f| ≤ κ‖f‖ ≤ κB/2√λ.

        bound   κ.
        """
        return 1.0 if self.is_classifier else 2 * self.reach * (1 + bound * 0.5 / math.sqrt(self.penalty))

    def norm(self, bound: float) -> float:
        """R, the largest ‖f‖ of any table: κ for a density; for machines as PROOF.md §11 has it."""
        if self.kind == "density":
            return bound
        if self.kind == "ridge":
            return self.reach * 0.5 / math.sqrt(self.penalty)
        at_zero = math.log(2) if self.kind == "logistic" else 1.0
        return min(math.sqrt(at_zero / self.penalty), bound / (2 * self.penalty))

    def machine_sensitivity(self, bound: float, n_rows: int) -> float:
        """Lκ/(Nλ): how far replacing one of n_rows rows can move the minimiser, in the norm of the RKHS."""
        return self.slope(bound) * bound / (n_rows * self.penalty)

    def grid_sensitivity(self, pivots: Pivots) -> float:
        """How far replacing one row can move the whole coordinates, in steps of the grid; Euclidean."""
        return grid_sensitivity(pivots, GAUSSIAN) if self.kind == "density" else float(_STEPS)

    def unit(self, pivots: Pivots, n_rows: int) -> float:
        """What one step of the grid is in the function's norm."""
        if self.kind == "density":
            return mean_unit(n_rows=n_rows, feature_map=pivots)
        return self.machine_sensitivity(pivots.kernel.bound, n_rows) * (1 + SLACK) / _STEPS

    def to_dict(self) -> dict[str, Any]:
        """The form as the file header has it."""
        target = None if self.target is None else self.target.to_dict()
        return {"kind": self.kind, "regularisation": self.regularisation, "target": target}
