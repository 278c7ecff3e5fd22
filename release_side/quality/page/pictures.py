"""Small drawings of the page as SVG, in the style of the report's: the table in grey, the release in blue."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kmeanalyst.report.markup import Markup, element, short
from release_side.quality.scores import ColumnScore, SubSample

_WIDTH = 340
_MOST_ROWS = 12  # cells that have a line of their own, with a name
_MOST_BARS = 60
_ROW, _LABEL, _RIGHT = 17, 112.0, 92.0
_HEIGHT = 84.0


def column_picture(column: ColumnScore, key: str) -> Markup | None:
    """The shares of a column's cells: bars are the table's, blue marks the release's. None without cells."""
    if not column.cells:
        return None
    kept = _kept(column)
    parts = _lines(column, kept) if len(kept) <= _MOST_ROWS else _bars(column, kept)
    height = len(kept) * _ROW if len(kept) <= _MOST_ROWS else _HEIGHT + 18
    farthest = sorted(kept, key=lambda k: -abs(column.release[k] - column.table[k]))[:3]
    words = "; ".join(
        f"{short(column.cells[k], 60)}: {percent(column.table[k])} in the table, {percent(column.release[k])} in the release"
        for k in farthest
    )
    left = f" {len(column.cells) - len(kept)} rarer values are not drawn." if len(kept) < len(column.cells) else ""
    return _svg(key, height, f"{short(column.name, 60)}: table and release", f"Farthest: {words}.{left}", parts)


def _kept(column: ColumnScore) -> list[int]:
    """The cells that are drawn: all, or the most frequent, in their order."""
    if len(column.cells) <= _MOST_BARS:
        return list(range(len(column.cells)))
    return sorted(sorted(range(len(column.cells)), key=lambda k: -column.table[k] - column.release[k])[:_MOST_BARS])


def _lines(column: ColumnScore, kept: Sequence[int]) -> list[Markup]:
    most = max(max(column.table[k], column.release[k]) for k in kept) or 1.0
    scale = (_WIDTH - _LABEL - _RIGHT - 6) / most
    found = []
    for i, k in enumerate(kept):
        middle, start = i * _ROW + _ROW / 2, _LABEL + 6
        mark = start + scale * column.release[k]
        found.append(
            element(
                "g",
                element("title", _hover(column, k)),
                _text(short(column.cells[k], 17), _LABEL, middle + 4, "label end"),
                _rectangle(start, middle - 5, scale * column.table[k], 10),
                _line(mark, middle - 7, mark, middle + 7, "released"),
                _text(f"{percent(column.table[k])} | {percent(column.release[k])}", _WIDTH, middle + 4, "number end"),
            )
        )
    return found


def _bars(column: ColumnScore, kept: Sequence[int]) -> list[Markup]:
    most = max(max(column.table[k], column.release[k]) for k in kept) or 1.0
    width, scale = _WIDTH / len(kept), (_HEIGHT - 8) / most
    found = [_line(0, _HEIGHT, _WIDTH, _HEIGHT, "axis")]
    for i, k in enumerate(kept):
        left, height, mark = i * width, scale * column.table[k], _HEIGHT - scale * column.release[k]
        bar = _rectangle(left + 0.1 * width, _HEIGHT - height, 0.8 * width, height)
        level = _line(left + 0.05 * width, mark, left + 0.95 * width, mark, "released")
        found.append(element("g", element("title", _hover(column, k)), bar, level))
    ends = (_text(short(column.cells[kept[0]], 24), 0, _HEIGHT + 14, "label"),
            _text(short(column.cells[kept[-1]], 24), _WIDTH, _HEIGHT + 14, "label end"))  # fmt: skip
    return [*found, *ends]


def _hover(column: ColumnScore, k: int) -> str:
    return f"{short(column.cells[k], 200)}: table {percent(column.table[k])}, release {percent(column.release[k])}"


def sample_picture(sample: SubSample, score: float) -> Markup:
    """The expected score of random samples of the table's rows by their share, and where the release's score lies."""
    shares, scores = zip(*sample.curve, strict=True)
    low, high = min(*scores, score), 1000.0
    x = [_WIDTH * math.log(share / shares[0]) / math.log(shares[-1] / shares[0]) for share in shares]
    y = [_HEIGHT * (1 - (each - low) / max(high - low, 1e-9)) for each in scores]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    level = _HEIGHT * (1 - (score - low) / max(high - low, 1e-9))
    parts = [
        _line(0, _HEIGHT, _WIDTH, _HEIGHT, "axis"),
        element("polyline", points=path, class_="curve"),
        _line(0, level, _WIDTH, level, "released"),
        _text(f"{100 * shares[0]:.2g} % of the rows", 0, _HEIGHT + 14, "label"),
        _text(f"{100 * shares[-1]:.2g} %", _WIDTH, _HEIGHT + 14, "label end"),
    ]
    words = f"The line rises from {scores[0]:.0f} to {scores[-1]:.0f}; the release has {score:.0f}, as a sample of {sample.text}."
    return _svg("sample", _HEIGHT + 18, "Score of random samples of the table's rows, by their share", words, parts)


def percent(share: float) -> str:
    """A share in per cent, with three digits.

    >>> percent(0.14159), percent(0.00021), percent(float("nan"))
    ('14.2 %', '0.021 %', 'not known')
    """
    if not math.isfinite(share):
        return "not known"
    return f"{100 * share:.3g} %".replace("-", "−") if abs(share) < 0.9995 else f"{100 * share:.0f} %".replace("-", "−")


def _svg(key: str, height: float, title: str, words: str, parts: Sequence[object]) -> Markup:
    heads = element("title", title, id=f"{key}t"), element("desc", words, id=f"{key}d")
    box = f"0 0 {_WIDTH} {height:g}"
    return element("svg", heads, parts, viewBox=box, role="img", aria_labelledby=f"{key}t {key}d")


def _rectangle(x: float, y: float, width: float, height: float) -> Markup:
    return element("rect", x=f"{x:.1f}", y=f"{y:.1f}", width=f"{width:.1f}", height=f"{height:.1f}", class_="own")


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return element("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", class_=kind)


def _text(text: str, x: float, y: float, kind: str) -> Markup:
    return element("text", text, x=f"{x:g}", y=f"{y:g}", class_=kind)
