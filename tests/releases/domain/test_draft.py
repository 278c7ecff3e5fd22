"""What `draft-domain` makes of samples as they are: constants, bad dates, codes, identifiers, rare levels.

Whatever is drafted is a valid domain file, and a table can be published with it.
"""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from contracts import every
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.domain import Domain, column_from_dict, domain_toml, read_domain
from kmeanalyst.releases.domain.draft import Draft
from kmeanalyst.releases.domain.draft import draft_domain as drafted_from
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer
from kmeanalyst.releases.texts import flaw_of, spacing_flaw_of
from kmeanalyst.sources.tables import table_of
from release_side import draft_domain, publish

RNG = np.random.default_rng(0)


def public_draft(sample: Any, **options: Any) -> Draft:
    return draft_domain(sample, this_sample_is_public=True, **options)


def draft(cells: Any, **options: Any) -> Draft:
    return public_draft(pd.DataFrame({"x": cells}), **options)


def column(cells: Any, **options: Any) -> Any:
    return draft(cells, **options).domain["x"]


def notes(cells: Any, **options: Any) -> str:
    return "\n".join(draft(cells, **options).notes["x"])


def accepted(drafted: Draft, rows: pd.DataFrame, folder: Path) -> Domain:
    """The domain as its file has it; a table is published with it first."""
    path = folder / "domain.toml"
    path.write_text(domain_toml(drafted.domain, drafted.notes), encoding="utf-8")
    publish(rows, path, epsilon=1, delta=1e-6, method="subspace", points=4, rehearsal=1)
    return read_domain(path)


# ---------------------------------------------------------------------- a sample of every kind


def sample() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = 400
    return pd.DataFrame({
        "age": rng.integers(17, 91, n),
        "height": rng.normal(170, 10, n).round(1),
        "gain": np.where(rng.random(n) < 0.9, 0, rng.integers(1, 100_000, n)),
        "income": np.exp(rng.normal(9, 1.2, n)),
        "city": rng.choice(["Bern", "Zürich", "Genève"], n),
        "flag": rng.choice(["yes", "no"], n),
        "code": rng.integers(0, 2, n),
        "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 365, n), unit="D"),
        "sparse": np.where(rng.random(n) < 0.5, np.nan, rng.integers(0, 9, n)),
        "dirty": np.where(rng.random(n) < 0.1, "unknown", rng.integers(0, 1000, n).astype(str)),
    })  # fmt: skip


def test_a_draft_guesses_kinds_scales_atoms_and_missing():
    draft = public_draft(sample())
    kinds = {column.name: column.kind for column in draft.domain.columns}
    assert kinds == {
        "age": "integer", "height": "real", "gain": "integer", "income": "real", "city": "categorical",
        "flag": "boolean", "code": "boolean", "day": "date", "sparse": "integer", "dirty": "integer",
    }  # fmt: skip
    assert draft.domain["city"].levels == ("Bern", "Genève", "Zürich")
    assert draft.domain["gain"].atoms == (0,)
    assert draft.domain["income"].scale == "log" and draft.domain["income"].lower > 0
    assert [column.name for column in draft.domain.columns if column.missing] == ["sparse", "dirty"]
    found = {name: " ".join(lines) for name, lines in draft.notes.items()}
    assert "CHECK missing" in found["sparse"] and "not numbers (such as 'unknown')" in found["dirty"]
    assert "CHECK bounds: the sample runs from" in found["age"] and "CHECK scale: log" in found["income"]
    assert "CHECK levels" in found["city"] and "CHECK bounds" in found["day"] and found["flag"] == ""


def test_a_draft_leaves_room_beyond_the_extremes():
    frame = sample()
    domain = public_draft(frame).domain
    for name in ("age", "height", "income", "gain"):
        low, high, column = frame[name].min(), frame[name].max(), domain[name]
        assert column.upper >= high + 0.09 * (high - low)
        assert column.lower < low or column.lower == low == 0
    assert domain["day"].lower < "2020-01-01" and domain["day"].upper > "2020-12-30"
    notes = domain.encode_counted(frame)[1].notes()
    assert len(notes) == 1 and notes[0].startswith("dirty: ") and "had no value of the domain" in notes[0]


@given(values=st.lists(st.floats(-1e89, 1e89).map(lambda v: 0.0 if abs(v) < 1e-300 else v), min_size=3, max_size=60))
def test_any_sample_of_numbers_gives_a_domain_that_holds_it(values):
    frame = pd.DataFrame({"x": [2.5, *values]})
    domain = public_draft(frame).domain
    assert domain.encode_counted(frame)[1].notes() == []
    assert Domain.from_dict(domain.to_dict()) == domain


def test_huge_and_tiny_columns_can_be_drafted():
    assert column([1e20, 2e20, 3e20]).kind == "real"
    assert 0 < column(np.append(10.0 ** np.random.default_rng(0).uniform(-2, 5, 500), 1e-13)).lower < 1e-13


def test_a_draft_holds_a_digest_for_each_file_of_its_sample(tmp_path):
    for name, n in (("a", 3), ("b", 4)):
        (tmp_path / "s.parquet").mkdir(exist_ok=True)
        pd.DataFrame({"x": range(n)}).to_parquet(tmp_path / "s.parquet" / f"{name}.parquet")
    drafted = public_draft(tmp_path / "s.parquet")
    assert len(drafted.domain.samples) == 2
    (tmp_path / "d.toml").write_text(domain_toml(drafted.domain, drafted.notes))
    assert read_domain(tmp_path / "d.toml").samples == drafted.domain.samples


