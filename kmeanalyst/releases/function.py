"""A function of a private table, released with noise of a Gaussian process (Hall, Rinaldo & Wasserman 2013).

The noisy coordinates y = A f(Z) + N(0, σ²I) contain the noisy values at the pivots Z, f(Z) + N(0, σ²K), and nothing else.
Between pivots f̃(x) = k(x, Z) K⁻¹ (values) = φ(x)·y: the function of least norm with these values, and the mean of the process.

A density estimate is f = 1/N Σ k(x_i, ·). A kernel machine minimises J(f) = 1/N Σ ℓ(f(x_i), y_i) + λ‖f‖² without a free
intercept; replacing one row moves f by at most Lκ/(Nλ). PROOF.md §11 derives every constant; readers compute them again here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from scipy.special import expit

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.pivots import Pivots
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.measurement import GRID, grid_sensitivity, mean_unit
from kmeanalyst.releases.statement import GAUSSIAN, PrivacyStatement, guarantee_lines, is_number
from kmeanalyst.releases.texts import Printed

KINDS = ("density", "ridge", "logistic", "svm")
CLASSIFIERS = ("logistic", "svm")
SLACK = 2.0**-8  # added share of a machine's sensitivity: pays for solver, rounding and stretch of coordinates
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
                    "a density predicts no target and has no regularisation: only machines do. Leave them out, or "
                    "choose ridge, logistic or svm."
                )
            return
        value = self.regularisation
        if not (is_number(value) and 1e-12 <= value <= 1e12):
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
            raise ValueError(f"the target {name} may be missing, and a machine needs a value. Declare it never missing.")
        if self.is_classifier and len(classes) != 2:
            raise ValueError(
                f"{self.kind} separates two classes, and the target {name} has {len(classes) or 'no'} levels. Name a boolean "
                "column, or one of two levels."
            )
        number = isinstance(self.target, Number) and self.target.kind != "date" and self.target.scale == "linear"
        if self.kind == "ridge" and not number:
            raise ValueError(f"ridge predicts numbers on a linear scale, and the target {name} is not one. Name another.")

    @property
    def is_classifier(self) -> bool:
        return self.kind in CLASSIFIERS

    @property
    def levels(self) -> tuple[Any, ...]:
        if self.target is not None and self.target.kind == "boolean":
            return (False, True)
        return self.target.levels if isinstance(self.target, Categorical) else ()

    @property
    def penalty(self) -> float:
        assert self.regularisation is not None
        return float(self.regularisation)

    @property
    def centre(self) -> float:
        """The middle of a number's public bounds: f predicts the difference from it."""
        return sum(self._bounds) / 2

    @property
    def reach(self) -> float:
        """B, half the distance between a number's public bounds; 1 for two classes, which are −1 and 1."""
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
        """R, the largest ‖f‖ of any table: κ for a density; for machines see PROOF.md §11."""
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
        if self.kind == "density":
            return mean_unit(n_rows=n_rows, feature_map=pivots)
        return self.machine_sensitivity(pivots.kernel.bound, n_rows) * (1 + SLACK) / _STEPS

    def to_dict(self) -> dict[str, Any]:
        target = None if self.target is None else self.target.to_dict()
        return {"kind": self.kind, "regularisation": self.regularisation, "target": target}


Table: TypeAlias = pd.DataFrame | Mapping[str, Any]


