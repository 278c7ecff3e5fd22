"""Drawings of a column's shares as SVG, with a title and a description each; numbers with as many digits as their error justifies.

A bar is the estimate. The thin line over it is its 95 % interval; the thick line is the interval that the privacy noise alone
would give. Colours (blue, dark, orange-brown) differ in lightness too, for colour-blind readers and grey prints.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence

from kmeanalyst.inference.estimate.estimate import Estimate
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.numbers import Date
from kmeanalyst.report.facts import Bar, ColumnFacts
from kmeanalyst.report.markup import Markup, element, short

WIDTH = 340
_Z = 1.959964
_MOST_ROWS = 20
_KEPT_ROWS = 15  # bars that are drawn if there are more
ROW = 19
_EPOCH = datetime.date(1970, 1, 1)
_MINUS = "−"
Scale = Callable[[float], float]


def chart(facts: ColumnFacts, key: str) -> Markup | None:
    """The drawing of a column; None where it has no shares. `key` makes its ids unique on the page."""
    bars = [bar for bar in facts.bars if math.isfinite(bar.estimate.value)]
    if not bars:
        return None
    shown, rest = _few(bars)
    label, right = 114.0, 96.0
    position = _scale(*_reach([bar.estimate for bar in shown]), label + 6, WIDTH - right)
    parts = [_row(bar, k, position, label) for k, bar in enumerate(shown)]
    parts.append(line_between(position(0), 0, position(0), len(shown) * ROW, "axis"))
    height = len(shown) * ROW + (18 if rest else 2)
    if rest:
        parts.append(text_at(f"and {rest} smaller ones, in the table below", 0, height - 4, "label"))
    largest = sorted(bars, key=lambda bar: -bar.estimate.value)[:5]
    shares = "; ".join(f"{short(bar.label, 60)}: {percent_text(bar.estimate)}" for bar in largest)
    words = f"Largest of {len(bars)} shares: {shares}. Lines are 95 % intervals; all numbers are in the table below."
    return drawing(f"{short(facts.name, 60)}: estimated distribution", key, height, words, parts)


def drawing(title: str, key: str, height: float, words: str, parts: Sequence[object]) -> Markup:
    """A drawing of the width of all of them; `key` makes its ids unique on the page, `words` describe it."""
    heads = element("title", title, id=f"{key}t"), element("desc", words, id=f"{key}d")
    box, labels = f"0 0 {WIDTH} {height:g}", f"{key}t {key}d"
    return element("svg", heads, parts, viewBox=box, role="img", aria_labelledby=labels)


def _few(bars: Sequence[Bar]) -> tuple[list[Bar], int]:
    if len(bars) <= _MOST_ROWS:
        return list(bars), 0
    kept = sorted(range(len(bars)), key=lambda k: -bars[k].estimate.value)[:_KEPT_ROWS]
    return [bars[k] for k in sorted(kept)], len(bars) - len(kept)


def _row(bar: Bar, k: int, position: Scale, label: float) -> Markup:
    middle = k * ROW + ROW / 2
    start, end = sorted((position(0), position(bar.estimate.value)))
    return element(
        "g", element("title", f"{short(bar.label, 200)}: {percent_text(bar.estimate)}"),
        text_at(short(bar.label, 17), label, middle + 4, "label end"), rectangle(start, middle - 6, end - start, 12, "bar"),
        _band(bar.estimate, position, middle), text_at(percent(bar.estimate), WIDTH, middle + 4, "number end"),
    )  # fmt: skip


def _band(estimate: Estimate, position: Scale, y: float) -> Markup | None:
    """The lines over a bar: the 95 % interval, and that of the privacy noise alone."""
    if not math.isfinite(estimate.standard_error):
        return None
    ends = [(*estimate.interval(), "all")]
    privacy = estimate.parts.get("privacy")
    if privacy is not None and math.isfinite(privacy):
        ends.append((estimate.value - _Z * privacy, estimate.value + _Z * privacy, "noise"))
    return element("g", [line_between(position(low), y, position(high), y, kind) for low, high, kind in ends])


def _reach(estimates: Sequence[Estimate]) -> tuple[float, float]:
    """The lowest and highest value to draw, including zero; a line far longer than all bars is cut."""
    values = [estimate.value for estimate in estimates]
    ends = [end for estimate in estimates for end in estimate.interval() if math.isfinite(end)]
    most = max(*values, 0.0) or 0.01
    high = max(min(max([*ends, most]), 2.5 * most), most)
    lowest = min(*values, 0.0)
    return max(min([*ends, lowest]), lowest - 0.25 * high), high


def _scale(low: float, high: float, start: float, end: float) -> Scale:
    span = (high - low) or 1.0

    def position(value: float) -> float:
        return start + (end - start) * min(max((value - low) / span, 0.0), 1.0)

    return position


def text_at(text: str, x: float, y: float, kind: str) -> Markup:
    return element("text", text, x=_n(x), y=_n(y), class_=kind)


def line_between(x: float, y: float, x_end: float, y_end: float, kind: str) -> Markup:
    return element("line", x1=_n(x), y1=_n(y), x2=_n(x_end), y2=_n(y_end), class_=kind)


def rectangle(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    return element("rect", x=_n(x), y=_n(y), width=_n(width), height=_n(height), class_=kind)


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


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