@every([
    ("a,x\n1,2\n\n3,4\n\n", True), ('a,x\n1,"2\n3"\n4,5\n', True), ("a,x\n1,2\n3,4", False), ('a,x\r\n"1",2\r\n3,4\r\n', False),
], of="text, noted")  # fmt: skip
def test_lines_that_are_no_rows_of_the_sample_have_a_note(text, noted, tmp_path):
    """As private table each of them would count as a person, also where the column with line breaks is left out."""
    (tmp_path / "s.csv").write_text(text)
    said = [note for note in public_draft(tmp_path / "s.csv", without=["x"]).notes["a"] if note.startswith("CHECK lines")]
    assert len(said) == noted and all("2 rows on" in note and "without them" in note for note in said)


# ---------------------------------------------------------------------- constants


@every([
    ([0] * 5, "integer", 0, 1), ([5] * 5, "integer", 4, 6), ([-5] * 5, "integer", -6, -4), ([999] * 5, "integer", 890, 1100),
    ([0.25] * 5, "real", 0.22, 0.28), ([2**53] * 5, "real", None, None), (["0.0"] * 5, "integer", 0, 1),
    (["2020-02-29"] * 5, "date", "2020-02-28", "2020-03-01"), (["9999-12-31"] * 5, "date", "9999-12-30", "9999-12-31"),
    (["0001-01-01"] * 5, "date", "0001-01-01", "0001-01-02"),
], of="cells, kind, lower, upper")  # fmt: skip
def test_a_constant_column_is_drafted_with_room_and_a_check(cells, kind, lower, upper, tmp_path):
    drafted = draft(cells)
    own = drafted.domain["x"]
    assert own.kind == kind and "CHECK constant: every cell of the sample that has a value is " in notes(cells)
    assert lower is None or (own.lower, own.upper) == (lower, upper)
    assert own.encode(cells)[1].max() == 0  # kept, not clamped
    assert accepted(drafted, pd.DataFrame({"x": [*cells, "77"]}), tmp_path) == drafted.domain


@every([("CH", "categorical"), ("yes", "boolean"), ("FALSE", "boolean"), ("f", "categorical")], of="cell, kind")
def test_a_constant_text_is_drafted_with_a_check(cell, kind, tmp_path):
    drafted = draft([cell] * 30)
    assert drafted.domain["x"].kind == kind
    assert f"CHECK constant: every cell of the sample that has a value is {cell!r}" in notes([cell] * 30)
    assert accepted(drafted, pd.DataFrame({"x": [cell, "", "other"] * 9}), tmp_path) == drafted.domain


def test_a_number_that_is_too_large_for_a_kernel_counts_as_a_bad_cell(tmp_path):
    cells = [*range(10), 1e250, -1e95, "inf"] * 2
    drafted = draft(cells)
    assert drafted.domain["x"].missing and drafted.domain["x"].upper < 100
    assert "CHECK 6 cells were not numbers" in notes(cells)
    assert accepted(drafted, pd.DataFrame({"x": [*cells, 3]}), tmp_path) == drafted.domain


def test_every_column_that_suggests_nothing_is_named_at_once():
    people = [f"person {i}" for i in range(300)]
    frame = pd.DataFrame({"a": [None] * 300, "b": range(300), "c": people, "d": [""] * 300})
    with pytest.raises(DomainError) as caught:
        public_draft(frame)
    assert "column b" not in str(caught.value)
    assert all(name in str(caught.value) for name in ("column a is", "column c has 300", "column d is"))
    many = pd.DataFrame({f"c{i}": [None] for i in range(40)})
    with pytest.raises(DomainError, match=r"c9 is empty.* 30 further columns cannot be drafted either\.$"):
        public_draft(many)


# ---------------------------------------------------------------------- dates with bad cells


def test_a_few_bad_cells_leave_a_column_of_dates_one_of_dates(tmp_path):
    days = [f"2020-01-{day:02d}" for day in range(1, 29)] * 2
    cells = [*days, "unknown", "31.12.2020", "2020-02-30", "unknown"]
    drafted = draft(cells)
    assert drafted.domain["x"].kind == "date" and drafted.domain["x"].missing
    assert "CHECK 4 cells were not dates (such as 'unknown'); they count as missing" in notes(cells)
    assert not column(days).missing and column(["2020-01-01", "unknown"] * 20).kind == "categorical"
    assert accepted(drafted, pd.DataFrame({"x": cells}), tmp_path) == drafted.domain


# ---------------------------------------------------------------------- identifiers and codes


@every([
    range(1000, 1030), range(5), [3, 1, 2, 5, 4], RNG.choice(10**9, 300, replace=False), [f"P{i:03d}" for i in range(40)],
    [str(uuid.UUID(int=i)) for i in range(4)], [str(uuid.UUID(int=i)) for i in range(4)] * 30,
], of="cells")  # fmt: skip
def test_a_column_that_may_identify_rows_has_a_note(cells):
    assert "CHECK identifier" in notes(list(cells))


@every([
    RNG.normal(size=300), RNG.integers(17, 90, 300), RNG.choice(["a", "b"], 300), RNG.choice(1000, 1000), [4, 9, 17],
    list(range(100)) * 2, pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 365, 300), unit="D"),
], of="cells")  # fmt: skip
def test_a_column_whose_values_rows_share_has_none(cells):
    assert "CHECK identifier" not in notes(list(cells))


AGES = [int(age) for age in RNG.integers(17, 81, 500)]