class ReleasedFunction(ABC, Printed):
    """A noisy function of the columns of a domain (abstract: `function_of` makes an object of the form's kind).

    form       FunctionForm.
    domain     the columns that the function uses.
    basis      Pivots: the points, linearly independent, and the coordinates at them.
    noisy_sum  (F,) int64, the released coordinates in steps of the grid.
    statement  PrivacyStatement; its noise_scale is the σ of each coordinate.

    >>> function = ka.read_function("density.kme")
    >>> function.kind, function.statement.epsilon, function.is_rehearsal, function.noise_scale
    ('density', 1.0, False, 0.07741...)
    >>> function.evaluate(pd.DataFrame({"x": [-1.0, 0.5]}))
          value  standard_error    unseen
    0  0.127430        0.060122  0.000005
    1  0.218891        0.060122  0.000013
    >>> function.values({"x": [-1.0, 0.5]}), function.predict({"x": [0.5]})
    (array([0.1274..., 0.2188...]), array([0.2188...]))
    >>> function.covariance({"x": [-1.0, 0.5]})
    array([[0.003614..., 0.0002761...],
           [0.0002761..., 0.003614...]])
    >>> function.coordinates.shape == (len(function.pivots),), function.summary()["privacy"]
    (True, 'ε = 1, δ = 1e-06 (neighbours: replace-one; ρ = 0.028)')
    """

    def __init__(self, *, form: FunctionForm, domain: Domain, basis: Pivots, noisy_sum: Array, statement: PrivacyStatement) -> None:
        if form.target is not None and form.target.name in domain.names:
            raise ValueError(f"the function predicts {form.target.name} and cannot use it. Leave it out of the domain.")
        if statement.noise_scale is None or statement.protects_units:
            raise ValueError(
                f"a function is measured with noise and protects single rows, and its statement is of {statement.mechanism} "
                f"for neighbours {statement.neighbouring}: the guarantee is about another release. Pass its own."
            )
        if noisy_sum.shape != (basis.dimension,) or noisy_sum.dtype != np.int64:
            raise ValueError(
                f"a function has one whole number for each of its {basis.dimension} pivots, got {noisy_sum.dtype} of shape "
                f"{noisy_sum.shape}. Pass the released integers."
            )
        self.form, self.domain, self.basis, self.statement = form, domain, basis, statement
        self.noisy_sum = noisy_sum.copy()
        self.noisy_sum.setflags(write=False)

    @property
    def kind(self) -> str:
        return self.form.kind

    @property
    def coordinates(self) -> Array:
        """(F,) the noisy coordinates, in the norm of the RKHS."""
        return self.noisy_sum * self.form.unit(self.basis, self.statement.n_rows)

    @property
    def noise_scale(self) -> float:
        """σ: the noise on the values at the pivots is N(0, σ²K)."""
        assert self.statement.noise_scale is not None  # checked by the constructor
        return self.statement.noise_scale

    @property
    def pivots(self) -> pd.DataFrame:
        """The points at which the function was measured, in natural units and levels."""
        return self.domain.decode(self.basis.points)

    @property
    def _offset(self) -> float:
        return self.form.centre if self.kind == "ridge" else 0.0

    def values(self, table: Table) -> Array:
        """(n,) f̃ at the rows of a table in natural units, which has the domain's columns; others are ignored."""
        return self.basis(self.domain.encode(table)) @ self.coordinates + self._offset

    def evaluate(self, table: Table) -> pd.DataFrame:
        """f̃ at the rows of a table, and bounds on its errors.

        Returns  value           f̃(x), conditioned on the noisy values at the pivots.
                 standard_error  of the privacy noise: σ‖φ(x)‖, exact. At a pivot it is σ√k(x, x).
                 unseen          bound on the error between pivots: |f(x) − (Pf)(x)| ≤ R·√(k(x, x) − ‖φ(x)‖²), P the projection
                                 on the pivots' span and R the largest norm that f has for any table. Not a random error.
        Not included: the distance of the table's own function f from a population's.
        """
        rows = self.domain.encode(table)
        features = self.basis(rows)
        return pd.DataFrame({
            "value": features @ self.coordinates + self._offset,
            "standard_error": self.noise_scale * np.linalg.norm(features, axis=1),
            "unseen": self.form.norm(self.basis.kernel.bound) * self.basis.unseen(rows),
        })  # fmt: skip

    def covariance(self, table: Table) -> Array:
        """(n, n) covariance of the privacy noise on the values at the rows of a table: σ² φ(x_i)·φ(x_j)."""
        features = self.basis(self.domain.encode(table))
        return self.noise_scale**2 * features @ features.T

    @abstractmethod
    def predict(self, table: Table) -> Array:
        """The prediction for each row of a table (n,)."""

    @property
    def is_rehearsal(self) -> bool:
        return self.statement.is_rehearsal

    def summary(self) -> dict[str, str]:
        """The function in a few lines: label → text."""
        form, noise, kernel = self.form, self.noise_scale, self.basis.kernel
        target = "" if form.target is None else f" of {form.target.name}, λ = {form.penalty:g}"
        return guarantee_lines(self.statement) | {
            "function": f"{self.kind}{target}, of {', '.join(self.domain.names)}",
            "noise": f"{noise:.3g} in the kernel's norm, {noise * kernel.bound:.3g} at most on a value",
            "pivots": f"{self.basis.dimension:,} points, kernel {kernel.name}",
        }

    def __repr__(self) -> str:
        lines = [f"  {label:<11} {text}" for label, text in self.summary().items()]
        return "\n".join([f"kmeanalyst.{type(self).__name__}", *lines])


