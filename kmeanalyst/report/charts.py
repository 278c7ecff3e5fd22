"""Drawings of a column's shares as SVG: text stays text, and every drawing has a title and a description.

A bar is the estimate. The thin line over it is its 95 % interval; the thick line is the interval that the privacy noise alone
would give. Colours (blue, dark, orange-brown) differ in lightness too, for colour-blind readers and grey prints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kmeanalyst.inference.estimate.estimate import Estimate
from kmeanalyst.inference.questions.groups import MISSING
from kmeanalyst.releases.domain.numbers import Date, Number
from kmeanalyst.report.facts import Bar, ColumnFacts
from kmeanalyst.report.markup import Markup, element, short
from kmeanalyst.report.numbers import percent, percent_text

WIDTH = 340
_Z = 1.959964
_MOST_ROWS = 20
_KEPT_ROWS = 15  # bars that are drawn if there are more
_WIDEST = 8.0  # times the narrowest range of a histogram: beyond, ranges are rows
ROW = 19
Scale = Callable[[float], float]


def chart(facts: ColumnFacts, key: str) -> Markup | None:
    """The drawing of a column; None where it has no shares. `key` makes its ids unique on the page."""
    bars = [bar for bar in facts.bars if math.isfinite(bar.estimate.value)]
    if not bars:
        return None
    present = [bar for bar in bars if bar.label != MISSING]
    widths = [bar.extent[1] - bar.extent[0] for bar in present if bar.extent]
    alike = len(widths) == len(present) > 0 and 0 < max(widths) <= _WIDEST * min(widths)
    return _histogram(facts, present, key) if alike and isinstance(facts.column, Number) else _rows(facts, bars, key)


def drawing(title: str, key: str, height: float, words: str, parts: Sequence[object]) -> Markup:
    """A drawing of the width of all of them; `key` makes its ids unique on the page, `words` describe it."""
    heads = element("title", title, id=f"{key}t"), element("desc", words, id=f"{key}d")
    box, labels = f"0 0 {WIDTH} {height:g}", f"{key}t {key}d"
    return element("svg", heads, parts, viewBox=box, role="img", aria_labelledby=labels)


def _drawn(facts: ColumnFacts, bars: Sequence[Bar], key: str, height: float, parts: Sequence[object]) -> Markup:
    largest = sorted(bars, key=lambda bar: -bar.estimate.value)[:5]
    shares = "; ".join(f"{short(bar.label, 60)}: {percent_text(bar.estimate)}" for bar in largest)
    words = f"Largest of {len(bars)} shares: {shares}. Lines are 95 % intervals; all numbers are in the table below."
    return drawing(f"{short(facts.name, 60)}: estimated distribution", key, height, words, parts)


def _rows(facts: ColumnFacts, bars: Sequence[Bar], key: str) -> Markup:
    shown, rest = _few(bars)
    label, right = 114.0, 96.0
    low, high = _reach([bar.estimate for bar in shown], [1.0] * len(shown))
    position = _scale(low, high, label + 6, WIDTH - right)
    parts = [_row(bar, k, position, label) for k, bar in enumerate(shown)]
    parts.append(line_between(position(0), 0, position(0), len(shown) * ROW, "axis"))
    height = len(shown) * ROW + (18 if rest else 2)
    if rest:
        parts.append(text_at(f"and {rest} smaller ones, in the table below", 0, height - 4, "label"))
    return _drawn(facts, bars, key, height, parts)


def _few(bars: Sequence[Bar]) -> tuple[list[Bar], int]:
    if len(bars) <= _MOST_ROWS:
        return list(bars), 0
    kept = sorted(range(len(bars)), key=lambda k: -bars[k].estimate.value)[:_KEPT_ROWS]
    return [bars[k] for k in sorted(kept)], len(bars) - len(kept)


def _row(bar: Bar, k: int, position: Scale, label: float) -> Markup:
    middle = k * ROW + ROW / 2
    start, end = sorted((position(0), position(bar.estimate.value)))
    return element(
        "g",
        element("title", f"{short(bar.label, 200)}: {percent_text(bar.estimate)}"),
        text_at(short(bar.label, 17), label, middle + 4, "label end"),
        rectangle(start, middle - 6, end - start, 12, "bar"),
        _band(bar.estimate, 1.0, position, lambda a, b, kind: line_between(a, middle, b, middle, kind)),
        text_at(percent(bar.estimate), WIDTH, middle + 4, "number end"),
    )


def _band(
    estimate: Estimate, factor: float, position: Scale, line: Callable[[float, float, str], Markup]
) -> Markup | None:
    """The lines over a bar: the 95 % interval, and that of the privacy noise alone."""
    if not math.isfinite(estimate.standard_error):
        return None
    low, high = estimate.interval()
    lines = [line(position(low * factor), position(high * factor), "all")]
    privacy = estimate.parts.get("privacy")
    if privacy is not None and math.isfinite(privacy):
        ends = [position((estimate.value + sign * _Z * privacy) * factor) for sign in (-1, 1)]
        lines.append(line(ends[0], ends[1], "noise"))
    return element("g", lines)


def _histogram(facts: ColumnFacts, bars: Sequence[Bar], key: str) -> Markup:
    """Bars over ranges; where widths differ, heights are scaled to the usual width, so that areas are shares."""
    left, right, top, bottom = 46.0, WIDTH - 6.0, 22.0, 168.0
    factors, even = _factors(bars)
    low, high = _reach([bar.estimate for bar in bars], factors)
    up = _scale(low, high, bottom, top)
    extents = [bar.extent for bar in bars if bar.extent]
    across = _scale(min(e[0] for e in extents), max(e[1] for e in extents), left, right)
    drawn = [_upright(bar, factor, across, up) for bar, factor in zip(bars, factors, strict=True)]
    heights = [(value, up(value)) for value in _round_values(low, high)]
    grid = [line_between(left, y, right, y, "grid") for _, y in heights]
    ticks = [text_at(f"{100 * value:.4g} %", left - 4, y + 4, "label end") for value, y in heights]
    axis = line_between(left, up(0), right, up(0), "axis")
    what = "share" if even else "share, were all ranges as wide as most"
    caption = text_at(what, 0, 11, "label")
    parts = [grid, ticks, drawn, axis, caption, _feet(facts, bars, across, bottom + 16)]
    return _drawn(facts, bars, key, 188, parts)


def _factors(bars: Sequence[Bar]) -> tuple[list[float], bool]:
    """What each share is multiplied by, and whether all ranges are about equally wide."""
    widths = np.array([bar.extent[1] - bar.extent[0] for bar in bars if bar.extent])
    usual = float(np.median(widths))
    if np.ptp(widths) <= 0.01 * usual:
        return [1.0] * len(bars), True
    return [float(usual / width) for width in widths], False


def _upright(bar: Bar, factor: float, across: Scale, up: Scale) -> Markup:
    assert bar.extent is not None
    x, end = across(bar.extent[0]), across(bar.extent[1])
    top, foot = sorted((up(0), up(bar.estimate.value * factor)))
    middle, gap = (x + end) / 2, min(1.0, (end - x) / 8)
    return element(
        "g",
        element("title", f"{short(bar.label, 200)}: {percent_text(bar.estimate)}"),
        rectangle(x + gap, top, end - x - 2 * gap, foot - top, "bar"),
        _band(bar.estimate, factor, up, lambda a, b, kind: line_between(middle, a, middle, b, kind)),
    )


def _feet(facts: ColumnFacts, bars: Sequence[Bar], across: Scale, y: float) -> list[Markup]:
    """Values under the axis: single values in the middle of their bars, ends of ranges at their ends; as many as fit."""
    single = all(bar.edges and bar.edges[0] == bar.edges[1] for bar in bars)
    marks = [
        (across(sum(bar.extent) / 2 if single else bar.extent[0]), bar.edges[0])
        for bar in bars
        if bar.extent and bar.edges
    ]
    last = bars[-1]
    if not single and last.extent and last.edges:
        marks.append((across(last.extent[1]), last.edges[1]))
    feet, free = [], -math.inf
    for x, value in marks:
        text = tick_text(value, isinstance(facts.column, Date))
        half = 3.3 * len(text) + 3
        x = min(max(x, half), WIDTH - half)
        if x - half >= free:
            feet.append(text_at(text, x, y, "label middle"))
            free = x + half
    return feet


def tick_text(value: Any, day: bool) -> str:
    """A value under an axis, in few characters."""
    if day:
        return str(value)[:10]
    number = float(value)
    if number == round(number) and 1e4 <= abs(number) < 1e15:
        for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(number) >= size:
                return f"{number / size:.3g}{letter}" if abs(number) < 1e12 else f"{number:.2g}"
    return f"{number:.4g}"


def _reach(estimates: Sequence[Estimate], factors: Sequence[float]) -> tuple[float, float]:
    """The lowest and highest value to draw, including zero; a line far longer than all bars is cut."""
    values = [estimate.value * factor for estimate, factor in zip(estimates, factors, strict=True)]
    ends = [end * f for e, f in zip(estimates, factors, strict=True) for end in e.interval() if math.isfinite(end)]
    most = max(*values, 0.0) or 0.01
    high = max(min(max([*ends, most]), 2.5 * most), most)
    lowest = min(*values, 0.0)
    return max(min([*ends, lowest]), lowest - 0.25 * high), high


def _scale(low: float, high: float, start: float, end: float) -> Scale:
    span = (high - low) or 1.0

    def position(value: float) -> float:
        return start + (end - start) * min(max((value - low) / span, 0.0), 1.0)

    return position


def _round_values(low: float, high: float) -> list[float]:
    """About four round numbers between two."""
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-12) / 3))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= 4)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def text_at(text: str, x: float, y: float, kind: str) -> Markup:
    """A text that begins here, or by its class ends here or has its middle here."""
    return element("text", text, x=_n(x), y=_n(y), class_=kind)


def line_between(x: float, y: float, x_end: float, y_end: float, kind: str) -> Markup:
    return element("line", x1=_n(x), y1=_n(y), x2=_n(x_end), y2=_n(y_end), class_=kind)


def rectangle(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    return element("rect", x=_n(x), y=_n(y), width=_n(width), height=_n(height), class_=kind)


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
