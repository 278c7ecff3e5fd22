"""points.csv: what is written is read back to the last bit, and what does not fit the domain is refused."""

from __future__ import annotations

import csv
import io
import locale
from collections.abc import Callable

import file_tools
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Cyclic, Date, Integer, Real
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.file import archive, write_release
from kmeanalyst.releases.file import points as points_module
from kmeanalyst.releases.file.limits import USUAL
from kmeanalyst.releases.file.points import cells_of_a_row

# ---------------------------------------------------------------------- what is written is read back

EXTREMES = [-0.0, 0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 7.976931348623157e307, -1e300, 0.1, 1 / 3, 2**53 + 2.0]
EVERY_KIND = Domain((
    Real(name="real", lower=-8e307, upper=8e307),
    Real(name='odd "name", with a comma', lower=1e-300, upper=1e300, scale="log", missing=True),
    Integer(name="integer", lower=-(2**53), upper=2**53, missing=True), Integer(name="whole", lower=0, upper=9),
    Categorical(name="levels", levels=("NA", "nan", "NULL", "a,b", '"', '""', "13", "-", "=1+1", "true", "é😀"), missing=True),
    Ordinal(name="ordinal", levels=("no", "yes")), Boolean(name="truth"), Boolean(name="truth or none", missing=True),
    Date(name="day", lower="0001-01-01", upper="9999-12-31"),
    Date(name="day or none", lower="1900-01-01", upper="2100-01-01", missing=True),
    Cyclic(name="hour", lower=0, upper=24), Text(name="text", length=30, alphabet='ab ",😀', unknown="b"),
    Text(name="text or none", length=4, alphabet="ab", missing=True),
    Text(name="text with default", length=4, alphabet="ab", default="a"),
))  # fmt: skip


def read_back(release: Release, folder) -> Release:
    write_release(release, folder / "a.kme")
    return read_release(folder / "a.kme")


def test_cells_of_every_kind_come_back_to_the_last_bit(tmp_path):
    """Drawn cells, and extremes where the column allows them."""
    points = EVERY_KIND.decode(EVERY_KIND.draw(500, 1))
    points["real"] = np.resize(np.array(EXTREMES), 500)
    points["integer"] = pd.array(np.resize(np.array([2**53, -(2**53), 2**53 - 1, 0, -1]), 500), dtype="Int64")
    points.loc[3, "integer"] = pd.NA
    points.loc[0, "text"] = ""
    points.loc[1, "text"] = ' "a", '
    release = file_tools.bare(points, np.resize(np.array(EXTREMES), 500), EVERY_KIND)
    read = read_back(release, tmp_path)
    file_tools.same(release, read)
    assert read.frame["real"].to_numpy().tobytes() == points["real"].to_numpy().tobytes()  # the sign of zero too


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False)),
                min_size=1, max_size=50))  # fmt: skip
def test_every_float_comes_back_to_the_last_bit(tmp_path_factory, pairs):
    domain = Domain((Real(name="real", lower=-1.7976931348623157e308, upper=1.7976931348623157e308),))
    cells, weights = np.array(pairs).T.copy()
    read = read_back(file_tools.bare(pd.DataFrame({"real": cells}), weights, domain), tmp_path_factory.mktemp("floats"))
    assert read.frame["real"].to_numpy().tobytes() == cells.tobytes()
    assert read.weights.tobytes() == weights.tobytes()


def test_an_empty_cell_is_missing_or_the_empty_string_as_the_domain_has_it(tmp_path):
    points = EVERY_KIND.decode(EVERY_KIND.draw(2, 1))
    points.loc[0, ["text", "text or none"]] = ["", None]
    read = read_back(file_tools.bare(points, np.ones(2), EVERY_KIND), tmp_path)
    line = file_tools.rows_of(file_tools.members_of(tmp_path / "a.kme")["points.csv"])[1]
    assert line[EVERY_KIND.names.index("text")] == line[EVERY_KIND.names.index("text or none")] == ""
    assert read.frame.loc[0, "text"] == "" and pd.isna(read.frame.loc[0, "text or none"])


def test_points_are_csv_that_the_csv_module_and_pandas_read(mixed_path, mixed_release):
    data = file_tools.members_of(mixed_path)["points.csv"]
    assert data.endswith(b"\n") and b"\r" not in data
    table = pd.read_csv(io.BytesIO(data), keep_default_na=False, na_values=[""])
    assert list(table) == [*mixed_release.domain.names, "weight"] == file_tools.rows_of(data)[0]
    assert [name for name in table if table[name].isna().any()] == [
        "children", "capital.gain", "school", "insured", "left",
    ]  # fmt: skip
    np.testing.assert_allclose(table["weight"], mixed_release.weights, rtol=1e-15)
    assert [float(row[-1]) for row in file_tools.rows_of(data)[1:]] == mixed_release.weights.tolist()
    assert table["city"].tolist() == mixed_release.to_frame()["city"].astype(object).tolist()


def quoting_all(data: bytes) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(file_tools.rows_of(data))
    return out.getvalue().encode()