@every([
    ([*AGES, 999, 999], "999 (2 times)"), ([*AGES, *[99] * 7], "99 (7 times)"), ([*AGES, *[9999] * 3], "9999 (3 times)"),
    ([*AGES, *[-9] * 4], "-9 (4 times)"), ([*AGES, *[-9] * 4, *[999] * 2], "-9 (4 times), 999 (2 times)"),
    ([*AGES, *[997] * 2, *[998] * 3, *[999] * 4], "997 (2 times), 998 (3 times), 999 (4 times)"),
    ([0, 1, 2, 3] * 9 + [-1] * 2, "-1 (2 times)"), ([*AGES, *[12345] * 2], "12345 (2 times)"),
    ([f"{age}.5" for age in AGES] + ["-9.0"] * 2, "-9 (2 times)"),
    ([f"20{n % 20:02d}-01-01" for n in range(60)] + ["9999-12-31"] * 3, "9999-12-31 (3 times)"),
    ([f"20{n % 20:02d}-01-01" for n in range(60)] + ["1900-01-01"] * 3, "1900-01-01 (3 times)"),
], of="cells, found")  # fmt: skip
def test_a_repeated_value_far_from_the_others_has_a_note(cells, found):
    assert f"CHECK codes: {found}, far from all other values: " in notes(cells)


@every([
    AGES, [*AGES, 999], RNG.normal(size=500), np.exp(RNG.normal(9, 1.2, 500)).round(), [0, 1] * 20, [0, 5] * 20, range(100),
    [1, 2, 3, 4, 5] * 20, [-1, 0, 1] * 20, list(range(-9, 10)) * 3, np.where(RNG.random(500) < 0.9, 0, RNG.integers(1, 9999, 500)),
], of="cells")  # fmt: skip
def test_ordinary_extremes_have_none(cells):
    assert "CHECK codes" not in notes(list(cells))


# ---------------------------------------------------------------------- rare levels

CITIES = ["Bern"] * 30 + ["Basel"] * 10 + ["Genf"] * 9 + ["Chur"]


def test_levels_seen_fewer_than_ten_times_have_a_note():
    known = [*CITIES, "Chur"]
    assert column(known).levels == ("Basel", "Bern", "Chur", "Genf")
    assert "CHECK rare levels: 'Chur', 'Genf' seen fewer than 10 times: is each level itself public" in notes(known)
    assert column(known).decode(column(known).encode(["Nowhere"])[0]).tolist() == ["Basel"]
    assert "a level it lacks becomes the default (the first) on the private side" in notes(known)
    assert "rare" not in notes(["Bern"] * 10 + ["Basel"] * 10)
    many = [f"city {n:02d}" for n in range(30)] * 2
    assert "'city 05' and 24 more seen fewer than 10 times" in notes(many)


def test_where_levels_are_seen_once_further_ones_have_a_level():
    """One of fifty cells is seen once: about one of fifty further cells has a level that the sample lacks."""
    own = column(CITIES)
    assert own.levels == ("Basel", "Bern", "Chur", "Genf", "other") and own.default == "other"
    assert "a level it lacks becomes 'other' on the private side" in notes(CITIES)
    assert "CHECK rare levels: 'Chur', 'Genf'" in notes(CITIES) and "collapsed" not in notes(CITIES)


@every([
    (["02116"] * 30 + ["94110"] * 20, "begin with a zero, so they are codes"), ([20230601 + n for n in range(28)], "CHECK dates"),
    (["Ill"] * 20 + ["ill"] * 20, "'Ill', 'ill' differ by case"), (["a", "b", "NA"] * 20, "CHECK marks: 'NA'"),
    (["51,9", "52,4", "7,5"] * 9, "reads as a number with a comma"), (["€1,50", "€2,50"] * 9, "'€1,50' reads as a number"),
    *(([text, "2" + text[1:]] * 9, f"{text!r} reads as a number") for text in ("1 234,56", "1\u202f200", "150 kg", "12.5%")),
    (["$5", "$10"] * 9, "'$10' reads as a number"), (["US$5", "US$7"] * 9, "reads as"), (["CHF 5", "CHF 7"] * 9, "reads as"),
    (["Gen\u00e8ve", "Gene\u0300ve"] * 20, "differ by case, Unicode form"),
    (["A1", "B2", "\u04101"] * 9, "'A1', '\u04101' differ by case"),
    (["06:30", "07:15"] * 9, "'06:30' reads as a time of day"), (["7:30 PM", "8:30 am"] * 9, "reads as a time of day"),
    ([*np.arange(1, 25, 0.4), "3.5-", "(2)"] * 9, "they count as missing: '3.5-' reads as a number"),
    (["2024-05-01", "2024-05-02", "45415"] * 9, "they count as missing: numbers may be days of a spreadsheet"),
    ([*range(11), 77, 88, 99] * 9, "CHECK codes: 77 (9 times), 88 (9 times), 99 (9 times)"),
    (["4.914", "12.500", "999"] * 9, "CHECK thousands: behind each point there are three digits, as in '4.914'"),
    ([f"9007199254740993000{n % 4}" for n in range(40)], "have more digits than numbers keep, so they are codes"),
    ([f"2023-05-{n:02d}" for n in range(1, 30)] + ["1900-01-01"] * 4 + ["9999-12-31"] * 3, "CHECK codes: 1900-01-01 (4 times), 9"),
], of="cells, noted")  # fmt: skip
def test_what_strangers_tables_hold_has_a_note(cells, noted):
    assert noted in notes(cells)
    assert not any(
        word in notes(["a, b", "c", "nab"] * 20) + notes(AGES)
        for word in ("codes:", "dates", "spell", "marks", "comma", "thousands")
    )


def test_codes_with_leading_zeros_are_levels():
    assert column(["2024-05-01", "2024-05-02", "45415"] * 9).missing_codes == ()
    assert column(["02116"] * 30 + ["94110"] * 20).levels == ("02116", "94110")
    with pytest.raises(DomainError, match="'0,0' reads as a number with a comma"):
        column([f"{n},{n}" for n in range(3000)])


def test_points_that_are_decimal_are_no_marks_of_thousands():
    for cells in (["4.914", "0.250", "1.5"], ["0.914", "0.250"], ["914", "250"], ["1234.500", "4.914"]):
        assert "thousands" not in notes(cells * 9)


