"""Room 4: calculating with estimates, the error to first order (the delta method).

An estimate carries its influence function on each release, so that a calculation with estimates is one with influence
functions: what two of them share cancels as it should, and e - e is 0 ± 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from kmeanalyst.kernels.base import Array

if TYPE_CHECKING:
    from kmeanalyst.inference.error_model import ErrorModel
    from kmeanalyst.inference.estimate import Estimate
    from kmeanalyst.releases.release import Release

Terms = tuple[tuple["ErrorModel", Array], ...]  # the influence function of an estimate on each release
PARTS = ("privacy", "sampling", "resolution")
SAMPLE = "sample"  # the view of estimates on real rows, which have no other
INDEPENDENT = "of different releases: they are taken as independent, which two releases of one table are not quite"


class DeltaMethod:
    """The operators of an Estimate, which inherits them."""

    def __add__(self, other: Any) -> Estimate:
        return _of_two(self, other, "+", lambda a, b: (a + b, 1.0, 1.0))

    def __radd__(self, other: Any) -> Estimate:
        return _of_two(other, self, "+", lambda a, b: (a + b, 1.0, 1.0))

    def __sub__(self, other: Any) -> Estimate:
        return _of_two(self, other, "-", lambda a, b: (a - b, 1.0, -1.0))

    def __rsub__(self, other: Any) -> Estimate:
        return _of_two(other, self, "-", lambda a, b: (a - b, 1.0, -1.0))

    def __mul__(self, other: Any) -> Estimate:
        return _of_two(self, other, "*", lambda a, b: (a * b, b, a))

    def __rmul__(self, other: Any) -> Estimate:
        return _of_two(other, self, "*", lambda a, b: (a * b, b, a))

    def __truediv__(self, other: Any) -> Estimate:
        return _of_two(self, other, "/", _quotient)

    def __rtruediv__(self, other: Any) -> Estimate:
        return _of_two(other, self, "/", _quotient)

    def __pow__(self: Any, power: Any) -> Estimate:
        if not _is_number(power):
            return NotImplemented
        with np.errstate(all="ignore"):
            value, slope = np.float64(self.value) ** power, power * np.float64(self.value) ** (power - 1.0)
        return _combined(float(value), f"[{self.question}] ** {power:g}", [(self, float(slope if power else 0.0))])

    def __neg__(self: Any) -> Estimate:
        return _combined(-self.value, f"-[{self.question}]", [(self, -1.0)])

    def __array_ufunc__(self: Any, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """np.sqrt, np.log and np.exp of an estimate, and numpy's numbers beside one in arithmetic."""
        if method != "__call__" or options or not all(_is_estimate(x) or _is_number(x) for x in inputs):
            return NotImplemented
        if ufunc in _OF_ONE:
            with np.errstate(all="ignore"):
                value, slope = _OF_ONE[ufunc](np.float64(self.value))
            return _combined(float(value), f"{ufunc.__name__}[{self.question}]", [(self, float(slope))])
        if ufunc in _OF_TWO:  # the left side is a number: else its own method had been asked
            return getattr(self, _OF_TWO[ufunc])(float(inputs[0]))
        return NotImplemented


_OF_ONE: dict[Any, Callable[[Any], tuple[Any, Any]]] = {
    np.sqrt: lambda x: (np.sqrt(x), 0.5 / np.sqrt(x)),
    np.log: lambda x: (np.log(x), 1 / x),
    np.exp: lambda x: (np.exp(x), np.exp(x)),
}
_OF_TWO = {np.add: "__radd__", np.subtract: "__rsub__", np.multiply: "__rmul__", np.true_divide: "__rtruediv__"}


def _is_estimate(x: Any) -> TypeGuard[Estimate]:
    return isinstance(x, DeltaMethod)


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float | np.integer | np.floating)


def _quotient(a: float, b: float) -> tuple[float, float, float]:
    with np.errstate(all="ignore"):
        value = np.float64(a) / b
        return float(value), float(np.float64(1) / b), float(-value / b)


def _of_two(a: Any, b: Any, sign: str, rule: Callable[[float, float], tuple[float, float, float]]) -> Estimate:
    """rule: two values → the value and its derivatives by each."""
    if not all(_is_estimate(x) or _is_number(x) for x in (a, b)):
        return NotImplemented
    value, *slopes = rule(*(float(x.value if _is_estimate(x) else x) for x in (a, b)))
    text = " ".join([_operand(a), sign, _operand(b)])
    return _combined(value, text, [(x, slope) for x, slope in zip((a, b), slopes, strict=True) if _is_estimate(x)])


