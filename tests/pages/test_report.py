"""The report: inert whatever a file's names say, self-contained, complete, and equal to what the release answers."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import paths
import pytest
from command_line import answer, call
from html_pages import FETCHING, Page, browser, in_browser
from simulated_releases import release_of

import kmeanalyst as ka
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.plots.style import luminance
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Cyclic, Integer, Real
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.rules.rule import Rule
from kmeanalyst.releases.statement import PrivacyStatement, guarantee
from kmeanalyst.releases.texts import replaced
from kmeanalyst.report import facts_of, report_html, write_report
from kmeanalyst.report.caveats import warnings_of
from kmeanalyst.report.charts import chart
from kmeanalyst.report.facts import MOST_COLUMNS, MOST_LEVELS
from kmeanalyst.report.guarantee import guessing_right, numbers, plain_words
from kmeanalyst.report.markup import element
from release_side.publishing.publish import publish

EVIL = '"><script>alert(1)</script>'
EVIL_TAG = "</style></title></textarea><img src=x onerror=alert(2)>"
EVIL_LEVELS = (
    "<script>alert(3)</script>", "' onmouseover='alert(4)", "می\u200cخواهم", "שלום", "a&amp;b", "--><svg onload=x>",
)  # fmt: skip


def with_statement(release: Release, weights: Array | None = None, **changes: object) -> Release:
    """The same release with changes to its statement, and perhaps other weights."""
    assert release.statement is not None
    return Release(
        points=release.to_frame().drop(columns="weight"), weights=release.weights if weights is None else weights,
        measurement=release.measurement, kernel=release.kernel, domain=release.domain,
        statement=replace(release.statement, **changes), method=release.method, weight_view=release.weight_view,
    )  # fmt: skip


def rehearsed(release: Release) -> Release:
    assert release.statement is not None
    return with_statement(release, mechanism=f"rehearsal of {release.statement.mechanism}")


@pytest.fixture(scope="module")
def hostile_release() -> Release:
    """A release with markup, quotes, shell commands and right-to-left text wherever a name can be."""
    domain = Domain(
        (
            Integer(name=EVIL, lower=0, upper=100),
            Categorical(name=EVIL_TAG, levels=EVIL_LEVELS),
            Categorical(name="$(touch owned)", levels=tuple(f"`x{i}`; rm -rf ~" for i in range(45)), missing=True),
            Boolean(name="and"),
            Ordinal(name="x" * 200, levels=("&lt;", "'", '"')),
            Text(name="code", length=3, alphabet="AB<"),
        )
    )
    kernel = table_kernel(domain)
    points = domain.decode(domain.draw(40, np.random.default_rng(1)))
    features = Nystroem.fit(kernel, domain.encode(points))
    rows = domain.draw(500, np.random.default_rng(2))
    return release_of(rows, domain, kernel, features, points, method="subspace", view="signed")


@pytest.fixture(scope="module")
def hostile(hostile_release) -> str:
    return report_html(facts_of(hostile_release))


@pytest.fixture(scope="module")
def mixed_facts(mixed_release):
    return facts_of(mixed_release)


@pytest.fixture(scope="module")
def foreign_facts(foreign_release):
    return facts_of(foreign_release)


@pytest.fixture(scope="module")
def mixed(mixed_facts) -> Page:
    return Page(report_html(mixed_facts))


def test_hostile_names_and_levels_make_no_element_and_no_attribute(hostile):
    page = Page(hostile)
    assert [len(page.of(tag)) for tag in ("script", "style", "title", "img", "textarea")][:2] == [1, 1]
    assert not page.of("img") and not page.of("textarea") and not page.of("iframe") and not page.of("object")
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")], tag
        assert not FETCHING & set(attributes), (tag, attributes)
    for word in (EVIL, EVIL_TAG, *EVIL_LEVELS):
        assert word in page.text, word


def test_only_the_pages_own_script_and_style_run_and_nothing_is_fetched(hostile, mixed):
    for page in (Page(hostile), mixed):
        (policy,) = [m["content"] for m in page.of("meta") if m.get("http-equiv") == "Content-Security-Policy"]
        assert policy is not None
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        assert set(rules) == {"default-src", "script-src", "style-src", "base-uri", "form-action"}
        assert [rules[name] for name in ("default-src", "base-uri", "form-action")] == ["'none'"] * 3
        for name in ("script", "style"):
            (text,) = page.texts[name]
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert rules[f"{name}-src"] == f"'sha256-{digest}'"
        assert page.tags.index(next(t for t in page.tags if t[0] == "meta" and "http-equiv" in t[1])) < page.tags.index(
            ("style", {})
        )


def test_no_address_leads_out_of_the_page(hostile, mixed):
    for page in (Page(hostile), mixed):
        ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
        links = [attributes["href"] for _, attributes in page.tags if "href" in attributes]
        assert links and all(link is not None and link[0] == "#" and link[1:] in ids for link in links)
        assert not page.of("link") and not page.of("base") and not page.of("form")
        for text in (*page.texts["style"], *page.texts["script"]):
            assert not re.search(r"https?:|//[a-z]|url\(|@import|fetch|XMLHttp|eval\(", text)


def test_characters_that_reorder_or_hide_others_are_replaced(hostile_release, tmp_path):
    """No name or level has them; the name of the file, which a stranger chose, may."""
    path = tmp_path / "\u202eeslaf\u202c.kme"
    hostile_release.write(path)
    hostile = report_html(facts_of(hostile_release, source=path))
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f\u0000-\u0008\ufeff]", hostile)
    assert "\ufffdeslaf\ufffd" in hostile
    assert replaced("\ud800\x1b[2J\u2066\n") == "\ufffd\ufffd[2J\ufffd "
    assert hostile.encode().decode() == hostile


def test_an_element_takes_no_name_from_outside():
    with pytest.raises(ValueError, match=r"is not a name of an element: .*\. Write letters"):
        element("p onclick=x")
    with pytest.raises(ValueError, match=r"is not a name of an attribute: .*\. Write letters"):
        element("p", **{"a b": 1})


def test_a_name_of_any_length_leaves_the_page_short(hostile):
    assert len(hostile) < 400_000
    assert "x" * 100 not in re.sub(r'title="[^"]*"', "", hostile)


def test_every_column_is_in_the_table_the_drawings_and_the_pairs(mixed_facts, mixed):
    names = mixed_facts.release.columns.names
    assert [one.name for one in mixed_facts.columns] == list(names)
    assert len(mixed.of("article")) == len(mixed.of("svg")) == len(names)
    for name in names:
        assert mixed.texts["bdi"].count(name) >= 3  # a row, a card, a pair
    assert {pair.columns for pair in mixed_facts.pairs} == {(a, b) for i, a in enumerate(names) for b in names[i + 1 :]}


def test_every_drawing_has_a_title_and_a_description_and_is_made_of_text(mixed):
    ids = {attributes["id"]: tag for tag, attributes in mixed.tags if "id" in attributes}
    for svg in mixed.of("svg"):
        title, description = (svg["aria-labelledby"] or "").split()
        assert (ids[title], ids[description], svg["role"]) == ("title", "desc", "img")
    assert len(mixed.texts["text"]) > 5 * len(mixed.of("svg"))
    assert len([a for _, a in mixed.tags if "id" in a]) == len(ids), "an id occurs twice"


def test_the_numbers_of_the_page_are_the_estimates_of_the_release(mixed_release, mixed):
    cells = {float(a["data-v"] or "nan") for a in mixed.of("td") if "data-v" in a}
    asked = {
        "age": mixed_release.mean("age"), "age's deviation": mixed_release.std("age"),
        "age's median": mixed_release.quantile("age", 0.5), "income": mixed_release.mean("income"),
        "children": mixed_release.mean("children", where="not missing(children)"),
        "no children known": mixed_release.probability("missing(children)"),
        "Zürich": mixed_release.probability("city == 'Zürich'"), "married": mixed_release.probability("married"),
        "30 to 50": mixed_release.probability("30 <= age < 50"),
        "no gain": mixed_release.probability("`capital.gain` == 0"),
        "school missing": mixed_release.probability("missing(school)"),
    }  # fmt: skip
    for name, estimate in asked.items():
        assert estimate.value in cells, name
    errors = cells | {float(a["data-error"] or "nan") for a in mixed.of("td") if "data-error" in a}
    for name, estimate in asked.items():
        assert any(math.isclose(estimate.standard_error, error, rel_tol=1e-6) for error in errors), name


def test_the_shares_of_a_column_are_its_histogram(mixed_facts, numeric_release, foreign_facts):
    """Of every kind of release, signed weights and none measured among them."""
    for facts in (mixed_facts, facts_of(numeric_release), foreign_facts):
        for column in facts.columns:
            expected = facts.release.histogram(column.name)
            assert [bar.label for bar in column.bars] == [str(label) for label in expected.index]
            shares = [bar.estimate.value for bar in column.bars]
            assert shares == pytest.approx(expected["probability"].tolist(), abs=1e-12)
            errors = [bar.estimate.standard_error for bar in column.bars]
            assert errors == pytest.approx(expected["standard_error"].tolist(), rel=1e-6)


def test_a_date_is_shown_as_a_date(mixed_facts, mixed_release):
    joined = next(one for one in mixed_facts.columns if one.name == "joined")
    frame = mixed_release.to_frame("fitted")
    days = (frame["joined"] - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
    mean = float(frame["weight"] @ days)
    assert joined.statistics["mean"].value == pytest.approx(mean)
    day = (pd.Timestamp("1970-01-01") + pd.Timedelta(days=round(mean))).date().isoformat()
    assert f"mean {day} ± " in report_html(mixed_facts)


def test_the_whole_circle_is_in_the_shares_of_a_cyclic_column():
    domain = Domain((Cyclic(name="hour", lower=0, upper=24), Real(name="x", lower=0, upper=1)))
    frame = domain.decode(domain.draw(300, np.random.default_rng(1)))
    assert frame["hour"].max() > 23
    facts = facts_of(ka.from_frame(frame.assign(weight=1 / 300), domain=domain))
    hour = facts.columns[0]
    assert sum(bar.estimate.value for bar in hour.bars) == pytest.approx(1.0)
    assert len(hour.bars) == 10 and hour.bars[-1].label == "[21.6, 24]"
    assert "mean" not in hour.statistics  # numbers on a circle have none


def test_columns_and_view_choose_what_is_shown(levels_release):
    facts = facts_of(levels_release, columns=["school", "city"], view="fitted")
    assert [one.name for one in facts.columns] == ["school", "city"] and facts.left_out == 1
    assert facts.view == "fitted"
    some = levels_release.histogram("city", view="fitted")["probability"].tolist()
    assert [bar.estimate.value for bar in facts.columns[1].bars] == pytest.approx(some)
    assert any("does not show all columns" in one.headline for one in warnings_of(facts))
    for view, of_pairs in (("signed", "probability"), ("fitted", "fitted"), (None, "fitted")):
        (pair,) = facts_of(levels_release, columns=["school", "city"], view=view).pairs
        (same,) = ka.associations(levels_release, ["school", "city"], view=of_pairs)
        assert pair == same
    with pytest.raises(KeyError, match="no column 'agee'; the columns are"):
        facts_of(levels_release, columns=["agee"])
    with pytest.raises(ValueError, match=rf"shows 1 to {MOST_COLUMNS} columns, got 0: .*\. Name"):
        facts_of(levels_release, columns=[])


def test_a_stranger_cannot_make_the_page_long():
    """A hundred columns, one of them with three thousand levels."""
    levels = tuple(f"level {i}" for i in range(3000))
    columns = [Categorical(name="many", levels=levels), *(Boolean(name=f"b{i}") for i in range(99))]
    domain = Domain(tuple(columns))
    frame = domain.decode(domain.draw(200, np.random.default_rng(1)))
    facts = facts_of(ka.from_frame(frame.assign(weight=1 / 200), domain=domain))
    assert (len(facts.columns), facts.left_out) == (MOST_COLUMNS, 40)
    many = facts.columns[0]
    assert len(many.bars) == MOST_LEVELS + 1
    assert sum(bar.estimate.value for bar in many.bars) == pytest.approx(1.0)
    assert many.bars[-1].label == "2970 rarer levels" and many.commonest is not None
    assert not many.commonest.together
    assert len(report_html(facts)) < 1_000_000


def test_a_release_of_tables_is_not_called_one_of_random_features(mixed_release):
    counted = ka.read_release(paths.TESTS / "golden" / "examples" / "counted.kme")
    assert counted.method == mixed_release.method == "random-features"  # what files and JSON say of both
    made = "adaptive margins: rows drawn to fit noisy tables, 7 of single columns, 21 of 2 columns, 1 of 3 columns"
    assert numbers(counted)["method"] == made and "(adaptive margins, prob" in counted.summary()["points"]
    assert "mean of random features" in numbers(mixed_release)["method"]


def test_the_guarantee_is_given_in_words_and_in_numbers(mixed_release, mixed):
    for text in (guarantee(1.0, 1e-6), "P(privacy loss > ε)", "2e-05, which is not δ", "54.7 %", "the domain",
                 *mixed_release.summary().values()):  # fmt: skip
        assert text in mixed.text, text


def test_the_best_guess_between_two_rows_is_the_bound_of_the_trade_off_curve():
    """Under Laplace noise the odds are e^ε to 1; under Gaussian noise it is Φ(μ/2)."""
    statement = PrivacyStatement(
        epsilon=math.log(3), delta=0.0, neighbouring="replace-one", mechanism="discrete laplace", sensitivity=1.0,
        noise_scale=2**0.5 / math.log(3), calibration="pure", rho=math.log(3) ** 2 / 2, n_rows=10,
    )  # fmt: skip
    assert guessing_right(statement) == pytest.approx(0.75)
    gaussian = replace(statement, mechanism="discrete gaussian", calibration="analytic", noise_scale=4.2247)
    assert guessing_right(gaussian) == pytest.approx(0.5471, abs=1e-4)
    assert guessing_right(replace(statement, epsilon=1e5)) == 1.0


def test_a_rehearsal_is_stamped_in_title_body_and_commands(levels_release, mixed):
    html = report_html(facts_of(rehearsed(levels_release), columns=["city"]))
    page = Page(html)
    assert page.texts["title"][0].startswith("NOT PRIVATE")
    assert page.of("body") == [{"class": "rehearsal"}]
    assert html.index("NOT PRIVATE: a rehearsal", html.index("<body")) < html.index("<h1")
    assert "73.1 %" not in page.text  # nothing is guaranteed
    assert all("--allow-rehearsal" in text for text in page.texts["code"] if text.startswith("kmeanalyst"))
    assert "NOT PRIVATE" not in mixed.text and mixed.of("body") == [{}]


def test_units_are_named_where_units_are_protected(mixed_release):
    release = with_statement(mixed_release, neighbouring="replace-one-unit", unit="patient")
    words = " ".join(plain_words(release))
    assert "all rows of your unit of 'patient' had been replaced by those of another unit" in words
    assert "Units are what is protected: all rows of one unit together" in words


def test_warnings_say_what_is_wrong_and_are_silent_where_nothing_is(levels_release, foreign_release):
    def headlines(release: Release) -> str:
        return " | ".join(one.headline for one in warnings_of(facts_of(release, columns=["city", "school"])))

    signed = levels_release.weights.copy()
    signed[:2] += (-0.5, 0.5)
    weak = with_statement(levels_release, signed, epsilon=20.0, delta=1e-3, public_points=5)
    worse, sound = headlines(weak), headlines(levels_release)
    for text in ("ε = 20 is a weak guarantee", "δ = 0.001 is not below 1/N", "are public rows", "weights are negative"):
        assert text in worse and text not in sound
    first = warnings_of(facts_of(foreign_release, columns=["city"]))[0]
    assert first.weight == "alarm" and first.headline == "No privacy guarantee is known"


def test_rules_are_listed_and_a_contradicted_one_is_a_caveat(rough_representation):
    """Half of the rows work, also below 15: 7 % break the rule."""
    columns = (Integer(name="age", lower=0, upper=99, edges=(15,)), Boolean(name="works"))
    rules = (Rule("never", "works and age < 15"), Rule("always", "age < 99 or works"))
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(0, 99, 5000), "works": rng.random(5000) < 0.5})
    release = publish(table, Domain(columns, rules=rules), epsilon=5, delta=1e-6, kernel="margins", points=50, rehearsal=0)
    facts = facts_of(release)
    page = report_html(facts)
    assert "rule 1 (never works and age &lt; 15)" in page and "rule 2 (always age &lt; 99 or works)" in page
    (caveat,) = [one for one in warnings_of(facts) if "contradicts a rule" in one.headline]
    assert "rule 1 " in caveat.text and "rule 2 " not in caveat.text


def test_the_points_of_a_file_are_known_by_its_sha256(mixed_release, mixed_path):
    html = report_html(facts_of(mixed_release, source=mixed_path, columns=["city"]))
    assert hashlib.sha256(mixed_path.read_bytes()).hexdigest() in html
    assert str(mixed_path.parent) not in html  # folders are the reader's own business


def test_bars_are_as_high_as_their_shares(mixed_facts):
    """Of a column of levels: lengths are proportional to the shares."""
    city = next(one for one in mixed_facts.columns if one.name == "city")
    svg = Page(str(chart(city, "c")))
    widths = [float(rect["width"] or 0) for rect in svg.of("rect")]
    shares = [bar.estimate.value for bar in city.bars]
    assert np.array(widths) / max(widths) == pytest.approx(np.array(shares) / max(shares), abs=0.01)


def test_a_drawing_of_nothing_known_is_none_and_negative_shares_stay_inside(foreign_facts):
    facts = foreign_facts
    assert any(bar.estimate.value < 0 for one in facts.columns for bar in one.bars)
    for one in facts.columns:
        drawn = chart(one, "c")
        assert drawn is not None
        page = Page(str(drawn))
        _, _, width, height = map(float, (page.of("svg")[0]["viewbox"] or "").split())
        for line in page.of("line"):
            assert all(-0.1 <= float(line[name] or 0) <= width for name in ("x1", "x2"))
            assert all(-0.1 <= float(line[name] or 0) <= height for name in ("y1", "y2"))
        for rect in page.of("rect"):
            assert float(rect["width"] or 0) >= 0 and float(rect["height"] or 0) >= 0
    assert chart(replace(facts.columns[0], bars=()), "c") is None


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_texts_stand_out_from_their_ground(mixed):
    """WCAG 2: 4.5."""
    (style,) = mixed.texts["style"]
    grounds = dict(re.findall(r"\.([pm][1-5]) \{ background: (#\w{6})", style))
    white = set(re.findall(r"\.([pm][1-5]) \{ background: #\w{6}; color: #fff", style))
    assert len(grounds) == 10 and len(white) == 4
    for name, ground in grounds.items():
        assert contrast(ground, "#ffffff" if name in white else "#1b1b1b") >= 4.5, name


def test_the_command_writes_the_page_and_its_numbers_as_json(levels_path, levels_release, tmp_path):
    output = tmp_path / "r.html"
    found = answer(call("kmeanalyst", "report", levels_path, "--output", output, "--json"))
    assert found["output"] == str(output) and found["bytes"] == output.stat().st_size
    assert found["sha256"] == hashlib.sha256(levels_path.read_bytes()).hexdigest()
    assert found["rehearsal"] is False and len(found["pairs"]) == 3
    assert [one["name"] for one in found["columns"]] == list(levels_release.columns.names)
    share = found["columns"][0]["shares"][0]
    assert share["value"] == pytest.approx(levels_release.probability("city == 'Zürich'").value)
    assert all(one["headline"] in output.read_text(encoding="utf-8") for one in found["warnings"])
    quiet = call("kmeanalyst", "report", str(levels_path), "--output", str(output), "--columns", "city, school")
    assert quiet.stdout == "" and "2 columns, 1 pairs" in quiet.stderr and "\r" not in quiet.stderr


def test_progress_goes_from_nothing_to_all(levels_release, tmp_path):
    shares: list[float] = []
    write_report(levels_release, tmp_path / "r.html", progress=lambda _, share: shares.append(share))
    assert shares[0] == 0.0 and shares[-1] == 1.0 and shares == sorted(shares)
    assert len(shares) == 2 + 3 + 3  # columns, pairs


@pytest.mark.skipif(browser() is None, reason="no Chromium or Chrome on the path: the page's structure is tested above")
def test_a_browser_runs_the_pages_script_and_no_other(hostile, tmp_path):
    """The dumped tree has the script's own buttons, and no element from the file."""
    path = tmp_path / "hostile.html"
    path.write_text(hostile, encoding="utf-8")
    page, said = in_browser(path)
    assert page.texts["button"].count("Fold all") == 1
    assert len(page.of("script")) == 1 and not page.of("img")
    assert "Refused" not in said and "violates" not in said


def test_the_script_and_the_style_close_no_element_early():
    for name in ("SCRIPT", "STYLE"):
        text = getattr(__import__("kmeanalyst.report.markup", fromlist=[name]), name)
        assert "</" not in text and "<!--" not in text and text.isascii()