OTHER_WRITERS: dict[str, file_tools.Forgery] = {
    "every cell in quotation marks": file_tools.edited_bytes(quoting_all),
    "numbers with an exponent": file_tools.edited_points(file_tools.with_cells("income", lambda cell: format(float(cell), ".17e"))),
    "numbers with more digits": file_tools.edited_points(file_tools.with_cells("weight", lambda cell: format(float(cell), ".40f"))),
    "leading zeros": file_tools.edited_points(file_tools.with_cells("age", lambda cell: f"00{cell}")),
}  # fmt: skip


@pytest.mark.parametrize("writer", OTHER_WRITERS)
def test_points_as_other_writers_may_write_them_are_read(writer, mixed_path, mixed_release):
    mixed_path.write_bytes(file_tools.forged(mixed_path, OTHER_WRITERS[writer]))
    file_tools.same(mixed_release, read_release(mixed_path))


def test_points_in_many_blocks_are_read(mixed_path, mixed_release, monkeypatch):
    monkeypatch.setattr(archive, "BLOCK", 700)
    file_tools.same(mixed_release, read_release(mixed_path))


def test_reading_does_not_depend_on_the_locale(mixed_path, mixed_release):
    before = locale.setlocale(locale.LC_ALL)
    for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "C"):
        try:
            locale.setlocale(locale.LC_ALL, name)
            file_tools.same(mixed_release, read_release(mixed_path))
        except locale.Error:  # not installed here
            continue
        finally:
            locale.setlocale(locale.LC_ALL, before)


UNBOUND, EMPTY = "values outside its bounds", "it has empty cells, and the domain declares no missing value"
WRITTEN, OTHER = "is not written as its kind is", "has other columns than declared"
QUOTES = "a quotation mark that does not enclose a cell on one line"
CONTROL = "it has a control character; lines end with U\\+000A"
RAGGED = f"{file_tools.SENSELESS}.*Expected 11 columns"


def lines(edit: Callable[[list[file_tools.Row]], list[file_tools.Row]]) -> file_tools.Forgery:
    return file_tools.edited_points(edit)


def cell(name: str, value: str) -> file_tools.Forgery:
    return file_tools.edited_points(file_tools.first(name, value))


def replaced(old: bytes, new: bytes) -> file_tools.Forgery:
    return file_tools.edited_bytes(lambda data: data.replace(old, new, 1))


def at_end(more: bytes) -> file_tools.Forgery:
    return file_tools.edited_bytes(lambda data: data + more)


def row(index: int, edit: Callable[[file_tools.Row], file_tools.Row]) -> file_tools.Forgery:
    return file_tools.edited_points(lambda rows: [*rows[:index], edit(rows[index]), *rows[index + 1 :]])


def test_points_that_do_not_fit_the_domain_are_refused(mixed_path, tmp_path):
    write_release(file_tools.bare(EVERY_KIND.decode(EVERY_KIND.draw(9, 1)), np.ones(9), EVERY_KIND), tmp_path / "every.kme")

    def run(edit):
        """An edit of the mixed release, or one that is named with the release of every kind."""
        path, edit = edit if isinstance(edit, tuple) else (mixed_path, edit)
        return file_tools.opened(file_tools.forged(path, edit), tmp_path)

    file_tools.check_refusals("points", run, **globals(), every=tmp_path / "every.kme")


def test_a_line_beyond_the_limit_is_refused(mixed_path, tmp_path, monkeypatch):
    monkeypatch.setattr(points_module, "BLOCK", 200)
    monkeypatch.setattr(archive, "BLOCK", 200)
    file_tools.refused(
        file_tools.forged(mixed_path, cell("city", "x" * 999)), tmp_path, r"points\.csv", "a line of more than 200 bytes",
    )  # fmt: skip


def test_more_cells_or_bytes_than_the_limit_are_refused_before_they_are_read(mixed_path, tmp_path, monkeypatch):
    for n_points, what, why in (
        (250_001, "250001 points", "at most 250000 are read"),
        (250_000, "250000 points of 10 columns", "make 2750000 cells, and at most 2700000 are read"),
    ):
        file_tools.narrow(monkeypatch, cells=2_700_000)
        file_tools.refused(file_tools.forged(mixed_path, file_tools.setting("n_points", to=n_points)), tmp_path, what, why)
    size = len(file_tools.members_of(mixed_path)["points.csv"])
    file_tools.narrow(monkeypatch, points_bytes=size)
    read_release(mixed_path)
    file_tools.narrow(monkeypatch, points_bytes=size - 1)
    file_tools.refused(mixed_path.read_bytes(), tmp_path, rf"points\.csv has {size} bytes", f"at most {size - 1} are read")


def test_what_the_limit_on_cells_allows_fits_the_limit_on_bytes():
    """So that a curator who keeps to the cells spends no budget on a file that readers refuse."""
    levels = Categorical(name="c", levels=("é" * 200, '"' * 200))
    long = Domain((levels, Text(name="t", length=999, alphabet="😀", unknown="😀")))
    longest = len(('"' + "é" * 200 + '",').encode()) + 2 * 200 + 4 * 999 + 3 + 25
    assert longest * (USUAL.cells / cells_of_a_row(long)) < USUAL.points_bytes
    assert cells_of_a_row(Domain((Real(name="x", lower=0, upper=1), Categorical(name="c", levels=("a" * 24,))))) == 3
    assert cells_of_a_row(Domain((Categorical(name="c", levels=("a" * 25,)),))) == 3
