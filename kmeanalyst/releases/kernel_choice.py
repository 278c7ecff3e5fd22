"""From a domain to a kernel: the default kernels for tables, and kernels written as text.

Everything here depends on the domain and on the noise there will be (N, ε, δ) alone, so nothing is learned from private
rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from kmeanalyst.kernels import (
    ExponentialDot,
    Gaussian,
    Indicator,
    Kernel,
    Laplacian,
    Matern,
    MultiScale,
    Periodic,
    Polynomial,
    RationalQuadratic,
    SoftenedProduct,
    StringSpectrum,
)
from kmeanalyst.releases.columns import Categorical, Column, Date, Ordinal
from kmeanalyst.releases.cyclic_column import Cyclic
from kmeanalyst.releases.domain import Domain, DomainError
from kmeanalyst.releases.generator_kernel import generator_kernel
from kmeanalyst.releases.margin_kernel import USUAL_NOISE, margin_kernel
from kmeanalyst.releases.text_column import Text

_COLUMNS_SEEN = 3  # a random feature of the table kernel looks at about three columns
_SUBSTRINGS = 3  # characters of the longest that are compared
_YEAR = 365.2425  # days, in the mean of the calendar's 400 years
_FINEST = 256  # a continuum is resolved to this part of its range
_OF_THE_DOMAIN = ("table", "margins", "generator")


def table_kernel(domain: Domain, *, length: int = _SUBSTRINGS, blended: bool = True) -> Kernel:
    """The default kernel for tables: a softened product of one kernel per column (METHODS §3).

    Numbers, dates and ordinals get Gaussians at lengthscales from one step of the column up to its range,
    an octave apart, cyclic quantities the same around their circle, seasonal dates both; levels get the indicator.
    length, blended   of strings: the substrings that two of them share, of up to so many characters or of just so many.
    """
    kernels = tuple(
        spectrum_of(column, length, blended=blended) if isinstance(column, Text) else _column_kernel(column)
        for column in domain.columns
    )
    return SoftenedProduct(kernels=kernels, inclusion=float(np.clip(_COLUMNS_SEEN / len(domain), 0.01, 0.5)))


def _column_kernel(column: Column) -> Kernel:
    if isinstance(column, Cyclic):
        return Periodic(period=column.period, lengthscales=_octaves(column.period / 4, column.period / _FINEST))
    if isinstance(column, Categorical) and not (isinstance(column, Ordinal) and len(column.levels) > 2):
        return Indicator(levels=len(column.levels))
    if isinstance(column, Date) and column.seasonal:
        season = Periodic(period=_YEAR, lengthscales=_octaves(_YEAR / 4, _YEAR / 64))
        return 0.5 * _column_kernel(replace(column, seasonal=False)) + 0.5 * season
    low, high = column.bounds  # type: ignore[attr-defined]
    finest = max(getattr(column, "step", 1.0) or 0.0, (high - low) / _FINEST)
    return MultiScale(lengthscales=_octaves(high - low, finest))


def _octaves(broadest: float, finest: float) -> tuple[float, ...]:
    octaves = max(0, round(np.log2(broadest / finest)))
    return tuple(float(broadest) / 2.0**i for i in reversed(range(octaves + 1)))


def spectrum_of(column: Text, length: int = _SUBSTRINGS, *, blended: bool = True) -> StringSpectrum:
    """The spectrum kernel of a text column's strings."""
    return StringSpectrum(length=length, symbols=len(column.symbols), numbers=column.width, blended=blended)


