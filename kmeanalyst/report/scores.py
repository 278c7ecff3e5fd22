"""The section on noisy scores of the release against its table, where its file has them."""

from __future__ import annotations

from kmeanalyst.releases.quality.noisy_score import NoisyScore
from kmeanalyst.releases.quality.scores import PublishedScores
from kmeanalyst.report.markup import Markup, element, key, name_of, table

_NAME = 80  # characters of a name
_PARTS = {
    "k-marginal": "k-marginal (1000 is best)", "columns": "column, TV (0 is best)", "groups": "group, k-marginal within it",
    "questions": "answer of the table",
}  # fmt: skip


def scores_section(quality: PublishedScores) -> list[Markup]:
    """What was measured and under which guarantee, and every score with its interval."""
    together = (
        "These scores compare the release with the private table. They were measured with noise of their own: "
        f"{quality.guarantee_text()}. "
        f"The release and its scores together guarantee ε = {quality.total_epsilon:.4g}, δ = {quality.total_delta:.4g}."
    )
    heads = [("score", "text"), ("of", "text"), ("value", ""), ("95 % noise interval", ""), ("", "text")]
    caption = "TV is the share of rows that would have to move; values and intervals are clipped to what is possible."
    rows = [_row(score) for score in quality.scores()]
    return [element("p", together), table(heads, rows, caption, "sortable")]


def _row(score: NoisyScore) -> Markup:
    value, interval, held = "–", "not given: its noisy size is too small", ""
    if score.value is not None and score.low is not None and score.high is not None:
        shown = score.points if score.part in ("k-marginal", "groups") else (score.value, score.low, score.high)
        assert shown is not None
        form = {"columns": ".3f", "questions": ".4g"}.get(score.part, ".0f")
        value, interval = f"{shown[0]:{form}}", f"{shown[1]:{form}} to {shown[2]:{form}}"
    if score.held is not None:
        held = (
            "the release's answer is within the noise" if score.held else "the release's answer is not within the noise"
        )
    return element(
        "tr", element("td", _PARTS[score.part], class_="text"), element("td", name_of(score.name, _NAME), class_="text"),
        element("td", value, data_v="" if score.value is None else key(score.value)), element("td", interval),
        element("td", held, class_="text"),
    )  # fmt: skip
