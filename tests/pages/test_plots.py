"""Drawings: they show the estimates, series differ without colour, and the Axes passed in are returned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import refusals
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.container import BarContainer, ErrorbarContainer
from scipy.stats import norm

import kmeanalyst as ka
from kmeanalyst import plots
from kmeanalyst.kernels import Gaussian
from kmeanalyst.plots.axes import ticks_of
from kmeanalyst.plots.style import RELEASE, SAMPLE, luminance, new_figure, plain, save
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Cyclic, Date, Integer, Real
from kmeanalyst.releases.domain.text_column import Text
from release_side.publishing.publish import publish

LEVEL = 0.8


def axes() -> Axes:
    return new_figure().add_subplot()


def bars_of(ax: Axes) -> list[Any]:
    (drawn,) = [one for one in ax.containers if isinstance(one, BarContainer)]
    return drawn.patches


def whiskers_of(ax: Axes, which: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) ends of vertical error bars."""
    drawn = [one for one in ax.containers if isinstance(one, ErrorbarContainer)][which]
    segments = np.array([segment for lines in drawn.lines[2] for segment in lines.get_segments()])
    return segments[:, 0, 1], segments[:, 1, 1]


def caption_of(ax: Axes) -> str:
    return ax.get_title(loc="left").replace("\n", " · ")


def weighted(**columns: Any) -> Release:
    frame = pd.DataFrame(columns)
    return ka.from_frame(frame.assign(weight=1 / len(frame)), kernel=None)


@pytest.fixture(scope="module")
def rehearsal() -> Release:
    """A rehearsal with a circle and a long list of levels."""
    rng = np.random.default_rng(0)
    levels = tuple(f"level {i:02}" for i in range(40))
    domain = Domain((Cyclic(name="hour", lower=0, upper=24), Categorical(name="code", levels=levels)))
    frame = pd.DataFrame({"hour": rng.normal(23, 2, 1000) % 24, "code": rng.choice(levels[:30], 1000)})
    return publish(frame, domain, epsilon=5.0, delta=1e-6, method="subspace", points=40, rehearsal=3)


def test_bars_are_the_estimates_and_whiskers_their_intervals(mixed_release):
    for column in ("children", "income", "city", "insured", "left"):  # of every kind
        ax = plots.histogram(mixed_release, column, level=LEVEL, ax=axes())
        frame = mixed_release.histogram(column, level=LEVEL)
        np.testing.assert_allclose([bar.get_height() for bar in bars_of(ax)], frame["probability"], atol=1e-12)
        low, high = whiskers_of(ax)
        np.testing.assert_allclose(low, frame["low"], atol=1e-12)
        np.testing.assert_allclose(high, frame["high"], atol=1e-12)
        assert "80 % intervals" in caption_of(ax)
        bottom, top = ax.get_ylim()
        assert bottom <= low.min() and high.max() <= top


def test_ranges_are_on_the_columns_own_scale(mixed_release):
    ax = plots.histogram(mixed_release, "income", ax=axes())
    frame = mixed_release.histogram("income")
    left = [bar.get_x() for bar in bars_of(ax)]
    right = [bar.get_x() + bar.get_width() for bar in bars_of(ax)]
    np.testing.assert_allclose(left, frame["left"], rtol=1e-9)
    np.testing.assert_allclose(right, frame["right"], rtol=1e-9)
    ends = ax.transData.transform([(x, 0.0) for x in [*left, right[-1]]])[:, 0]
    np.testing.assert_allclose(np.diff(ends), np.diff(ends)[0], rtol=1e-3)  # of one width on paper
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "10", "100", "1k", "10k", "100k", "1M"]


