"""The overview of a release: a small histogram of each column, and which pairs of columns go together most strongly."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kmeanalyst.inference.contingency.association import associations, strongest
from kmeanalyst.inference.estimate.population import default_view
from kmeanalyst.plots.distributions import histogram
from kmeanalyst.plots.style import GREY, RELEASE, axes_of, guarantees, percent, plain, without_formulas
from kmeanalyst.releases.release import ReleaseData, View

_ACROSS, _MOST_COLUMNS, _MOST_PAIRS = 3, 12, 8
_WIDTH, _HEIGHT, _LINE = 3.3, 2.2, 0.3  # inches, of a column's drawing, and of a pair's line
_HEIGHTS = "probabilities (per unit where ranges differ in width; single values then by the scale on the right)"


def overview(release: ReleaseData, *, view: View | None = None, level: float = 0.95, figure: Figure | None = None) -> Axes:
    """Draw each column's distribution, and the strongest relations; returns the Axes of these, whose figure has all.

    view, level  as `histogram` takes them; relations have 95 % intervals.
    figure       an empty one to draw in; by default pyplot makes one.
    Draws        the first twelve columns that are no texts, and of their pairs the eight of the largest association (see
                 `associations`) that is distinguished from 0.

    >>> axes = ka.plots.overview(release)
    >>> axes.figure.savefig("overview.png")
    """
    names = [name for name in release.columns.names if not release.columns[name].is_text]
    drawn = names[:_MOST_COLUMNS]
    pairs = strongest(associations(release, drawn, view=None if view == "signed" else view))[:_MOST_PAIRS]
    heights = [_HEIGHT] * -(-len(drawn) // _ACROSS) + [_LINE * (3 + len(pairs))]
    if figure is None:
        from matplotlib import pyplot

        figure = pyplot.figure(layout="constrained")
    figure.set_size_inches(_ACROSS * _WIDTH, sum(heights))
    grid = figure.add_gridspec(len(heights), _ACROSS, height_ratios=heights)
    for k, name in enumerate(drawn):
        ax = figure.add_subplot(grid[divmod(k, _ACROSS)])
        histogram(release, name, view=view, level=level, ax=ax).set_title("", loc="left")
        ax.set_title(plain(name), fontsize=9)
        for side in (ax, *ax.child_axes):  # a single value's scale is on the right
            side.set(xlabel="", ylabel="")
            side.tick_params(labelsize=7)
        if (legend := ax.get_legend()) is not None:
            legend.remove()
    others = f"the first {len(drawn)} of {len(names)} columns; " if len(drawn) < len(names) else ""
    said = f"{guarantees([release], view or default_view(release))}\n{others}{_HEIGHTS}; whiskers: {percent(level)} intervals"
    figure.suptitle(without_formulas(said), x=0.01, ha="left", fontsize=8, color=GREY)
    relations = axes_of(figure.add_subplot(grid[-1, 1:]))
    for y, pair in enumerate(pairs):
        relations.barh(y, pair.value, 0.7, color=(RELEASE.colour, 0.4), edgecolor=RELEASE.colour)
        relations.plot(pair.interval, [y, y], color="black", linewidth=1, marker="|")
        text = f"{' × '.join(plain(name) for name in pair.columns)} ({pair.measure})  "
        relations.text(0, y, text, transform=relations.get_yaxis_transform(), ha="right", va="center", in_layout=False)
    relations.set(yticks=[], xlabel=f"{'strongest relations' if pairs else 'no relation is shown'}, 95 % intervals")
    relations.invert_yaxis()
    return relations