def test_wards_1_2_and_a_are_levels_and_a_few_words_among_numbers_are_missing_cells():
    """Of rows at hand, which are compared and not published, one word is enough."""
    wards = column(["1", "2", "3", "A"] * 10)
    assert (wards.kind, wards.levels) == ("categorical", ("1", "2", "3", "A"))
    for others in (["Total"], ["NA"] * 20, [".", "?"] * 9):  # a footer, and what marks a missing cell
        found = column(["1", "2", "3"] * 30 + others)
        assert found.kind == "integer" and found.missing, others
    assert column([*range(50), "A", "B"] * 2).kind == "integer"  # too many to be levels
    assert draft(["1", "2", "3"] * 30 + ["A"], strings=True).domain["x"].kind == "categorical"


def test_codes_that_pandas_wrote_as_floats_are_drafted_so_that_both_forms_are_read():
    for cells in (["1.0", "2.0", "A"] * 10, ["1.0", "1", "2", "A"] * 10):
        assert column(cells).levels == ("1", "2", "A")
        assert column(cells).encode(["1", "1.0", "2.0", "A"])[0].tolist() == [0, 0, 1, 2]
    assert column(["1.0", "1.5", "beta", "gamma"] * 10).levels == ("1.0", "1.5", "beta", "gamma")  # versions


def test_cells_of_spaces_are_missing_and_words_for_yes_may_be_mixed():
    spaced = column(["1", " ", "2", "  "] * 10)
    assert spaced.kind == "integer" and spaced.missing and spaced.upper < 9
    assert column(["Y", "no", "N", "yes"] * 10).kind == column(["True", "true", "False"] * 10).kind == "boolean"
    assert column(["Y", "N", "U"] * 10).kind == "categorical"


def test_a_level_is_read_from_what_pandas_writes_for_it():
    sex = Categorical(name="sex", levels=("1", "2", "3.0"))
    assert sex.encode(["1.0", "2", " 2.00 ", "3.0", "3"])[0].tolist() == [0, 1, 1, 2, 0]
    assert Boolean(name="t").encode(["1.0", "0.0"])[0].tolist() == [1, 0]
    long = Categorical(name="id", levels=("9007199254740992", "0"), default="0")  # 2^53: a float is no more one number
    assert long.encode(np.array([9007199254740993]))[0].tolist() == [1]


def test_two_columns_near_each_other_have_a_derived_column_of_their_difference():
    rng = np.random.default_rng(0)
    day, stay, age = (
        (np.datetime64("2024-01-01") + rng.integers(0, 400, 300)), rng.integers(0, 9, 300), rng.integers(0, 90, 300),
    )  # fmt: skip
    frame = pd.DataFrame({"in": day.astype(str), "out": (day + stay).astype(str), "age": age, "later": age + 1, "sex": 1})
    draft = draft_domain(frame.assign(person=1), this_sample_is_public=True, without=["sex"], unit="person")
    derived, (rule,) = draft.domain["out_minus_in"], draft.domain.rules
    assert rule.describe() == "out_minus_in = out - `in`" and draft.domain.names_read == ("in", "out", "age", "later")
    # < and == are cells
    assert derived.lower < 0 < derived.upper and {0, 1} <= {*derived.edges} and not derived.missing
    assert draft.notes["out_minus_in"][0].startswith("CHECK difference: out - `in` is mostly from 0 to 8")
    text = domain_toml(draft.domain, draft.notes)
    assert 'derive = "out_minus_in"' in text and "# CHECK difference: out" in text
    analysts = drafted_from(frame.drop(columns="sex"))
    assert not analysts.domain.rules and analysts.domain.names == draft.domain.names_read
    with pytest.raises(DomainError, match="no column 'id' to leave out"):
        draft_domain(frame, this_sample_is_public=True, without=["id"])


def test_a_column_that_is_a_difference_is_computed():
    rng = np.random.default_rng(1)
    first, more = np.round(rng.normal(70, 9, 300), 1), np.round(rng.normal(0, 1, 300), 1)
    more[:5] = np.nan
    second = np.round(first + more, 1)
    frame = pd.DataFrame({"before": first, "after": second, "change": more})
    draft = draft_domain(frame, this_sample_is_public=True)
    assert [rule.describe() for rule in draft.domain.rules] == ["change = after - before"]
    assert draft.domain.names == ("before", "after", "change") and draft.domain["change"].missing
    other = draft_domain(frame.assign(change=more + (np.arange(300) == 9)), this_sample_is_public=True).domain
    assert [rule.describe() for rule in other.rules] == ["after_minus_before = after - before"]
    assert other["after_minus_before"].missing and other["after_minus_before"].grain == 0.1


def test_no_column_has_two_rules_of_differences_and_other_rows_decide_whether_one_is_a_difference():
    rng = np.random.default_rng(2)
    p, r = rng.integers(0, 10_000, 6000), rng.integers(0, 20, 6000)
    frame = pd.DataFrame({"p": p, "r": r, "q": p + r, "z": p + 2 * r})
    rules = draft_domain(frame, this_sample_is_public=True).domain.rules
    assert [rule.columns[0] for rule in rules] == list(dict.fromkeys(rule.columns[0] for rule in rules))
    assert len(rules) >= 1
    late = draft_domain(frame.drop(columns="z").assign(r=np.where(np.arange(6000) < 5500, r, 3)), this_sample_is_public=True)
    assert [rule.columns for rule in late.domain.rules] == [("q_minus_p",)]
    gap = pd.DataFrame({0: np.where(np.arange(6000) < 5200, p, np.nan), 1: p + r})
    assert draft_domain(gap, this_sample_is_public=True).domain["1_minus_0"].missing