def test_ranges_of_different_widths_are_drawn_so_that_areas_are_probabilities(mixed_release):
    ax, frame = (plots.histogram(mixed_release, "age", level=LEVEL, ax=axes()), mixed_release.histogram("age", level=LEVEL))
    assert [(bar.get_x(), bar.get_width()) for bar in bars_of(ax)] == [(17, 13), (30, 20), (50, 40)]
    areas = [bar.get_width() * bar.get_height() for bar in bars_of(ax)]
    np.testing.assert_allclose(areas, frame["probability"], atol=1e-12)
    np.testing.assert_allclose(whiskers_of(ax), frame[["low", "high"]].T / [13, 20, 40], atol=1e-12)
    assert ax.get_ylabel() == "probability per unit"
    own = plots.histogram(mixed_release, "age", bins=[20, 30, 40], ax=axes())
    assert [bar.get_x() for bar in bars_of(own)] == [20, 30]


def test_a_missing_cell_is_hatched_and_beyond_the_columns_end(mixed_release):
    for column, end in (("children", 12), ("left", mixed_release.domain["left"].bounds[1])):
        ax = plots.histogram(mixed_release, column, ax=axes())
        *others, last = bars_of(ax)
        assert last.get_x() > end and last.get_hatch() and not any(bar.get_hatch() for bar in others)
        assert ax.get_xticklabels()[-1].get_text() == "missing"
        assert last.get_x() < ax.get_xticks()[-1] < last.get_x() + last.get_width()


def test_dates_are_where_matplotlib_has_them(mixed_release):
    ax = plots.histogram(mixed_release, "joined", ax=axes())
    first = np.datetime64(mixed_release.histogram("joined")["left"].iloc[0])
    assert bars_of(ax)[0].get_x() == (first - np.datetime64("1970-01-01")).astype(int)
    ax.figure.canvas.draw()
    assert "1960" in [label.get_text() for label in ax.get_xticklabels()]


def test_a_public_atom_is_a_stem_at_its_value():
    gains = weighted(gain=np.repeat([0.0, 5.0, 40.0, 90.0], [6, 2, 1, 1]))
    domain = Domain((Real(name="gain", lower=0, upper=100, atoms=(0,)),))
    release = ka.from_frame(gains.to_frame(), domain=domain)
    ax = plots.histogram(release, "gain", ax=axes())
    (stem,) = [line for line in ax.get_lines() if line.get_marker() == "D"]
    assert stem.get_xdata() == [0.0] and stem.get_ydata() == pytest.approx([0.6])
    ranges = release.histogram("gain").query("left < right")
    assert len(ranges) == 10 and ranges["probability"].sum() == pytest.approx(0.4)
    assert [bar.get_height() for bar in bars_of(ax)] == pytest.approx(ranges["probability"].tolist())
    assert len(whiskers_of(ax)[0]) == 11


def test_atoms_among_ranges_of_different_widths_have_a_scale_of_their_own():
    frame = pd.DataFrame({"gain": np.repeat([0.0, 5.0, 40.0, 90.0], [6, 2, 1, 1]), "weight": 0.1})
    domain = Domain((Real(name="gain", lower=0, upper=100, atoms=(0,), edges=(0, 20, 100)),))
    ax = plots.histogram(ka.from_frame(frame, domain=domain), "gain", ax=axes())
    assert [bar.get_height() * bar.get_width() for bar in bars_of(ax)] == pytest.approx([0.2, 0.2])
    (stem,), (right,) = [line for line in ax.get_lines() if line.get_marker() == "D"], ax.child_axes
    heights = [bar.get_height() for bar in bars_of(ax)]
    assert stem.get_ydata() == pytest.approx([max(heights)]) and right.get_ylabel() == "probability of a single value"
    assert right._functions[0](max(heights)) == pytest.approx(0.6)  # what the scale says there


