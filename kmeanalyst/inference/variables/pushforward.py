"""Any vectorised function of random variables, as a random variable (Balog et al. 2018, §3.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.variables.nodes import Kind, Node, RowGrid, applied, inside, values_at
from kmeanalyst.inference.variables.operators import is_variable
from kmeanalyst.inference.variables.random_variable import RandomVariable
from kmeanalyst.kernels.base import Array

_TRIED = 5  # rows that a function is tried on
_ALIKE = 1e-5  # single precision


def pushforward(f: Callable[..., Any], *variables: Any) -> RandomVariable:
    """f(X, Y, ...) as a random variable: its distribution is that of the variables, pushed through f.

    f           vectorised: takes one argument for each variable and gives an array (n,), or (n, d) for d components. A
                variable of one component comes as an array (n,), float64 (bool for a condition, text for levels), one of
                several as a DataFrame. It must work row by row, and is tried on a few rows.
    variables   random variables, of one release or of several; numbers are handed on as they are.
    Assumes     f continuous, for consistency; the weights' Σ|w| is checked when a question is asked.

    >>> import pandas as pd, kmeanalyst as ka
    >>> release = ka.from_frame(pd.DataFrame({"x": [1.0, 2.0], "weight": [0.25, 0.75]}))
    >>> ka.pushforward(lambda x: x**2, release["x"]).mean().value
    3.25
    """
    if not callable(f):
        raise TypeError(f"pushforward takes a function first, got {f!r:.80}. Pass e.g. lambda x, y: x * y.")
    known: list[Any] = [variable for variable in variables if is_variable(variable)]
    if not known:
        raise TypeError("pushforward needs a random variable to push. Pass e.g. release['age'] after the function.")
    sizes = [len(variable.nodes) if is_variable(variable) else 0 for variable in variables]
    arguments = [part for v in variables for part in (v.nodes if is_variable(v) else (v,))]
    name = getattr(f, "__name__", "f").replace("<lambda>", "f")
    text = f"{name}({', '.join(part.text if isinstance(part, Node) else inside(part) for part in arguments)})"

    def flat(*values: Any) -> Array:
        return _checked(f(*_grouped(list(values), arguments, sizes)), len(next(v for v in values if np.ndim(v))), text)

    whole = applied(flat, arguments, text=text, kind="number", broadcasts=False)
    tried = _at_rows(whole, np.arange(min(_TRIED, *(len(release) for release in whole.releases))))
    if tried.dtype.kind not in "biuf":
        raise TypeError(
            f"{text} gives values of type {tried.dtype}, which are neither numbers nor truth values. Return one of these."
        )
    kind: Kind = "condition" if tried.dtype == bool else "number"
    _check_row_by_row(whole, tried, text)
    if tried.ndim == 1:
        nodes: tuple[Node, ...] = (replace(whole, kind=kind),)
    else:
        nodes = tuple(
            applied(lambda values, j=j: values[..., j], [whole], text=f"{text}[{j}]", kind=kind) for j in range(tried.shape[1])
        )
    found: RandomVariable = known[0].combine(known, nodes)
    return found


def _grouped(values: list[Any], arguments: list[Any], sizes: list[int]) -> list[Any]:
    """Flat arrays as the function takes them: those of one variable of several components in a DataFrame."""
    grouped, start = [], 0
    for size in sizes:
        if size > 1:
            names = [arguments[start + i].column or arguments[start + i].text for i in range(size)]
            grouped.append(pd.DataFrame(dict(zip(names, values[start : start + size], strict=True))))
        else:
            grouped.append(values[start])
        start += max(size, 1)
    return grouped


def _checked(found: Any, n: int, text: str) -> Array:
    values = np.asarray(found)
    if values.ndim not in (1, 2) or len(values) != n:
        raise ValueError(
            f"{text} must give one value, or one row of values, for each of {n} rows, got shape {values.shape}. Write a "
            "function that works on whole arrays, such as lambda x, y: x * y."
        )
    return values


def _at_rows(node: Node, rows: Array) -> Array:
    """A node's values at these points of each release, one next to the other."""
    frames = {release: release.frame.iloc[rows] for release in node.releases}
    if len(frames) == 1:
        return np.asarray(node(next(iter(frames.values()))))
    at = {release: np.arange(len(rows)) for release in frames}
    return next(values_at(node, frames, [RowGrid(at, dict.fromkeys(at, 0))]))


def _check_row_by_row(node: Node, tried: Array, text: str) -> None:
    """ValueError unless other rows next to a row, and their order, leave its value as it is."""
    fewer = np.arange(len(tried) - 1)[::-1]
    if not len(fewer):
        return
    alone = _at_rows(node, fewer)
    scale = _ALIKE * max(np.abs(tried[np.isfinite(tried)], dtype=float).max(initial=0.0), 1e-300)
    if alone.shape[1:] != tried.shape[1:] or not np.allclose(
        alone.astype(float), tried[fewer].astype(float), rtol=_ALIKE, atol=scale, equal_nan=True
    ):
        raise ValueError(
            f"{text} gives a row another value when there are other rows next to it, so it is not a function of the row: it "
            "uses all rows, as x.mean() or np.sort do, or it is random. Write a function that works row by row."
        )