def kernel_from_spec(
    spec: str | Kernel | None,
    domain: Domain,
    target: str | None = None,
    noise: float = USUAL_NOISE,
    *,
    finer: bool = True,
) -> Kernel:
    """A kernel from its text, such as "table" or "gaussian:lengthscale=158.1"; DomainError if it cannot be.

    Lengthscales are in the columns' own units, log units for log columns. None is "table". The parameters are named as
    the kernel's fields are: "matern:nu=1.5,lengthscale=2", "rational-quadratic:alpha=1,lengthscale=2". Dot-product kernels
    ("polynomial:degree=2,offset=1", "exponential-dot:rate=1") are of columns scaled from their bounds to [−1, 1].
    target                 a column that the kernels margins and generator cross with the others.
    noise, finer           of `margin_kernel`; other kernels have no use for them.
    """
    if target is not None and spec not in ("margins", "generator"):
        raise DomainError(
            'target goes with the kernel "margins" or the method "generator", which measure how the other columns relate '
            "to it. Name both, or leave it out."
        )
    if isinstance(spec, Kernel):
        return spec
    name, _, rest = (spec or "table").partition(":")
    texts = [column.name for column in domain.columns if isinstance(column, Text)]
    if texts and name != "table":
        raise DomainError(
            f"the {name} kernel is not for strings, and {', '.join(texts)} has such: only the table kernel compares them. "
            'Write "table", or "table:length=4" for substrings of 4 characters.'
        )
    if texts and rest:
        return table_kernel(domain, **_substrings(rest))
    if name in _OF_THE_DOMAIN:
        if rest:
            raise DomainError(
                f'the {name} kernel takes no parameters, got {rest!r}: the domain sets them. Write "{name}".'
            )
        if name == "table":
            return table_kernel(domain)
        return (
            generator_kernel(domain, target)
            if name == "generator"
            else margin_kernel(domain, target, noise, finer=finer)
        )
    if name not in _OF_NUMBERS:
        raise DomainError(
            f"unknown kernel {name!r}. Write one of {', '.join(_OF_THE_DOMAIN)}, {', '.join(_OF_NUMBERS)}."
        )
    _refuse_levels(name, domain)
    make, allowed = _OF_NUMBERS[name]
    try:
        return make(domain, **_parameters(rest))
    except TypeError:
        raise DomainError(f'kernel {spec!r}: {name} takes {allowed}. Write "{name}:{allowed}".') from None
    except ValueError as error:
        raise DomainError(f"kernel {spec!r}: {error}") from None


def _polynomial(domain: Domain, *, degree: float = 2.0, offset: float = 1.0) -> Kernel:
    whole = int(degree) if degree == degree // 1 and abs(degree) < 1e9 else degree  # else the kernel says what is wrong
    return Polynomial(whole, offset, *_bounds(domain))  # type: ignore[arg-type]


def _exponential(domain: Domain, *, rate: float = 1.0) -> Kernel:
    return ExponentialDot(rate, *_bounds(domain))


def _bounds(domain: Domain) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The columns' public bounds, encoded."""
    ends = [column.bounds for column in domain.columns]  # type: ignore[attr-defined]
    return tuple(float(low) for low, _ in ends), tuple(float(high) for _, high in ends)


def _of_distance(kernel: type[Kernel]) -> Callable[..., Kernel]:
    return lambda domain, **parameters: kernel(**parameters)


_OF_NUMBERS: dict[str, tuple[Callable[..., Kernel], str]] = {  # how it is made, and what may be written
    "gaussian": (_of_distance(Gaussian), "lengthscale=1.0"),
    "laplacian": (_of_distance(Laplacian), "lengthscale=1.0"),
    "matern": (_of_distance(Matern), "nu=1.5,lengthscale=1.0"),
    "rational-quadratic": (_of_distance(RationalQuadratic), "alpha=1.0,lengthscale=1.0"),
    "polynomial": (_polynomial, "degree=2,offset=1.0"),
    "exponential-dot": (_exponential, "rate=1.0"),
}


def _substrings(text: str) -> dict[str, Any]:
    """The table kernel's parameters where strings are compared: "length=4" or "length=4,blended=1"."""
    try:
        parameters = _parameters(text)
    except ValueError as error:
        raise DomainError(f"kernel table: {error}") from None
    length, blended = parameters.pop("length", float(_SUBSTRINGS)), parameters.pop("blended", 0.0)
    if parameters or not length.is_integer() or length < 1 or blended not in (0.0, 1.0):
        raise DomainError(
            f"kernel table: of strings it takes length, a whole number of at least 1, and blended, 0 or 1, got {text!r:.80}. "
            'Write e.g. "table:length=4" or "table:length=4,blended=1".'
        )
    return {"length": int(length), "blended": bool(blended)}


def _refuse_levels(name: str, domain: Domain) -> None:
    levels = [column.name for column in domain.columns if isinstance(column, Categorical)]
    if levels:
        raise DomainError(
            f"the {name} kernel is for numbers, and {', '.join(levels)} have levels, which have no distance. "
            'Use "table", which treats each column as what it is.'
        )


def _parameters(text: str) -> dict[str, float]:
    parameters = {}
    for item in filter(None, text.split(",")):
        key, _, value = item.partition("=")
        try:
            parameters[key.strip()] = float(value)
        except ValueError:
            raise ValueError(f"{item!r} is not name=number. Write e.g. lengthscale=1.0") from None
    return parameters