def test_a_file_of_a_drawing_says_in_words_what_it_shows(numeric_release, tmp_path):
    from PIL import Image

    figure = new_figure()
    plots.histogram(numeric_release, "x", ax=figure.add_subplot())
    for name in ("a.svg", "a.png", "a.pdf"):
        save(figure, tmp_path / name)
    words = "probability by x. N = 2,000 rows"
    assert f'<svg role="img" aria-label="{words}' in (tmp_path / "a.svg").read_text(encoding="utf-8")
    with Image.open(tmp_path / "a.png") as image:
        assert image.info["Description"].startswith(words)


def test_negative_weights_are_drawn_below_the_line(numeric_release):
    frame = numeric_release.histogram("x", bins=25, view="signed")
    ax = plots.histogram(numeric_release, "x", bins=25, view="signed", ax=axes())
    heights = np.array([bar.get_height() for bar in bars_of(ax)])
    np.testing.assert_allclose(heights, frame["probability"], atol=1e-12)
    assert heights.min() < 0 and ax.get_ylim()[0] < heights.min() and "signed weights" in caption_of(ax)


def test_a_long_list_of_levels_is_cut_with_a_note(rehearsal):
    ax = plots.histogram(rehearsal, "code", ax=axes())
    frame = rehearsal.histogram("code")
    kept = frame["probability"].nlargest(20).index
    assert sorted(label.get_text() for label in ax.get_yticklabels()) == sorted(kept)
    left = frame["probability"].drop(kept).sum()
    assert f"the 20 most probable of 40 levels; the others together: {left:.3g}" in caption_of(ax)
    widths = {bar.get_width() for bar in bars_of(ax)}
    assert widths == set(frame["probability"].loc[kept])  # horizontal: the labels are long


def test_a_sample_lies_over_the_bars_with_its_own_shares_and_error(mixed_release):
    sample = mixed_release.resample(200, rng=0).assign(other=1)
    ax = plots.histogram(mixed_release, "city", sample=sample, where="age > 40", ax=axes())
    some = sample[sample["age"] > 40]
    shares = [(some["city"] == level).mean() for level in mixed_release.domain["city"].levels]
    marks = [one for one in ax.containers if isinstance(one, ErrorbarContainer)][1]
    np.testing.assert_allclose(marks.lines[0].get_ydata(), shares, atol=1e-12)
    low, high = whiskers_of(ax, 1)
    spread = np.sqrt(np.array(shares) * (1 - np.array(shares)) / len(some))
    np.testing.assert_allclose(high - low, 2 * 1.959964 * spread, rtol=1e-4)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["release", "your 200 rows"]
    assert "given age > 40" in caption_of(ax)


def test_a_sample_has_a_mark_for_its_missing_cells(mixed_release):
    sample = mixed_release.resample(200, rng=0)
    ax = plots.histogram(mixed_release, "children", sample=sample, ax=axes())
    marks = [one for one in ax.containers if isinstance(one, ErrorbarContainer)][1]
    shares = marks.lines[0].get_ydata()
    assert shares[-1] == pytest.approx(sample["children"].isna().mean()) and 0 < shares[-1] < 1
    assert shares.sum() == pytest.approx(1)


def test_a_sample_with_values_outside_the_bounds_is_reported(mixed_release):
    sample = mixed_release.resample(50, rng=0)
    sample.loc[:4, "age"] = 200
    assert "age: 5 of 50 values were outside" in caption_of(plots.histogram(mixed_release, "age", sample=sample, ax=axes()))
    with pytest.raises(TypeError, match=r"by its columns' names, and a ndarray has none\. Pass a DataFrame"):
        plots.histogram(mixed_release, "age", sample=np.zeros((3, 10)), ax=axes())


def test_a_derived_column_is_drawn_and_computed_for_the_sample_too(mixed_release):
    release = mixed_release.transform({"old": "age > 60"})
    sample = mixed_release.resample(100, rng=0)
    ax = plots.histogram(release, "old", sample=sample, ax=axes())
    marks = [one for one in ax.containers if isinstance(one, ErrorbarContainer)][1]
    np.testing.assert_allclose(marks.lines[0].get_ydata()[1], (sample["age"] > 60).mean(), atol=1e-12)


