"""The internal page: its stamp, its numbers, nothing from elsewhere, and names that cannot become markup."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from html_pages import FETCHING, Page, browser, in_browser
from quality_cases import EVIL, people

import kmeanalyst as ka
from kmeanalyst.cli.terminal import json_text
from kmeanalyst.release import Release, read_release
from release_side.choices.internal_files import STAMP
from release_side.quality.page import column_picture, quality_html
from release_side.quality.quality import Quality, quality
from release_side.quality.table_scores import ColumnScore


@pytest.fixture(scope="module")
def found(compared, quick) -> Quality:
    release = read_release(compared.release, allow_rehearsal=True)
    return quality(release, compared.private, group="town", target="ill", source=compared.release)


@pytest.fixture(scope="module")
def html(found: Quality) -> str:
    return quality_html(found)


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_its_first_words_are_the_stamp_which_stays_on_every_screen(page: Page, html: str):
    body = html[html.index("<body") :]
    first, rest = STAMP.split(":", 1)
    banner = f'<p class="banner" role="note"><strong>{first}</strong>:{rest}</p>'
    assert body.startswith(f'<body class="internal">{banner}') and first == "not for publication"
    assert ".banner { position: sticky; top: 0;" in html and "NOT FOR PUBLICATION" in page.texts["title"][0]
    assert "covered by no ε" in STAMP and "without noise" in STAMP


def test_it_asks_no_host_for_anything(page: Page, html: str):
    assert "://" not in html
    for tag, attributes in page.tags:
        assert not FETCHING & set(attributes), (tag, attributes)
        assert tag not in ("link", "iframe", "object", "embed", "img", "base", "form")
        assert str(attributes.get("href", "#")).startswith("#")
    (policy,) = [each["content"] for each in page.of("meta") if "http-equiv" in each]
    assert "default-src 'none'" in str(policy)
    for kind in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(page.texts[kind][0].encode()).digest()).decode()
        assert f"'sha256-{digest}'" in str(policy)


def test_names_of_levels_columns_files_and_groups_cannot_become_markup(page: Page, html: str):
    assert EVIL not in html and EVIL in page.text and len(page.of("script")) == 1
    tag = "</style></title><img src=x onerror=alert(2)>"
    domain = ka.Domain((
        ka.Integer(name=EVIL, lower=0, upper=9), ka.Integer(name=tag, lower=0, upper=9),
        ka.Categorical(name="<b>", levels=("<i>", "'", '"')),
    ))  # fmt: skip
    release = ka.from_frame(domain.decode(domain.draw(40, 0)).assign(weight=1 / 40), domain=domain)
    found = quality(release, domain.decode(domain.draw(60, 1)).astype(str), group="<b>", source="<u>.kme")
    html = quality_html(found)
    page = Page(html)
    for text in (EVIL, tag, "<b>", "<i>", "<u>"):
        assert text in page.text or text[:10] in page.text, text
    assert EVIL not in html and tag not in html and not page.of("img") and not page.of("u") and not page.of("i")


def test_every_link_leads_somewhere_and_ids_are_unique(page: Page):
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {str(each["href"])[1:] for each in page.of("a")} <= set(ids)


def test_what_scrolls_can_be_reached_by_the_keyboard_and_drawings_are_described(page: Page):
    scrolling = [each for each in page.of("div") if each.get("class") == "scroll"]
    assert scrolling and all(each["tabindex"] == "0" and each["aria-label"] for each in scrolling)
    assert all(each["role"] == "img" and each["aria-labelledby"] for each in page.of("svg"))


def test_the_score_and_the_worst_groups_come_first(found: Quality, html: str):
    top = html[: html.index('id="columns"')]
    assert top.index("banner") < top.index("k-marginal, of 1000") < top.index("Groups of ")
    assert f"{found.tables.groups[0].score:,.0f}" in top
    assert f"{found.questions.held} of {found.questions.known}" in top


def test_the_page_shows_the_numbers_of_the_functions(found: Quality, page: Page):
    text = page.text
    assert f"{found.tables.equal_rows.equal:,} of {found.tables.equal_rows.points:,} released points are equal" in text
    for model in found.models.models:
        assert f"{model.release:.3f}" in text and f"{model.table:.3f}" in text
    for column in found.tables.columns:
        assert column.total_variation is not None and f"TV {column.total_variation:.3g}" in text
    for each in found.questions.compared:
        assert math.isnan(each.table) or f"{each.table:.4g}".replace("-", "−") in text


def test_columns_and_questions_stand_worst_first(found: Quality, html: str):
    cards = [html.index(f'id="c{k}"') for k in range(len(found.tables.columns))]
    assert cards == sorted(cards)
    worst = max(found.tables.columns, key=lambda each: each.total_variation or 0)
    assert worst.name in html[cards[0] : cards[1]]
    distances = [each.distance for each in found.questions.compared if each.held is not None]
    assert distances == sorted(distances, reverse=True)


def test_the_json_has_the_stamp_first_and_every_number(found: Quality):
    read = json.loads(json_text(found.to_dict()), parse_constant=lambda constant: pytest.fail(constant))
    assert next(iter(read.items())) == ("not_for_publication", STAMP)
    assert read["tables"]["k_marginal"] == found.tables.k_marginal and read["tables"]["worst_group"] is not None
    assert read["tables"]["equal_rows"]["equal"] == found.tables.equal_rows.equal
    assert read["models"]["models"][0]["table"] == found.models.models[0].table
    assert read["questions"]["held"] == found.questions.held


def test_without_group_target_or_pairs_there_is_still_a_page():
    domain = ka.Domain((ka.Categorical(name="a", levels=("u", "v")),))
    release = ka.from_frame(domain.decode(domain.draw(30, 0)).assign(weight=1 / 30), domain=domain)
    found = quality(release, domain.decode(domain.draw(50, 1)).astype(str), source="x.kme")
    page = Page(quality_html(found))
    assert "no two columns with cells" in page.text and found.models.target is None
    assert "no measurement" in page.text and "name a column with --group" in page.text


def test_another_edition_of_the_table_is_told(compared):
    release = read_release(compared.release, allow_rehearsal=True)
    found = quality(release, people(300), workload=["age"])
    assert any("1,500" in note and "300" in note for note in found.notes)
    assert "is a rehearsal" in Page(quality_html(found)).text


def test_every_kind_of_release_and_column_has_a_page(release: Release):
    domain = release.domain
    found = quality(release, domain.decode(domain.draw(300, 1)))
    page = Page(quality_html(found))
    assert len(found.questions.compared) > 5
    assert {each.name for each in found.tables.columns} == set(domain.names)
    assert ("no measurement" in page.text) == (release.measurement is None)


@pytest.mark.skipif(browser() is None, reason="no Chromium or Chrome on the path: the page's structure is tested above")
def test_a_browser_runs_the_pages_script_and_refuses_nothing(html: str, tmp_path: Path):
    (tmp_path / "x.internal.html").write_text(html, encoding="utf-8")
    page, said = in_browser(tmp_path / "x.internal.html")
    assert page.texts["button"].count("Fold all") == 1 and len(page.of("script")) == 1
    assert "Refused" not in said and "violates" not in said


def test_a_column_of_any_number_of_cells_has_a_picture():
    for n in (1, 2, 12, 13, 200):
        shares = tuple(k / n for k in range(n))
        column = ColumnScore("x", "integer", 0.0, tuple(f"<{k}>" for k in range(n)), shares, shares[::-1])
        drawn = Page(str(column_picture(column, "k")))
        assert len(drawn.of("rect")) == min(n, 12)
        assert ("cells that differ less" in drawn.text) == (n > 12)
        assert n == 1 or f"<{n - 1}>" in drawn.text  # the first and the last one differ most
    assert column_picture(replace(column, cells=(), table=(), release=()), "k") is None