def test_columns_that_are_mostly_equal_have_a_derived_column_of_their_difference():
    """However far apart the others are; but not two that are mostly 0, or have few values."""
    rng = np.random.default_rng(4)
    ordered, few = rng.poisson(12, 2000), rng.integers(0, 3, 2000)
    late = np.where(rng.random(2000) < 0.8, ordered, rng.poisson(12, 2000))
    loss, gain = (np.where(rng.random(2000) < 0.9, 0, rng.integers(1, 1000, 2000)) for _ in range(2))
    frame = pd.DataFrame({"ordered": ordered, "late": late, "few": few, "again": few, "loss": loss, "gain": gain})
    frame.loc[:200, "again"] = 3
    rules = draft_domain(frame, this_sample_is_public=True).domain.rules
    assert [rule.describe() for rule in rules] == ["late_minus_ordered = late - ordered"]


def invoices(discounts: tuple[int, ...], gaps: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    labour, parts = (rng.gamma(2, 80, 6000).round(2) for _ in range(2))
    total = (labour + parts - rng.choice(discounts, 6000)).round(2)
    parts[:gaps] = np.nan
    return pd.DataFrame({"labour": labour, "parts": parts, "total": total, "age": rng.integers(0, 90, 6000)})


def test_a_number_near_the_sum_of_two_has_a_note():
    draft = draft_domain(invoices((0, 5, 10), gaps=9), this_sample_is_public=True)
    assert draft.notes["total"][0].startswith("CHECK sum: it is labour + parts, but for -10 to 0 mostly") and not draft.domain.rules
    far = draft_domain(invoices((0, 300, 600)), this_sample_is_public=True)
    assert not far.domain.rules and not any("CHECK sum" in note for own in far.notes.values() for note in own)


def test_a_number_that_is_the_sum_of_two_in_every_row_is_computed():
    frame = invoices((0,))
    draft = draft_domain(frame, this_sample_is_public=True)
    assert [rule.describe() for rule in draft.domain.rules] == ["total = labour + parts"]
    assert draft.notes["total"][0].startswith("CHECK sum: it is labour + parts in every row of the sample")
    six = draft_domain(frame.assign(total=frame.total - 6.5), this_sample_is_public=True).domain
    assert [rule.describe() for rule in six.rules] == ["total = labour + parts - 6.5"]
    late = draft_domain(frame.assign(total=frame.total + 2 * (np.arange(6000) == 5999)), this_sample_is_public=True)
    assert not late.domain.rules and "but for 0 to 0 mostly" in late.notes["total"][0]  # the last row counts too
    twice = draft_domain(frame.assign(more=frame.total + frame.age), this_sample_is_public=True).domain
    assert [rule.describe() for rule in twice.rules] == ["age = more - total", "total = labour + parts"]  # no circle


def test_rare_levels_are_collapsed_into_one_that_is_the_default():
    own = column(CITIES, collapse_rare=True)
    assert own.levels == ("Basel", "Bern", "other") and own.default == "other"
    assert own.decode(own.encode(["Bern", "Genf", "Chur", "Nowhere", ""])[0]).tolist() == ["Bern", *["other"] * 4]
    found = notes(CITIES, collapse_rare=True)
    assert "CHECK collapsed: 2 levels seen fewer than 10 times became 'other', which is the default" in found
    assert "Genf" not in found and "a level it lacks becomes 'other' on the private side" in found
    own = column([*CITIES, None], collapse_rare=True)
    assert own.missing and np.isnan(own.encode([None])[0][0]) and own.encode(["Nowhere"])[0][0] == 2
    own = column(["Bern"] * 10 + ["other"], collapse_rare=True)
    assert own.levels == ("Bern", "other") and own.encode(["other"])[0][0] == 1


@every([
    (["other"], "other_2"), (["Other "], "other_2"), (["OTHER", "other_2"], "other_3"), (["others"], "other"),
], of="frequent, name")  # fmt: skip
def test_the_level_of_the_rest_has_a_free_name(frequent, name):
    own = column([*frequent * 10, "rare"], collapse_rare=True)
    assert own.levels == (*sorted(level.strip() for level in frequent), name) and own.default == name


def test_nothing_is_collapsed_where_every_level_is_frequent_or_levels_are_public_by_kind():
    assert column(["Bern", "Basel"] * 10, collapse_rare=True) == column(["Bern", "Basel"] * 10)
    assert column(["yes", "no"], collapse_rare=True).levels == ("False", "True")


def test_a_sample_of_rare_levels_alone_becomes_one_level(tmp_path):
    drafted = draft(["a", "b", "c"] * 3, collapse_rare=True)
    assert drafted.domain["x"].levels == ("other",) and "CHECK constant" in " ".join(drafted.notes["x"])
    assert accepted(drafted, pd.DataFrame({"x": ["a", "q"] * 9}), tmp_path) == drafted.domain


def test_many_levels_can_be_drafted_where_the_rare_ones_are_collapsed():
    cells = ["Bern"] * 50 + [f"village {n}" for n in range(300)]
    with pytest.raises(DomainError, match=r"301 different texts in 350 rows"):
        draft(cells)
    assert column(cells, collapse_rare=True).levels == ("Bern", "other")
    with pytest.raises(DomainError, match=r"300 different texts"):
        draft(cells[50:], collapse_rare=True)


# ---------------------------------------------------------------------- whatever the sample

_TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF), min_size=1, max_size=8).filter(
    lambda text: text.strip() and not (flaw_of(text) or spacing_flaw_of(text.strip()))
)
_NUMBER = st.one_of(
    st.integers(-(2**60), 2**60), st.sampled_from([0, 1, -9, 99, 999, 1e300, -1e300, 1e-300, 5e-324, float("inf")]),
    st.floats(allow_nan=False),
)  # fmt: skip
_DATE = st.dates().map(str)
_CELLS = st.one_of(
    *(st.lists(kind, min_size=1, max_size=4) for kind in (_TEXT, _NUMBER, _DATE, st.booleans())),  # few: constants, levels
    *(st.lists(kind, min_size=12, max_size=30) for kind in (_TEXT, _NUMBER, _DATE)),
    st.lists(st.one_of(_DATE, _TEXT), min_size=5, max_size=30),
    st.lists(st.one_of(_NUMBER, _TEXT, st.none()), min_size=5, max_size=30),
)  # fmt: skip