def test_a_table_shows_every_cell_and_hatches_what_may_be_nothing(mixed_release):
    cells = mixed_release.table("city", "school", view="signed")
    level = 2 * norm.cdf(np.median(cells["probability"] / cells["standard_error"])) - 1  # half of them, of any noise
    ax = plots.table(mixed_release, "city", "school", level=level, view="signed", ax=axes())
    cells = mixed_release.table("city", "school", level=level, view="signed")
    drawn, hatched = [one for one in ax.collections if isinstance(one, PatchCollection)]
    np.testing.assert_allclose(drawn.get_array(), cells["probability"], atol=1e-12)
    unsure = cells["low"] <= 0
    assert 0 < unsure.sum() < len(cells) and len(hatched.get_paths()) == unsure.sum() and hatched.get_hatch()
    texts = [text.get_text() for text in ax.texts]
    halves = (cells["high"] - cells["low"]) / 2
    assert texts == [f"{100 * p:.1f} %\n± {100 * h:.1f}" for p, h in zip(cells["probability"], halves, strict=True)]
    assert [label.get_text() for label in ax.get_xticklabels()] == list(mixed_release.domain["city"].levels)
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # levels downwards, as they are listed


def test_the_ink_of_a_cell_stands_out_from_its_colour(mixed_release):
    ax = plots.table(mixed_release, "married", "insured", ax=axes())
    drawn = next(one for one in ax.collections if isinstance(one, PatchCollection))
    for text, colour in zip(ax.texts, drawn.to_rgba(drawn.get_array()), strict=True):
        light, dark = sorted([luminance(text.get_color()) + 0.05, luminance(colour) + 0.05], reverse=True)
        assert light / dark >= 3


def test_series_differ_in_line_and_marker_and_not_in_colour_alone():
    assert RELEASE.marker != SAMPLE.marker and RELEASE.colour != SAMPLE.colour
    for one in (RELEASE, SAMPLE):
        assert luminance("white") - luminance(one.colour) > 0.3  # each line is dark enough on paper


DRAWN: dict[str, Callable[[Release, Any], Any]] = {
    "histogram": lambda r, ax: plots.histogram(r, "x", ax=ax),
    "table": lambda r, ax: plots.table(r, "x", "y", ax=ax),
}


def test_every_drawing_is_in_the_list_below():
    assert set(DRAWN) == set(plots.__all__)


def test_axes_in_are_axes_out_and_pyplot_knows_no_figure_and_the_caption_states_the_guarantee(numeric_release):
    from matplotlib import pyplot

    pyplot.close("all")  # of other tests
    for name in DRAWN:
        ax = axes()
        assert DRAWN[name](numeric_release, ax) is ax
        assert ax.get_xlabel() and ax.get_ylabel() and not ax.spines["top"].get_visible()
        assert "N = 2,000 rows · ε = 1, δ = 1e-06" in caption_of(ax)
        assert "fitted weights" in caption_of(ax)
        assert not any("NOT PRIVATE" in text.get_text() for text in ax.texts)
    assert pyplot.get_fignums() == []


def test_without_axes_pyplot_makes_a_new_figure(numeric_release):
    from matplotlib import pyplot

    pyplot.close("all")
    made = plots.histogram(numeric_release, "x")
    assert isinstance(made, Axes) and pyplot.get_fignums() == [made.figure.number]
    pyplot.close("all")


def test_a_rehearsal_is_stamped_not_private_in_every_drawing(rehearsal):
    drawings = [
        plots.histogram(rehearsal, "hour", ax=axes()), plots.table(rehearsal, "hour", "code", ax=axes()),
        plots.histogram(rehearsal["hour"], ax=axes()),
    ]  # fmt: skip
    for ax in drawings:
        assert "NOT PRIVATE" in [text.get_text() for text in ax.texts] and "NOT PRIVATE" in caption_of(ax)


