"""A cell is read as text, by itself, clamped to public bounds, and never raises by its value."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
import refusals
from contracts import COLUMNS, TEXTS, every
from hypothesis import given, settings
from hypothesis import strategies as st

from kmeanalyst.releases.domain.cells import text_of
from kmeanalyst.releases.domain.column import CLAMPED, KEPT, REPLACED, Column
from kmeanalyst.releases.domain.domain import KINDS, Domain, column_from_dict, domain_toml, read_domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec, table_kernel  # noqa: F401  (refusals.txt)
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Date, Integer, Number, Real
from kmeanalyst.releases.expressions.cuts import cuts_of
from kmeanalyst.releases.texts import flaw_of, spacing_flaw_of
from release_side import draft_domain  # noqa: F401  (refusals.txt)

every_column = every(COLUMNS, of="column")


def test_each_kind_is_in_the_contract_list():
    assert {column.kind for column in (*COLUMNS, *TEXTS)} == set(KINDS)


def bits(values) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.float64).view(np.int64)


def ends(column: Column) -> tuple[float, float]:
    """The least and the largest code."""
    return column.bounds if hasattr(column, "bounds") else (0.0, len(column.levels) - 1.0)


def assert_encodes_to_itself(column: Column, codes: np.ndarray) -> None:
    np.testing.assert_array_equal(bits(column.encode(column.decode(codes))[0]), bits(codes))


@every([c for c in COLUMNS if isinstance(c, Number)], of="column")
def test_a_range_holds_a_value_of_the_column_or_none(column: Number):
    """Against all values near its ends; a range of real numbers without a step is never empty."""
    rng = np.random.default_rng(0)
    low, high = column.ends
    starts = np.concatenate([rng.uniform(low, high, 300), low + (high - low) * rng.random(300) ** 8])
    below, above = starts, starts + (high - low) * 10 ** rng.uniform(-7, -1, 600)
    held = column.holds(below, above)
    if column.grain is None:
        assert held.all()
        return
    natural = {"linear": lambda v: v, "log": np.exp, "log1p": np.expm1}[column.scale]
    near = column.multiples(natural(below)[:, None] + column.grain * np.arange(-2, 4))
    with np.errstate(divide="ignore", invalid="ignore"):  # below the bounds
        codes = column._scaled(near)
    fewer = above < codes[:, -1]
    inside = ((codes >= below[:, None]) & (codes < above[:, None])).any(axis=1)
    np.testing.assert_array_equal(held[fewer], inside[fewer])
    assert held[~fewer].all() and 0 < held[fewer].mean() < 1


def good_text(column: Column) -> st.SearchStrategy[str]:
    """Texts of cells that the column allows, the empty one where missing is declared."""
    if isinstance(column, Boolean):
        present = st.sampled_from(["true", "False", "yes", "n", "T", "0", "1", "No"])
    elif isinstance(column, Categorical):
        present = st.sampled_from(column.levels)
    elif isinstance(column, Date):
        low, high = (datetime.date.fromisoformat(v) for v in (column.lower, column.upper))
        present = st.dates(low, high).map(str)
    elif isinstance(column, Integer):
        present = st.integers(column.lower, column.upper).map(str)
    else:
        present = st.floats(column.lower, column.upper, exclude_max=column.kind == "cyclic").map(repr)
    return present | st.just("") if column.missing else present


ANY_CELL = st.one_of(
    st.text(max_size=12), st.floats(), st.integers(), st.booleans(), st.none(), st.dates(), st.datetimes(),
    st.binary(max_size=3), st.just(pd.NA), st.just(pd.NaT), st.just(np.float32(0.1)), st.just(np.datetime64("NaT", "s")),
    st.just(np.datetime64("2012-03-04T05:06")), st.just([]), st.just({}), st.just((1, 2)), st.just(object()),
    st.just(10**400),
    st.decimals(), st.sampled_from(["inf", "-inf", "nan", "NaN", "1e999", "-0.0", "1_000", " 5 ", "\ud800", "٣"]),
    st.sampled_from(["2020-02-30", "2020-1-1", "20200101", "0000-00-00", "9999-12-31", "2020-W01-1", "2012-3-4"]),
)  # fmt: skip


# ---------------------------------------------------------------- encode, decode


@every_column
@settings(max_examples=15)
@given(data=st.data())
def test_a_decoded_code_encodes_to_the_same_bits(column: Column, data):
    """Whatever the cells were: what decode writes, encode reads back exactly, in every scale."""
    cells = data.draw(st.lists(good_text(column) | ANY_CELL, min_size=1, max_size=8))
    assert_encodes_to_itself(column, column.encode(cells)[0])


@every_column
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_drawn_and_grid_values_encode_to_the_same_bits(column: Column, seed):
    rng = np.random.default_rng(seed)
    for codes in (column.draw(50, rng), column.grid(96, rng), column.with_missing(column.grid(7, rng))):
        assert_encodes_to_itself(column, codes)


@every(["log", "log1p"], of="scale")
def test_logarithms_round_to_codes_that_stay(scale: str):
    column = Real(name="x", lower=1e-9, upper=1e9, scale=scale)
    ranges = (np.geomspace(1e-9, 1e9, 20_000), 1 + np.linspace(-1e-6, 1e-6, 20_000), np.linspace(0.1, 40, 20_000))
    values = np.concatenate(ranges)
    codes = column.encode(values)[0]
    assert_encodes_to_itself(column, codes)
    np.testing.assert_allclose(column.decode(codes), values, rtol=1e-14)


@every_column
@settings(max_examples=15)
@given(data=st.data())
def test_decoding_gives_the_cells_back_in_natural_units(column: Column, data):
    text = data.draw(good_text(column))
    decoded = column.decode(column.encode([text])[0])
    (value,) = decoded
    assert decoded.name == column.name
    if text == "":
        assert pd.isna(value)
    elif isinstance(column, Boolean):
        assert bool(value) == (text.lower() in ("true", "t", "yes", "y", "1"))
    elif isinstance(column, Categorical):
        assert value == text
    elif isinstance(column, Date):
        assert str(value.date()) == text
    else:
        step = getattr(column, "step", None) or 0.0
        assert float(value) == pytest.approx(float(text), rel=1e-12, abs=0.5 * step + 1e-12)


@every_column
@settings(max_examples=15)
@given(cells=st.lists(ANY_CELL, max_size=6))
def test_no_cell_raises_or_warns_and_every_code_is_of_the_column(column: Column, cells):
    codes, status = column.encode(cells)
    assert codes.dtype == np.float64 and codes.shape == status.shape == (len(cells),)
    if not column.missing:
        assert not np.isnan(codes).any()
    present = codes[~np.isnan(codes)]
    low, high = ends(column)
    assert ((low <= present) & (present <= high)).all()
    assert not (np.signbit(present) & (present == 0)).any()  # 0.0 and -0.0 would be two codes for one value


@every_column
def test_a_bad_cell_becomes_the_default_silently(column: Column):
    codes, status = column.encode(["no such thing", b"bytes", object(), []])
    expected = column.default_code
    np.testing.assert_array_equal(bits(codes), bits([expected] * 4))
    assert set(status) == {REPLACED}
    if column.default is not None:
        assert expected == column.encode([column.default])[0][0]
    elif column.missing:
        assert np.isnan(expected)
    else:
        assert expected == ends(column)[0]


@every_column
def test_a_missing_cell_is_a_value_where_declared_and_else_the_default(column: Column):
    codes, status = column.encode(["", None, np.nan, pd.NA, pd.NaT, np.datetime64("NaT", "s")])
    expected = np.nan if column.missing else column.default_code
    np.testing.assert_array_equal(bits(codes), bits([expected] * 6))
    assert set(status) == {KEPT if column.missing else REPLACED}


def test_values_out_of_bounds_and_infinities_are_clamped():
    """Bounds -2.5 and 1000."""
    column = COLUMNS[0]
    codes, status = column.encode(["−3", "inf", -np.inf, 1e308, "1e999", 10**400, "−2.5", 1000])  # U+2212
    np.testing.assert_array_equal(codes, [-2.5, 1000, -2.5, 1000, 1000, 1000, -2.5, 1000])
    np.testing.assert_array_equal(status, [CLAMPED] * 6 + [KEPT] * 2)
    typed, status = column.encode(np.array([np.inf, -np.inf, 1e308, 5.0]))
    np.testing.assert_array_equal(typed, [1000, -2.5, 1000, 5])
    np.testing.assert_array_equal(status, [CLAMPED] * 3 + [KEPT])
    wide = np.array([np.longdouble("1e4000"), np.longdouble("0.5")])
    assert Real(name="r", lower=0, upper=1).encode(wide)[0].tolist() == [1, 0.5]
    date = Date(name="d", lower="2000-01-01", upper="2000-01-03")
    np.testing.assert_array_equal(date.encode(["1999-12-31", "2000-01-02", "2999-01-01"])[0], [10957, 10958, 10959])


def test_whole_columns_round_and_stay_within_fractional_bounds():
    column = Integer(name="i", lower=0.5, upper=3.5)
    codes, status = column.encode(["0", "0.9", "2.4", "2.6", "9", "-0.3"])
    np.testing.assert_array_equal(codes, [1, 1, 2, 3, 3, 1])
    np.testing.assert_array_equal(status, [CLAMPED, KEPT, KEPT, KEPT, CLAMPED, CLAMPED])


def test_levels_dates_and_words_are_encoded_as_their_text_says():
    assert Categorical(name="c", levels=("a", "13")).encode(["13", 13, 13.0, " a "])[0].tolist() == [1, 1, 1, 0]
    assert Categorical(name="c", levels=("NA", "b")).encode(["NA", "b"])[0].tolist() == [0, 1]
    assert Boolean(name="b").encode(["Yes", "N", True, np.True_, 1, 0.0, "TRUE"])[0].tolist() == [1, 0, 1, 1, 1, 0, 1]
    day = datetime.date(1970, 1, 11)
    cells = [day, str(day), f"{day} 23:59:59", datetime.datetime(1970, 1, 11, 5), pd.Timestamp(day), np.datetime64(day)]
    assert Date(name="d", lower="1970-01-01", upper="1980-01-01").encode(cells)[0].tolist() == [10] * 6


# ---------------------------------------------------------------- typed and written cells agree


def test_the_text_of_a_cell_is_the_same_whatever_type_it_has():
    assert [text_of(cell) for cell in (13, 13.0, np.int8(13), np.float32(13), decimal.Decimal("13.0"))] == ["13"] * 5
    assert [text_of(cell) for cell in (None, np.nan, pd.NA, pd.NaT, decimal.Decimal("sNaN"), "")] == [""] * 6
    assert [text_of(cell) for cell in (0.1, -0.0, True, np.False_, 1e300)] == ["0.1", "0", "True", "False", "1e+300"]
    assert text_of(b"a") is None and text_of([1]) is None
    assert Ordinal(name="o", levels=(1, 2.0, "x")).levels == ("1", "2", "x")


@every([c for c in COLUMNS if isinstance(c, Real | Integer)], of="column")
@given(values=st.lists(st.floats(width=64), min_size=1, max_size=6))
def test_numbers_mean_the_same_as_text_as_objects_and_as_arrays(column: Column, values):
    typed = bits(column.encode(np.array(values))[0])
    for cells in (
        values, [repr(v) if v == v else "" for v in values], np.array(values, dtype=object), pd.Series(values),
        pd.Series(values, dtype="Float64"), pd.Series(values, dtype=object), pd.Series(values).astype("category"),
        [decimal.Decimal(v) for v in values],
    ):  # fmt: skip
        np.testing.assert_array_equal(bits(column.encode(cells)[0]), typed)


@every_column
@settings(max_examples=15)
@given(data=st.data())
def test_text_means_the_same_in_every_container(column: Column, data):
    texts = data.draw(st.lists(good_text(column), min_size=1, max_size=6))
    expected = bits(column.encode(texts)[0])
    for cells in (
        np.array(texts, dtype=object), np.array(texts), pd.Series(texts), pd.Series(texts, dtype=object),
        pd.Series(texts).astype("category"), pd.Series([*texts, 7], dtype=object)[:-1], tuple(texts),
    ):  # fmt: skip
        np.testing.assert_array_equal(bits(column.encode(cells)[0]), expected)


@every(["int8", "uint16", "int64", "float32", "float64", "Int64", "Float32", "bool", "boolean", "category", "object"], of="dtype")
def test_zero_and_one_mean_the_same_in_every_dtype(dtype: str):
    cells = pd.Series([1, 0, 1]).astype(dtype)
    assert Boolean(name="b").encode(cells)[0].tolist() == [1, 0, 1]
    if dtype not in ("bool", "boolean"):
        assert Integer(name="i", lower=-5, upper=5).encode(cells)[0].tolist() == [1, 0, 1]
        assert Categorical(name="c", levels=("0", "1")).encode(cells)[0].tolist() == [1, 0, 1]


def test_dates_mean_the_same_in_every_dtype():
    column = Date(name="d", lower="1999-01-01", upper="2031-01-01", missing=True)
    texts = ["2020-02-29", "", "1999-01-01"]
    expected = bits(column.encode(texts)[0])
    stamps = np.array(["2020-02-29", "NaT", "1999-01-01"], dtype="datetime64[D]")
    zoned = pd.to_datetime(pd.Series(texts)).dt.tz_localize("UTC")
    for cells in (stamps, stamps.astype("datetime64[ns]"), pd.Series(stamps), zoned):
        np.testing.assert_array_equal(bits(column.encode(cells)[0]), expected)


# ---------------------------------------------------------------- a cell means the same whatever the other cells are


@every_column
@settings(max_examples=15)
@given(data=st.data())
def test_other_cells_never_change_what_a_cell_means(column: Column, data):
    cell = data.draw(good_text(column) | ANY_CELL)
    others = data.draw(st.lists(good_text(column) | ANY_CELL, max_size=6))
    index = data.draw(st.integers(0, len(others)))
    alone = bits(column.encode([cell])[0])
    among = bits(column.encode([*others[:index], cell, *others[index:]])[0])
    assert among[index] == alone[0]
    reverse = bits(column.encode([*others[::-1], cell])[0])
    assert reverse[-1] == alone[0]


@every_column
def test_a_large_column_encodes_cell_by_cell(column: Column):
    """Vectorised logarithms too: thousands of cells at once, permuted, and one by one."""
    rng = np.random.default_rng(0)
    cells = column.decode(column.draw(4000, rng))
    whole = bits(column.encode(cells)[0])
    order = rng.permutation(len(cells))
    np.testing.assert_array_equal(bits(column.encode(cells.iloc[order])[0]), whole[order])
    for i in range(0, 4000, 97):
        np.testing.assert_array_equal(bits(column.encode(cells.iloc[i : i + 1])[0]), whole[i : i + 1])


def test_a_neighbour_that_changes_the_dtype_changes_nothing():
    column = Integer(name="i", lower=0, upper=2**40)
    for neighbour in (1, 1.5, np.nan, "x", None, True):
        frame = pd.DataFrame({"i": [2**40 - 1, neighbour]})
        assert column.encode(frame["i"])[0][0] == 2**40 - 1


# ---------------------------------------------------------------- domains


MIXED = Domain(tuple(COLUMNS))


def test_a_domain_encodes_and_decodes_its_columns_in_order():
    rows = MIXED.draw(200, 0)
    frame = MIXED.decode(rows)
    assert list(frame) == list(MIXED.names)
    np.testing.assert_array_equal(bits(MIXED.encode(frame[frame.columns[::-1]])), bits(rows))
    np.testing.assert_array_equal(bits(MIXED.encode({name: list(frame[name]) for name in frame})), bits(rows))
    assert MIXED.encode(frame.iloc[:0]).shape == (0, len(MIXED))


def test_draws_cover_the_domain_and_miss_only_where_declared():
    rows = MIXED.draw(2000, 0)
    assert np.flatnonzero(np.isnan(rows).any(axis=0)).tolist() == MIXED.missing_columns
    for j, column in enumerate(COLUMNS):
        low, high = ends(column)
        room = 0.02 * (high - low)
        assert np.nanmin(rows[:, j]) <= low + room and np.nanmax(rows[:, j]) >= high - room


def test_grids_hold_all_of_a_small_column_and_the_public_values_of_a_large_one():
    rng = np.random.default_rng(0)
    assert Integer(name="i", lower=3, upper=9).grid(20, rng).tolist() == [3, 4, 5, 6, 7, 8, 9]
    assert Categorical(name="c", levels=("a", "b", "c")).grid(20, rng).tolist() == [0, 1, 2]
    assert len(Categorical(name="c", levels=tuple(map(str, range(50)))).grid(20, rng)) == 20
    column = Real(name="r", lower=0, upper=100, edges=(10.5,), atoms=(0, 33.3))
    assert set(column.grid(20, rng)) >= {0, 10.5, 33.3}


def test_a_sample_is_encoded_with_notes_and_a_private_table_without():
    domain = Domain((Integer(name="age", lower=0, upper=99), Categorical(name="sex", levels=("F", "M"))))
    frame = pd.DataFrame({"age": [5, 200, 300], "more": 0, "sex": ["F", "X", "M"]})
    rows, counts = domain.encode_counted(frame)
    np.testing.assert_array_equal(rows, domain.encode(frame))
    assert counts.notes() == [
        'ignored columns the release does not have: "more"', "age: 2 of 3 values were outside the bounds and were clamped",
        "sex: 1 of 3 cells had no value of the domain and became its default",
    ]  # fmt: skip
    assert domain.encode_counted(frame.iloc[:1, [0, 2]])[1].notes() == []


AGE = Domain((Integer(name="age", lower=0, upper=99),))


def test_a_column_is_found_by_its_name():
    assert MIXED["integer"] is MIXED.columns[MIXED.position("integer")]


@every_column
def test_the_default_kernel_fits_every_kind(column: Column):
    kernel, rows = table_kernel(Domain((column,))), Domain((column,)).draw(20, 0)
    assert kernel.bound == 1 and np.linalg.eigvalsh(kernel.gram(rows, rows)).min() >= -1e-9 * len(rows)


# ---------------------------------------------------------------- files


def test_a_domain_read_back_is_the_domain_written(tmp_path: Path):
    path = tmp_path / "domain.toml"
    own_numbers = Real(name="r", lower=np.float32(0.5), upper=np.int64(4), atoms=(np.float64(1),), default=np.float64(2))
    for domain in (Domain((*COLUMNS, *TEXTS)), Domain((own_numbers,))):  # numpy's numbers are written as plain ones
        path.write_text(domain_toml(domain, {"real": ["a comment", 'with "quotes"']}), encoding="utf-8")
        assert read_domain(path) == domain == Domain.from_dict(domain.to_dict())
        assert ("# a comment" in path.read_text(encoding="utf-8")) == ("real" in domain.names)


with_a_shape = st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Cn", "Co", "Zl", "Zp"])
may_be_shown = st.text(with_a_shape, min_size=1, max_size=5).filter(lambda t: not (flaw_of(t) or spacing_flaw_of(t)))


@given(levels=st.lists(may_be_shown, min_size=1, max_size=4, unique=True))
def test_any_text_that_may_be_shown_can_be_a_level_in_a_domain_file(levels, tmp_path_factory):
    domain = Domain((Categorical(name=levels[0] if levels[0] != "weight" else "w", levels=tuple(levels)),))
    path = tmp_path_factory.mktemp("domain") / "domain.toml"
    path.write_text(domain_toml(domain), encoding="utf-8", newline="")
    assert read_domain(path) == domain


def test_dates_and_numbers_written_in_toml_are_read_as_cells(tmp_path: Path):
    path = tmp_path / "domain.toml"
    path.write_text(
        '[[column]]\nname = "d"\nkind = "date"\nlower = 2000-01-01\nupper = 2001-01-01\nedges = [2000-06-01]\n'
        '[[column]]\nname = "c"\nkind = "categorical"\nlevels = [1, 2.0, true]\n'
    )
    date, levels = read_domain(path).columns
    assert (date.lower, date.edges, levels.levels) == ("2000-01-01", ("2000-06-01",), ("1", "2", "True"))


# ---------------------------------------------------------------- every check, tripped


def of(**table) -> Column:
    return column_from_dict({"name": "x", **table})


def read(content: bytes | str) -> Domain:
    """The domain of a file with this content, next to a file of codes without parents."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "bare.csv").write_text("code\nx\n", encoding="utf-8")
        path = Path(folder) / "domain.toml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_domain(path)