@st.composite
def messy_samples(draw: st.DrawFn) -> pd.DataFrame:
    """Columns of constants, bad dates, rare levels, codes and missing cells, as many rows in each."""
    columns, n = draw(st.lists(_CELLS, min_size=1, max_size=4)), draw(st.integers(1, 40))
    holes = draw(st.sets(st.integers(0, 39), max_size=10))
    cells = {f"c{j}": [None if i in holes else own[i % len(own)] for i in range(n)] for j, own in enumerate(columns)}
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in cells.items()})


@given(sample=messy_samples(), private=messy_samples(), collapse=st.booleans())
@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # shrinking is slow
def test_whatever_is_drafted_can_be_read_and_published(sample, private, collapse):
    assume(all(sample[name].notna().any() for name in sample))
    drafted = public_draft(sample, collapse_rare=collapse)
    rows = pd.concat([private.reindex(columns=sample.columns), sample.iloc[:5]], ignore_index=True)
    with tempfile.TemporaryDirectory() as folder:
        domain = accepted(drafted, rows, Path(folder))
    assert domain == drafted.domain and domain.samples == drafted.domain.samples
    assert not any("\n" in note or not note.isprintable() for own in drafted.notes.values() for note in own)


def test_values_far_more_frequent_than_their_neighbours_are_proposed_as_atoms():
    """40 hours are, and a cap at the end; the highest values of a smooth bump and values of few are not."""
    rng = np.random.default_rng(0)
    smooth = np.rint(40 + 3 * rng.standard_normal(2000)).astype(int)
    hours = np.where(rng.random(2000) < 0.1, 40, rng.integers(1, 90, 2000))
    capped = np.minimum(rng.integers(0, 120, 2000), 100)
    few = rng.choice(15, 2000, p=np.r_[0.3, np.full(14, 0.05)])
    drafted = public_draft(pd.DataFrame({"hours": hours, "smooth": smooth, "capped": capped, "few": few}))
    found = {own.name: getattr(own, "atoms", ()) for own in drafted.domain.columns}
    assert found == {"hours": (40,), "smooth": (), "capped": (100,), "few": ()}
    many = np.concatenate([np.arange(200), np.repeat(np.arange(5, 200, 20), 100)])
    assert len(column(many).atoms) == 8 and set(column(many).atoms) <= set(range(5, 200, 20))
    note = next(note for note in drafted.notes["hours"] if note.startswith("CHECK atoms"))
    assert note.startswith("CHECK atoms: 40 (1") and "threshold of a law" in note


def test_what_comes_often_by_chance_in_a_small_sample_is_no_atom():
    """Of 300 rows of some 250 values one or two come four times or five, which is far more often than their neighbours do."""
    rng = np.random.default_rng(0)
    smooth = [rng.normal(50, 15, 300).round(1) for _ in range(10)]
    assert not any(column(list(map(str, own))).atoms for own in smooth)
    assert all(42 in column(list(map(str, [*own[:285], *[42.0] * 15]))).atoms for own in smooth)


def test_days_that_heap_are_atoms_as_numbers_are():
    days = np.datetime64("2020-01-01") + np.random.default_rng(0).integers(0, 1461, 2000)
    days[:200] = np.datetime64("2022-01-01")
    heaped, quarters = column(days.astype(str)), ["2023-01-01", "2023-04-01", "2023-07-01"]
    assert "2022-01-01" in heaped.atoms and len(heaped.atoms) < 3
    assert column(quarters * 20).atoms == tuple(quarters) and "CHECK atoms: 2023-01-01 (33%)" in notes(quarters * 20)


def test_decimals_are_a_step_and_few_values_with_gaps_are_atoms():
    """Where a finer table would not show single values, rarer ones are atoms too: those of many steps, or of none."""
    rng = np.random.default_rng(0)
    heaps = np.where(rng.random(2000) < 0.02, 50_000, rng.integers(0, 90_000, 2000))
    cells = {
        "carat": np.round(rng.uniform(0.2, 3, 2000), 2), "years": rng.choice([0.5, 2.5, 6, 9, 23], 2000),
        "dose": rng.choice([0, 50, 100, 250, 500], 2000), "income": heaps, "hours": np.where(heaps == 50_000, 50, heaps % 90),
        "mass": rng.normal(70, 9, 2000),
    }  # fmt: skip
    drafted = public_draft(pd.DataFrame(cells))
    own = {name: drafted.domain[name] for name in cells}
    assert [getattr(own[name], "step", 1) for name in cells] == [0.01, 0.1, 1, 1, 1, None]
    atoms = [own[name].atoms for name in cells]
    assert atoms == [(), (0.5, 2.5, 6.0, 9.0, 23.0), (0, 50, 100, 250, 500), (50_000,), (), ()]
    assert own["years"].edges == (6.0,)
    assert "CHECK step: values are multiples of 0.01" in "\n".join(drafted.notes["carat"])
    assert "are its few values" in "\n".join(drafted.notes["dose"])