def test_points_from_elsewhere_say_that_no_noise_is_known(foreign_release):
    assert "no privacy noise is known" in caption_of(plots.histogram(foreign_release, "age", ax=axes()))


def test_dollars_are_dollars_and_long_names_are_cut(tmp_path):
    release = weighted(**{"$x^2$": ["$5 to $10", "over $10"] * 5, "n" * 90: np.arange(10.0)})
    figure = new_figure()
    ax = plots.histogram(release, "$x^2$", where="`$x^2$` == 'over $10'", ax=figure.add_subplot())
    assert ax.get_xlabel() == r"\$x^2\$" and ax.get_xticklabels()[0].get_text() == r"\$5 to \$10"
    assert r"'over \$10'" in caption_of(ax)
    save(figure, tmp_path / "dollars.png")  # a formula that does not parse would raise
    assert len(plots.histogram(release, "n" * 90, ax=axes()).get_xlabel()) == 40
    assert plain("a" * 30) == "a" * 25 + "..."


def test_a_plot_of_a_release_is_its_histogram_or_its_table(numeric_release):
    one, two = numeric_release.plot("x", ax=axes()), numeric_release.plot("x", "y", ax=axes())
    heights = [bar.get_height() for bar in bars_of(one)]
    np.testing.assert_allclose(heights, numeric_release.histogram("x")["probability"], atol=1e-12)
    assert any(isinstance(drawn, PatchCollection) for drawn in two.collections)


def test_a_random_variable_is_drawn_with_the_intervals_of_its_histogram(numeric_release):
    variable = numeric_release["x"] * numeric_release["y"]
    ax = plots.histogram(variable, bins=5, ax=axes())
    frame = variable.histogram(bins=5)
    np.testing.assert_allclose([bar.get_height() for bar in bars_of(ax)], frame["probability"], atol=1e-12)
    low, high = whiskers_of(ax)
    np.testing.assert_allclose(np.column_stack([low, high]), frame[["low", "high"]], atol=1e-12)
    assert ax.get_xlabel() == "x * y"


def test_ticks_lie_within_the_column_and_are_few():
    for column in (
        Real(name="x", lower=3, upper=40), Real(name="x", lower=0.02, upper=9e7, scale="log"),
        Integer(name="x", lower=0, upper=5, scale="log1p"), Date(name="x", lower="2020-01-01", upper="2020-03-01"),
        Cyclic(name="x", lower=-180, upper=180), Real(name="x", lower=200, upper=300, scale="log"),
    ):  # fmt: skip
        low, high = (-1e9, 1e9) if isinstance(column, Date) else (column.lower, column.upper)
        ends = column.bounds if isinstance(column, Date) else (low, high)
        ticks = ticks_of(column, *map(float, ends))
        assert 1 <= len(ticks) <= 9 and all(ends[0] <= at <= ends[1] and text for at, text in ticks)


def test_what_cannot_be_drawn_is_refused_with_a_fix(mixed_release):
    from matplotlib import pyplot

    names = globals() | {"r": mixed_release}
    refusals.check(Path(__file__).parent / "refusals.txt", lambda text: eval(text, names))
    pyplot.close("all")


def test_a_column_of_texts_is_refused_in_every_drawing():
    domain = Domain((Text(name="word", length=3, alphabet="ab"), Real(name="x", lower=0, upper=1)))
    frame = pd.DataFrame({"word": ["a", "bb"], "x": [0.1, 0.9], "weight": [0.5, 0.5]})
    release = ka.from_frame(frame, domain=domain, kernel=Gaussian(1.0))
    for draw in (lambda: plots.histogram(release, "word", ax=axes()), lambda: plots.table(release, "word", "x", ax=axes())):
        with pytest.raises(ValueError, match=r"word is (a column of )?texts?.*\. (Ask|Draw)"):
            draw()
