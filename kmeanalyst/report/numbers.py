"""How numbers are written on the page: with as many digits as their error justifies."""

from __future__ import annotations

import datetime
import math

from kmeanalyst.inference.estimate.estimate import Estimate
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.numbers import Date

_EPOCH = datetime.date(1970, 1, 1)
_MINUS = "−"


def written(estimate: Estimate, number: float) -> str:
    if not math.isfinite(number):
        return "not known"
    text = f"{number:,.6g}" if estimate.standard_error == 0 else estimate.written(number, ",")
    return text.replace("-", _MINUS)


def with_error(estimate: Estimate, column: Column) -> str:
    if not math.isfinite(estimate.value):
        return "not known"
    if isinstance(column, Date):
        error = estimate.standard_error
        digits = ",.0f" if error >= 10 else ".2g"
        return f"{day(estimate.value)} ± " + (f"{error:{digits}} days" if math.isfinite(error) else "not known")
    return f"{written(estimate, estimate.value)} ± {written(estimate, estimate.standard_error)}"


def value_text(estimate: Estimate, column: Column, number: float) -> str:
    if isinstance(column, Date) and math.isfinite(number):
        return day(number)
    return written(estimate, number)


def day(number: float) -> str:
    try:
        return (_EPOCH + datetime.timedelta(days=round(number))).isoformat()
    except OverflowError:
        return "not known"


def percent(estimate: Estimate) -> str:
    if not math.isfinite(estimate.value):
        return "not known"
    digits = _decimals(estimate)
    value, error = 100 * estimate.value, 100 * estimate.standard_error
    uncertainty = f" ± {error:.{digits}f}" if math.isfinite(error) else ""
    return f"{value:.{digits}f}{uncertainty} %".replace("-", _MINUS)


def percent_text(estimate: Estimate) -> str:
    low, high = estimate.interval()
    if not math.isfinite(low):
        return percent(estimate)
    digits = _decimals(estimate)
    return f"{percent(estimate)} (95 %: {100 * low:.{digits}f} to {100 * high:.{digits}f})".replace("-", _MINUS)


def bare_percent(number: float | None, like: Estimate) -> str:
    """A part of a share in per cent, with the decimals of the share."""
    if number is None or not math.isfinite(number):
        return "not known"
    return f"{100 * number:.{_decimals(like)}f}".replace("-", _MINUS)


def _decimals(share: Estimate) -> int:
    """Of a share in per cent: those that show two digits of its error, four at most."""
    return min(max(share.digits - 2, 0), 4) if share.standard_error > 0 else 2