def test_ranges_end_at_round_numbers_and_are_narrower_where_there_are_more_rows():
    """On the column's scale, and whole where values are; of few values each that is seen often is a range."""
    rng = np.random.default_rng(1)
    sample = pd.DataFrame({
        "age": np.clip(np.rint(rng.normal(41, 12, 3000)), 17, 90).astype(int),
        "wage": np.rint(np.exp(rng.normal(9, 1.5, 3000))).astype(int),
        "share": rng.beta(2, 5, 3000),
        "school": rng.integers(1, 17, 3000),
        "visits": np.where(rng.random(3000) < 0.999, 0, rng.integers(100, 9000, 3000)),
    })  # fmt: skip
    drafted = public_draft(sample)
    edges = {column.name: getattr(column, "edges", ()) for column in drafted.domain.columns}
    assert set(edges["age"]) >= {20, 30, 40, 50, 60} and len(edges["age"]) == 11
    widths = np.diff(edges["age"])
    assert widths.min() >= 2 and widths[-1] > np.median(widths)
    assert drafted.domain["wage"].scale == "log" and {1000, 10_000, 100_000} <= set(edges["wage"])
    assert all(round(edge * 100) == pytest.approx(edge * 100) for edge in edges["share"]) and 0.5 in edges["share"]
    assert edges["school"] == tuple(range(1, 18)) and edges["visits"] == ()
    note = next(note for note in drafted.notes["age"] if note.startswith("CHECK edges"))
    assert note.startswith("CHECK edges: tables are cut at 20, ") and "round numbers" in note
    assert any("a range for each of its few values" in note for note in drafted.notes["school"])


@given(st.lists(st.floats(-1e80, 1e80) | st.integers(-100, 100), min_size=1, max_size=200), st.booleans())
def test_proposed_edges_lie_between_the_samples_extremes_or_around_few_values(values: list[float], many: bool):
    edges = [float(edge) for edge in getattr(column(values * (6 if many else 1)), "edges", ())]
    few = len(set(values)) <= 16  # each of these starts a range, and one follows after the last
    low, high = (min(values) - 0.5, max(values) + 1) if few else (min(values), max(values))
    assert edges == sorted(set(edges)) and all(low < edge <= high for edge in edges) and len(edges) < 18


@every([
    (["18.05.2024", "3.1.2023"] * 30, "%d.%m.%Y"), (["05/18/2024", "12/31/2023"] * 30, "%m/%d/%Y"),
    (["18/05/24"] * 30 + ["", "x"], "%d/%m/%y"),
    (["18.05.2024 07:30", "3.1.2023 23:59"] * 30, "%d.%m.%Y %H:%M"), (["2024/05/18", "2024/01/02"] * 30, "%Y/%m/%d"),
], of="cells, form")  # fmt: skip
def test_days_in_another_form_are_dates_where_one_form_alone_reads_them(cells, form):
    own = column(cells)
    assert (own.kind, own.format) == ("date", form) and f"CHECK format: cells such as {cells[0]!r}" in notes(cells)
    assert own.encode(cells[:1])[1][0] == 0 and own.decode(own.encode(cells[:1])[0])[0].year in (2023, 2024)
    assert column_from_dict(own.to_dict()) == own
    assert own.encode(["2024-05-18"])[0] == Date(name="d", lower="2000-01-01", upper="2030-01-01").encode(["2024-05-18"])[0]


def test_days_that_two_forms_read_are_no_dates_and_the_note_names_both():
    own, said = column(["05/04/2024", "01/12/2023"] * 30), notes(["05/04/2024", "01/12/2023"] * 30)
    assert own.kind == "categorical" and "may be days by %d/%m/%Y or by %m/%d/%Y" in said


def test_codes_for_a_missing_cell_are_named_as_the_domain_takes_them():
    said = notes([*AGES, *[-9] * 4, *[999] * 2])
    assert "missing_codes = [-9, 999]" in said
    assert 'missing_codes = ["9999-12-31"]' in notes([f"20{n % 20:02d}-01-01" for n in range(60)] + ["9999-12-31"] * 3)


def test_a_table_of_arrow_is_drafted_and_one_column_is_left_out_by_its_name():
    import pyarrow as pa

    table = pa.table({"id": [1, 2, 3], "age": [4, 9, 17]})
    draft = draft_domain(table, this_sample_is_public=True, without="id")
    assert draft.domain.names == ("age",)
    again = draft_domain(table.to_pandas(), this_sample_is_public=True, without=["id"])
    assert draft.domain.samples == again.domain.samples
    with pytest.raises(ValueError, match="public rows are a table, and a ndarray is not"):
        draft_domain(np.zeros((3, 2)), this_sample_is_public=True)  # type: ignore[arg-type]


def test_codes_that_the_curator_names_are_missing_and_in_no_bound_or_level():
    sample = pd.DataFrame({"age": [*AGES, *[-9] * 4, *[999] * 2], "sex": ["F", "M", "NA"] * 168 + ["F"] * 2})
    draft = draft_domain(sample, this_sample_is_public=True, missing_codes={"age": ["-9", 999], "sex": ["NA"]})
    age, sex = draft.domain.columns
    assert (age.missing, age.missing_codes, age.lower, age.upper) == (True, ("-9", 999), *(column(AGES).lower, column(AGES).upper))  # type: ignore[attr-defined]
    assert (sex.levels, sex.missing, sex.missing_codes) == (("F", "M"), True, ("NA",))  # type: ignore[attr-defined]
    assert np.isnan(draft.domain.encode(sample.iloc[500:])[:, 0]).all() and "CHECK codes" not in str(draft.notes)
    with pytest.raises(DomainError, match="no column 'bmi' with codes"):
        draft_domain(sample, this_sample_is_public=True, missing_codes={"bmi": [-9]})