def tree(entries: str) -> Domain:
    return read(f'[[column]]\nname = "cause"\nkind = "tree"\n{entries}\n')


def drafted_from(digest: str) -> Domain:
    return read(f'{digest}\n[[column]]\nname = "x"\nkind = "boolean"\n')


def test_a_wrong_domain_is_refused_with_what_why_and_hint():
    refusals.check(Path(__file__).parent / "refusals.txt", lambda text: eval(text, globals()))


def test_a_cell_with_a_control_character_is_a_bad_cell_and_no_error():
    encoded, status = Categorical(name="x", levels=("a", "b")).encode(["b", "b\x1b[2J", "\x1b"])
    assert encoded.tolist() == [1.0, 0.0, 0.0]
    assert status.tolist() == [KEPT, REPLACED, REPLACED]


def test_a_real_column_with_a_step_has_its_multiples_for_values():
    """Cells are rounded to them, ranges end between two, and x <= edge and x < edge have an answer each."""
    carat = Real(name="carat", lower=0.2, upper=5.004, step=0.01, edges=(0.5, 1))
    codes, status = carat.encode(["0.57", "0.503", "9", "0.1"])
    assert codes.tolist() == [0.57, 0.5, 5.0, 0.2] and status.tolist() == [KEPT, KEPT, CLAMPED, CLAMPED]
    every = carat.every_value(1000)
    assert every is not None and every.tolist() == [float(f"{k / 100:.2f}") for k in range(20, 501)]
    assert carat.every_value(400) is None and carat.ends == pytest.approx((0.195, 5.005))
    assert np.append(carat.cuts([0.5, 0.493]), carat.cuts_above([0.5, 0.498])) == pytest.approx([0.495, 0.495, 0.505, 0.495])
    assert carat.holds(np.array([0.491, 0.495]), np.array([0.499, 0.499])).tolist() == [False, False]
    price = Real(name="price", lower=0.01, upper=1e6, step=0.01, scale="log")
    assert price.encode(["19.99"])[0].tolist() == [np.log(19.99)] and price.spacing is None
    assert price.decode(np.log([19.991])).tolist() == [19.99]
    for own in (carat, price, Real(name="years", lower=0, upper=40, step=5)):
        drawn = own.draw(200, np.random.default_rng(0))
        assert np.array_equal(own.rounded(drawn), drawn)
        assert column_from_dict(own.to_dict()) == own
    asked = cuts_of([("carat", "<=", 0.5), ("carat", "<", 0.5)], Domain((carat,)))
    assert sorted(asked[0]) == pytest.approx([0.495, 0.505])
    last = Real(name="less", lower=-9.2, upper=0.9199999999999999, step=0.01)  # as arithmetic leaves it
    assert last.encode(["0.92"])[0].tolist() == [0.92] and (last.lower, last.upper) == (-9.2, 0.92)
    assert (Real(name="x", lower=1e-13, upper=1, step=0.01).lower, Real(name="x", lower=0.005, upper=1, step=0.01).lower) == (
        0,
        0.005,
    )