class ReleasedDensity(ReleasedFunction):
    """A kernel density estimate, or the mean of another kernel.

    >>> ka.read_function("density.kme").predict({"x": [0.5]})
    array([0.2188...])
    """

    def predict(self, table: Table) -> Array:
        return self.values(table)


class ReleasedRegression(ReleasedFunction):
    """Kernel ridge regression of a number.

    >>> wage = ka.read_function("ridge.kme")
    >>> wage.form.target.name, wage.predict({"z": [0.5], "y": [True]})
    ('x', array([-0.5574...]))
    """

    def predict(self, table: Table) -> Array:
        """The target at each row, moved to its public bounds."""
        low, high = self.form.centre - self.form.reach, self.form.centre + self.form.reach
        return np.clip(self.values(table), low, high)


class _Classifier(ReleasedFunction):
    """What both classifiers share, as in scikit-learn (abstract).

    >>> ill, table = ka.read_function("logistic.kme"), {"x": [-2.0, 2.0], "z": [0.1, 0.9]}
    >>> ill.classes_.tolist(), ill.predict(table).tolist(), ill.score(table, [False, True]), ill.decision_function(table).shape
    ([False, True], [False, False], 0.5, (2,))
    """

    @property
    def classes_(self) -> Array:
        """The two classes; f̃ > 0 predicts the second."""
        return np.array(self.form.levels)

    def decision_function(self, table: Table) -> Array:
        """f̃ at each row (n,)."""
        return self.values(table)

    def predict(self, table: Table) -> Array:
        return self.classes_[(self.decision_function(table) > 0).astype(int)]

    def score(self, table: Table, classes: Any) -> float:
        """The share of rows whose class is predicted."""
        return float((self.predict(table) == np.asarray(classes)).mean())


class ReleasedSVM(_Classifier):
    """A support vector machine with the hinge rounded at its corner.

    >>> ka.read_function("svm.kme").predict({"x": [-2.0], "z": [0.1]}).tolist()
    [False]
    """


class ReleasedLogistic(_Classifier):
    """Kernel logistic regression.

    >>> ka.read_function("logistic.kme").predict_proba({"x": [-2.0, 2.0], "z": [0.1, 0.9]}).shape
    (2, 2)
    """

    def predict_proba(self, table: Table) -> Array:
        """The probability of each class at each row, (n, 2)."""
        second = expit(self.decision_function(table))
        return np.column_stack([1 - second, second])


_CLASSES: dict[str, type[ReleasedFunction]] = {
    "density": ReleasedDensity, "ridge": ReleasedRegression, "logistic": ReleasedLogistic, "svm": ReleasedSVM,
}  # fmt: skip


def function_of(
    *, form: FunctionForm, domain: Domain, basis: Pivots, noisy_sum: Array, statement: PrivacyStatement
) -> ReleasedFunction:
    return _CLASSES[form.kind](form=form, domain=domain, basis=basis, noisy_sum=noisy_sum, statement=statement)