def _operand(x: Any) -> str:
    """An estimate in brackets: [age] / [income] is a ratio of estimates, age / income a question."""
    return f"[{x.question}]" if _is_estimate(x) else f"{x:g}"


def _combined(value: float, question: str, operands: list[tuple[Estimate, float]]) -> Estimate:
    """The estimate of a function of others, given its derivative by each."""
    if not np.isfinite([value, *(slope for _, slope in operands)]).all():
        raise ValueError(
            f"{question} is undefined at {', '.join(f'{e.value:.4g}' for e, _ in operands)}, or its first-order error "
            "is: a root or logarithm of what is not positive, or a division by zero. Calculate with other estimates, "
            'or ask for them with view="probability".'
        )
    terms = _joined(operands)
    joint = joint_parts([model.parts(influence) for model, influence in terms])
    parts = {name: None if part is None else float(part) for name, part in joint.items()}
    notes = dict.fromkeys(note for estimate, _ in operands for note in estimate.notes)
    if len(terms) > 1:
        notes[INDEPENDENT] = None
    return replace(
        operands[0][0],
        view=_common_view(operands),
        value=value,
        standard_error=float(np.sqrt(sum(part**2 for part in parts.values() if part is not None))),
        parts=parts,
        question=question,
        notes=tuple(notes),
        terms=terms,
        interval_by=None,
    )


def _joined(operands: list[tuple[Estimate, float]]) -> Terms:
    """The influence of Σ slope · estimate on each release; ValueError where releases or views cannot go together."""
    joint: list[tuple[ErrorModel, Array]] = []
    for estimate, _ in operands:
        if not estimate.terms:
            raise ValueError(
                f"{estimate.question} has no known dependence on a release, so its error cannot be carried on: it was "
                "written by hand, or its value or error is undefined. Calculate with estimates that a release gave."
            )
    _common_view(operands)
    for estimate, slope in operands:
        for model, influence in estimate.terms:
            _add(joint, model, slope * influence)
    return tuple(joint)


def _common_view(operands: list[tuple[Estimate, float]]) -> str:
    """The one view of all operands; a sample of rows goes with any. ValueError where there are several."""
    views = [estimate.view for estimate, _ in operands if estimate.view != SAMPLE] or [SAMPLE]
    for view in views:
        if view != views[0]:
            raise _mixed_views(views[0], view)
    return views[0]


def _add(joint: list[tuple[ErrorModel, Array]], model: ErrorModel, influence: Array) -> None:
    for place, (other, known) in enumerate(joint):
        if other is model:
            joint[place] = (model, known + influence)
            return
        if other.base is model:
            joint[place] = (other, known + other.lifted(influence))
            return
        if model.base is other:
            joint[place] = (model, model.lifted(known) + influence)
            return
        if other.release is model.release or one_measurement(other.release, model.release):
            raise shared_measurement("estimates")
    joint.append((model, influence))


def least_change(terms: Terms, level: float) -> float:
    """The first-order change to the least value that populations compatible at `level` give."""
    return sum(model.least_change(influence, level) for model, influence in terms)


def largest_change(terms: Terms, level: float) -> float:
    """The first-order change to the largest value."""
    return -sum(model.least_change(-influence, level) for model, influence in terms)


def one_measurement(a: Release, b: Release) -> bool:
    """Whether two Release objects rest on one measurement, though they are two."""
    ours, theirs = a.measurement, b.measurement
    return ours is not None and theirs is not None and np.array_equal(ours.vector, theirs.vector)


def shared_measurement(what: str) -> ValueError:
    """The refusal to take what rests on one measurement for independent."""
    return ValueError(
        f"these {what} rest on one measurement through two releases (a file read twice, or thinned), so they are "
        "not independent and their correlation is not known. Ask one Release object for both."
    )


def _mixed_views(a: str, b: str) -> ValueError:
    return ValueError(
        f"one estimate is of the {a} view and the other of the {b} view: their difference would be the views', not the "
        f'population\'s. Ask for both with view="{a}", or both with view="{b}".'
    )


def joint_parts(each: list[dict[str, Any]]) -> dict[str, Any]:
    """Parts of independent errors together; what is unknown in all of them is unknown."""
    joint: dict[str, Any] = {}
    for name in PARTS:
        known = [np.square(parts[name]) for parts in each if parts[name] is not None]
        joint[name] = np.sqrt(np.sum(known, axis=0)) if known else None
    return joint