@pytest.mark.parametrize("scale", ["log", "log1p"])
def test_a_number_on_a_scale_comes_back_as_it_was_written(scale):
    """Several numbers have one logarithm: else an atom of 10 comes back as 10.000000000000002, and is above 10."""
    written = np.unique(np.concatenate([np.arange(1, 3000) * unit for unit in (0.01, 1, 10_000.5)]).round(2))
    own = Real(name="x", lower=0.01, upper=float(written[-1]), scale=scale)
    assert np.array_equal(own.decode(own.encode(written)[0]).to_numpy(), written)


def test_codes_for_missing_cells_are_missing_in_every_table_and_only_there(tmp_path: Path):
    """Whatever type the cells have; the default where missing is not declared; and the file's reader knows them."""
    domain = Domain((
        Integer(name="age", lower=0, upper=110, missing=True, missing_codes=(-9, 999)),
        Categorical(name="sex", levels=("F", "M"), missing_codes=("NA", 7), recode=(("male", "M"),)),
        Date(name="left", lower="2024-01-01", upper="2024-12-31", missing=True, missing_codes=("9999-12-31",), format="%d.%m.%Y"),
    ))  # fmt: skip
    nan, day = np.nan, 19861.0
    table = {
        "age": ["41", "-9", " 999.0"], "sex": ["male ", "NA", "7"], "left": ["18.05.2024", "9999-12-31", "2024-05-18"],
    }  # fmt: skip
    wanted = np.array([[41, 1, day], [nan, 0, nan], [nan, 0, day]])
    assert np.array_equal(domain.encode(table), wanted, equal_nan=True)
    typed = pd.DataFrame(table | {"age": [41, -9, 999]})
    rows, counts = domain.encode_counted(typed)
    assert np.array_equal(rows, wanted, equal_nan=True) and counts.replaced == {"sex": 2} and not counts.clamped
    (tmp_path / "d.toml").write_text(domain_toml(domain), encoding="utf-8")
    assert read_domain(tmp_path / "d.toml") == domain and Domain.from_dict(domain.to_dict()) == domain
    assert np.array_equal(domain.encode(domain.decode(wanted)), wanted, equal_nan=True)


def test_a_code_is_compared_as_a_number_where_cells_are_numbers_alone():
    level = Categorical(name="zip", levels=("007", "x"), missing=True, missing_codes=(7,))
    cells = ["007", "7", "7.0", "7.00", "x"]
    assert np.array_equal(level.encode(level.without_codes(cells))[0], [0, np.nan, np.nan, np.nan, 1], equal_nan=True)
    number = Integer(name="n", lower=10, upper=20, missing=True, missing_codes=("7",))
    assert np.isnan(number.encode(number.without_codes(["007", "7.00", " 7e0"]))[0]).all()