def test_numbers_told_as_an_end_are_read_as_the_nearest_value_that_they_may_be():
    """90+ is 90; more than 89 is 90; fewer than 5 is 4, and of two decimals 4.99: then bounds are there, and nothing is missing."""
    counts = [str(n % 70 + 10) for n in range(500)]
    age, said = column([*counts, *["90+"] * 30, *[">94"] * 9, *["<5"] * 40]), notes([*counts, *["90 +"] * 30])
    assert age.recode == (("90+", 90), ("<5", 4), (">94", 95)) and (age.lower, age.upper, age.missing) == (4, 95, False)
    assert "CHECK recode: '90 +' (30 cells) as 90" in said and "missing" not in said
    cells = age.without_codes([" 90+ ", ">94", "<5", "41", "96+"])
    assert age.encode(cells)[0].tolist() == [90, 95, 4, 41, age.default_code] and column_from_dict(age.to_dict()) == age
    level = column([f"{5 + n % 300 / 100:.2f}" for n in range(600)] + ["<5"] * 40 + ["≤ 4"] * 3)
    assert level.recode == (("<5", 4.99), ("≤ 4", 4.0)) and level.lower == 4.0
    inside = column([*counts, *["40+"] * 30])  # a time of which only the least is known is no end of the scale
    assert inside.recode == () and inside.missing


def test_a_name_that_a_csv_file_has_twice_or_that_is_empty_is_kept_as_it_stands(tmp_path: Path):
    """A reader that called the second "age" age.1 would draft a column that the private table lacks, and compare the wrong one."""
    path, domain = tmp_path / "sample.csv", Domain((Integer(name="age", lower=0, upper=99),))
    path.write_text("age,age\n41,7\n20,8\n", encoding="utf-8")
    with pytest.raises(DomainError, match="the sample has 'age' more than once"):
        public_draft(path)
    for read in (lambda: list(table_of(path).encoded(domain)), lambda: domain.encode_counted(table_of(path).frame())):  # type: ignore[union-attr]
        with pytest.raises(DomainError, match='"age" more than once'):
            read()
    path.write_text(",age\n0,41\n1,20\n", encoding="utf-8")
    assert public_draft(path, without="").domain.names == ("age",)


def test_a_value_that_nearly_all_rows_have_is_an_atom_and_infinite_ones_are_missing(tmp_path: Path):
    """Else its range would reach to the next value of the sample: P(x > 100) was .96 ± .04 for one row of 2,000."""
    x = column([7] * 1999 + [900000])
    assert x.atoms == (7,) and 7 not in x.edges and x.upper >= 900000
    y = column([*range(60), *["inf"] * 3, "-Infinity"])
    assert y.missing_codes == ("inf", "-Infinity") and np.isnan(y.encode(y.without_codes(["inf", "-inf"]))[0]).all()
    assert column([*range(60), "-9", "inf"], missing_codes={"x": [-9]}).missing_codes == (-9, "inf")
    (tmp_path / "latin.csv").write_bytes("ort\nZürich\n".encode("latin-1"))
    with pytest.raises(DomainError, match=r"is not UTF-8 text: .*Write it as UTF-8, the private table too"):
        public_draft(tmp_path / "latin.csv")


def test_a_column_that_tells_rows_apart_as_another_does_is_named():
    """Copies of numbers and of levels, and codes that stand for these; not what has as many values, and no two identifiers."""
    ages, group = RNG.normal(50, 10, 60).round(3), RNG.choice(["x", "y", "z"], 60)
    frame = pd.DataFrame({
        "age": ages, "group": group, "again": ages, "code": pd.Series(group).map({"x": 7, "y": 2, "z": 4}), "same": group,
        "other": RNG.permutation(group), "cost": RNG.normal(50, 10, 60).round(3), "two": group != "x",
    })  # fmt: skip
    found = {name: note for name, own in public_draft(frame).notes.items() for note in own if "CHECK copy" in note}
    assert found.keys() == {"again", "code", "same"} and "as age does" in found["again"] and "--without code" in found["code"]


@pytest.mark.parametrize(
    ("cells", "kind", "noted"),
    [
        (["1.1", "1.10", "1.2", "2.0"] * 50, "real", "CHECK codes: '1.1' and '1.10' are one number"),
        ([str(1_600_000_000_000 + 10**9 * k) for k in range(90)], "integer", "such as 1600000000000 for 2020-09-13"),
        ([str(1_600_000_000 + 10**6 * k) for k in range(90)], "integer", "seconds since 1970, such as 1600000000 for 2020-09-13"),
        ([f"{d:02d}05{y}" for d in range(1, 29) for y in (1999, 2010)], "date", "cells such as '01051999' are read as days by %d"),
        (["3", "5", "N.A."] * 50, "integer", "50 cells were not numbers (such as 'N.A.'); they count as missing"),
        (["3", "5.5", "(blank)"] * 50, "real", "50 cells were not numbers (such as '(blank)'); they count as missing"),
        (["a", "b", "Unknown"] * 50, "categorical", "CHECK marks: 'Unknown' may mark a missing cell"),
        (["a", "<NA>"] * 50, "categorical", "CHECK marks: '<NA>' may mark a missing cell"),
    ],
)  # fmt: skip
def test_versions_moments_days_of_digits_and_marks_are_seen(cells, kind, noted):
    assert column(cells).kind == kind and noted in notes(cells)


def test_years_and_levels_that_mark_nothing_are_no_days_versions_or_marks():
    eight_digits = [f"2010{m:02d}{d:02d}" for m in range(1, 13) for d in (1, 12)]  # 2010-11-12 is no day of the year 1112
    assert column(eight_digits).kind == "integer" and "reads as a day" in notes(eight_digits)
    assert not any(word in notes(["1.5", "2.5", "3.50"] * 50) for word in ("are one number", "since 1970"))
    assert "CHECK marks" not in notes(["n", "north", "a+b"] * 50)
