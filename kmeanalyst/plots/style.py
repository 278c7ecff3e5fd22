"""What all drawings share: series that differ without colour (Okabe & Ito 2008), captions, the stamp, files."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.declared_statement import Statement
from kmeanalyst.releases.expressions.words import short
from kmeanalyst.releases.file.archive import atomic_write, ending_of
from kmeanalyst.releases.release import ReleaseData

SIZE = (6.0, 3.7)  # inches, width and height of one drawing
INK, GREY, RULE = "0.15", "0.4", "0.55"  # grey levels of whiskers, of captions, and of lines that show no data
FORMATS = (".png", ".pdf", ".svg")
_DPI = 150
_LONGEST = 28  # characters of a label
_SMALL = 7.5  # points, of captions
_CAPTION = 76  # characters of a line of a caption
_DOT = " · "
STAMP = "NOT PRIVATE"


@dataclass(frozen=True)
class SeriesStyle:
    colour: str
    marker: str


RELEASE, SAMPLE = SeriesStyle("#0072B2", "o"), SeriesStyle("#D55E00", "s")


def axes_of(ax: Axes | None, size: tuple[float, float] = SIZE) -> Axes:
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.subplots(figsize=size, layout="constrained")[1]
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plain(text: object, most: int = _LONGEST) -> str:
    """A name or level as a drawing shows it: cut to a length; a dollar does not start a formula."""
    return without_formulas(short(str(text), most))


def without_formulas(text: str) -> str:
    r"""A text in which matplotlib reads every dollar as a dollar; those that are escaped already stay so.

    >>> print(without_formulas(without_formulas("over $5")))
    over \$5
    """
    return text.replace(r"\$", "$").replace("$", r"\$")


def whiskers(ax: Any, positions: Array, values: Array, error: Any, *, down: bool = False, **style: Any) -> None:
    x, y = (values, positions) if down else (positions, values)
    ax.errorbar(x, y, **{"xerr" if down else "yerr": error}, **style)


def caption(ax: Axes, *parts: str) -> None:
    lines = [line for part in parts for line in _broken(part)]
    ax.set_title(without_formulas("\n".join(lines)), loc="left", fontsize=_SMALL, color=GREY)


def _broken(part: str) -> list[str]:
    lines = [""]
    for piece in part.split(_DOT):
        joined = f"{lines[-1]}{_DOT}{piece}" if lines[-1] else piece
        lines = [*lines[:-1], joined] if len(joined) <= _CAPTION else [*lines, piece]
    return [short for line in lines if line for short in wrap(line, _CAPTION)]


def guarantee(statement: Statement | None) -> str:
    if statement is None:
        return "weighted points from elsewhere: no privacy noise is known"
    stamp = f"{STAMP} (a rehearsal) · " if statement.is_rehearsal else ""
    return f"{stamp}N = {statement.n_rows:,} {statement.counted} · {statement.claim}"


def guarantees(releases: Sequence[ReleaseData], view: str) -> str:
    if len(releases) == 1:
        return f"{guarantee(releases[0].statement)} · {view} weights"
    statements = "; ".join(dict.fromkeys(guarantee(release.statement) for release in releases))
    return f"{len(releases)} independent releases · {statements} · {view} weights"


def condition_and_notes(where: object, notes: Sequence[str] = ()) -> list[str]:
    given = short(where, 80) if isinstance(where, str) else getattr(where, "__name__", "a condition")
    return [*notes] if where is None else [f"given {given}", *notes]


def explain(ax: Axes, releases: Sequence[ReleaseData], view: str, errors: str, notes: Sequence[str]) -> None:
    """The caption of a drawing: guarantees and weights, what its errors are, notes; and the stamp of a rehearsal."""
    caption(ax, guarantees(releases, view), errors, _DOT.join(notes))
    stamp(ax, any(release.is_rehearsal for release in releases))


def percent(level: float) -> str:
    """A level as captions write it.

    >>> percent(0.95)
    '95 %'
    """
    return f"{100 * level:.4g} %"


def stamp(ax: Axes, is_rehearsal: bool) -> None:
    if is_rehearsal:
        ax.text(
            0.5, 0.5, STAMP, transform=ax.transAxes, ha="center", va="center", rotation=20, fontsize=26, weight="bold",
            color="0.2", alpha=0.3, zorder=10, clip_on=True,
        )  # fmt: skip


def luminance(colour: object) -> float:
    """Relative luminance of a colour, from 0 for black to 1 for white, as a grey print shows it (Rec. 709)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]  # type: ignore[arg-type]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def new_figure(size: tuple[float, float] = SIZE) -> Figure:
    """A figure that pyplot does not know: it need not be closed, and needs no window system."""
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def format_of(path: str | Path) -> str:
    return ending_of(path, FORMATS, "draw").removeprefix(".")


def save(figure: Figure, path: str | Path, dpi: int = _DPI) -> None:
    ending = format_of(path)
    words = description(figure)
    with atomic_write(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # boxes are drawn for such letters
        key = {"pdf": "Subject"}.get(ending, "Description")
        figure.savefig(temporary, format=ending, dpi=dpi, metadata={key: words})
        if ending == "svg":  # what a page's reader hears
            text = temporary.read_text(encoding="utf-8")
            temporary.write_text(text.replace("<svg ", f'<svg role="img" aria-label="{escape(words)}" ', 1), encoding="utf-8")


def description(figure: Figure) -> str:
    """What a figure shows, in words, for those who do not see it: the axes' labels, and captions.

    >>> description(release.plot("age").figure)
    'probability... by age. N = 6,000 rows · ε = 1, δ = 1e-06 · fitted weights · whiskers: 95 % intervals'
    """
    named = [(ax.get_title(), ax.get_ylabel(), ax.get_xlabel()) for ax in figure.axes]
    labels = [title or " by ".join(filter(None, sides)) for title, *sides in named]
    said = [figure.get_suptitle(), *(ax.get_title(loc="left") for ax in figure.axes)]
    captions = dict.fromkeys(text.replace("\n", _DOT) for text in said if text)
    return ". ".join([", ".join(filter(None, labels)), *captions]).replace(r"\$", "$")
