"""From a private table to a release: what a row is, what is guaranteed, and that nothing depends on a private value.

Reading is tested on the exact integer sum (without noise) and on the encoded rows.
"""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kmeanalyst.kernels.base import Array
from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.file import validate_release
from kmeanalyst.releases.measurement import feature_mean
from release_side.private_rows.rows import open_private
from release_side.publishing.methods import METHODS as EVERY_METHOD
from release_side.publishing.methods import MeanMethod
from release_side.publishing.publish import publish

METHODS = sorted({method.name for method in EVERY_METHOD.values() if issubclass(method, MeanMethod)}, reverse=True)
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
SMALL: dict[str, dict[str, Any]] = {
    "random-features": {"points": 20, "features": 100}, "subspace": {"points": 20},
    "generator": {"points": 20, "features": 40, "target": "city"},
}  # fmt: skip
FIRST: dict[str, Any] = {"method": "subspace", **SMALL["subspace"], **BUDGET}


def case(method: str, *more: Any) -> Any:
    """Parameters of a test; a generator needs PyTorch."""
    skipped = method == "generator" and find_spec("torch") is None
    return pytest.param(method, *more, marks=pytest.mark.skipif(skipped, reason="PyTorch is not installed"))


every_method = pytest.mark.parametrize("method", list(map(case, METHODS)))


@pytest.fixture(scope="module")
def domain() -> Domain:
    return Domain((
        Integer(name="age", lower=17, upper=90, default=40),
        Real(name="income", lower=1.0, upper=1e6, scale="log", missing=True),
        Categorical(name="city", levels=("Zürich", "St. Gallen", "Basel, Stadt", "東京")),
        Ordinal(name="school", levels=("none", "some", "degree"), missing=True),
        Boolean(name="married"),
        Date(name="joined", lower="1990-01-01", upper="2024-12-31"),
    ))  # fmt: skip


@pytest.fixture(scope="module")
def frame(domain: Domain) -> pd.DataFrame:
    """300 rows, typed, missing cells among them."""
    return domain.decode(domain.draw(300, np.random.default_rng(1)))


def exact_sum(table: Any, domain: Domain) -> list[int]:
    """The sum that the door adds noise to; needs the fixture no_noise."""
    release = publish(table, domain, method="subspace", points=40, **BUDGET)
    assert release.measurement is not None
    return release.measurement.noisy_sum.tolist()


def encoded(table: Any, domain: Domain) -> Array:
    """Encoded rows (n, d), with as many of them as were counted."""
    opened = open_private(table)
    rows = np.vstack(list(opened.encoded(domain)))
    assert len(rows) == opened.count()
    return rows


def csv_text(frame: pd.DataFrame, **options: Any) -> str:
    return frame.to_csv(index=False, **options)


# ---------------------------------------------------------------------- one table, many containers


def saved(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def as_csv(frame: pd.DataFrame, folder: Path) -> Path:
    return saved(folder / "t.csv", csv_text(frame))


def as_parquet(frame: pd.DataFrame, folder: Path) -> Path:
    frame.to_parquet(folder / "t.parquet")
    return folder / "t.parquet"


def in_parts(frame: pd.DataFrame, folder: Path) -> Path:
    """A folder with a CSV file, a compressed one, a Parquet file, and a file that is not a table."""
    parts = folder / "parts"
    parts.mkdir()
    as_csv(frame[:100], parts)
    saved(parts / "u.csv.gz", gzip.compress(csv_text(frame[100:150]).encode()))
    frame[150:].to_parquet(parts / "v.parquet")
    saved(parts / "README.txt", "not a table")
    return parts


def wider(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns in another order, among others."""
    return frame.assign(extra="x", another=1.5)[["extra", *reversed(frame.columns), "another"]]


BOM = b"\xef\xbb\xbf"
CONTAINERS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "CSV": as_csv,
    "compressed CSV": lambda frame, f: saved(f / "t.CSV.GZ", gzip.compress(csv_text(frame).encode())),
    "CRLF": lambda frame, f: saved(f / "t.csv", csv_text(frame, lineterminator="\r\n")),
    "byte order mark": lambda frame, f: saved(f / "t.csv", BOM + csv_text(frame).encode()),
    "BOM and quotes": lambda frame, f: saved(f / "t.csv", BOM + csv_text(frame, quoting=csv.QUOTE_ALL).encode()),
    "no last newline": lambda frame, f: saved(f / "t.csv", csv_text(frame).removesuffix("\n")),
    "Parquet": as_parquet,
    "parts": in_parts,
    "glob": lambda frame, f: f"{in_parts(frame, f)}/*.[cp]*",
    "CSV, other columns": lambda frame, f: as_csv(wider(frame), f),
    "Parquet, other columns": lambda frame, f: as_parquet(wider(frame), f),
    "frame of texts": lambda frame, f: pd.read_csv(as_csv(frame, f), dtype=str, keep_default_na=False),
    "frame of objects": lambda frame, _: frame.astype(object),
}


def test_the_exact_sum_is_the_same_in_every_container(domain, frame, tmp_path, no_noise):
    expected = exact_sum(frame, domain)
    for container, write in CONTAINERS.items():
        (tmp_path / container).mkdir()
        assert exact_sum(write(frame, tmp_path / container), domain) == expected, container


def test_the_exact_sum_sees_one_cell(domain, frame, no_noise):
    """The power of the test above: a single cell of a single row moves the sum."""
    whole = exact_sum(frame, domain)
    for column in domain.columns:
        values = column.grid(9, np.random.default_rng(0))
        other = next(v for v in values if column.decode(np.array([v]))[0] != frame[column.name][7])
        changed = frame.copy()
        changed.loc[7, column.name] = column.decode(np.array([other]))[0]
        assert exact_sum(changed, domain) != whole, column.name


# ---------------------------------------------------------------------- one line is one row

LINES = [b"age,income,city", b"30,100.5,Basel", b"40,2000,Genf", b"50,,Bern"]


def three_columns() -> Domain:
    return Domain((
        Integer(name="age", lower=17, upper=90, default=77),
        Real(name="income", lower=1, upper=1e6, missing=True),
        Categorical(name="city", levels=("Basel", "Genf", "Bern", "Bern, Stadt"), default="Genf"),
    ))  # fmt: skip


def read_lines(lines: list[bytes], folder: Path, end: bytes = b"\n") -> Array:
    (folder / "lines.csv").write_bytes(b"\n".join(lines) + end)
    return encoded(folder / "lines.csv", three_columns())


DEFAULTS = [77.0, np.nan, 1.0]  # what bad or absent cells become: income's default is missing


ODD_LINES = [
    (LINES[2], [40, 2000, 1]),
    (b'40,2000,"Genf', [40, 2000, 1]),  # an unclosed quote in the last cell
    (b'40,"2000,Genf', [40, np.nan, 1]),  # an unclosed quote takes the rest of its own line
    (b'"40,2000,Bern', DEFAULTS),  # an unclosed quote at the start
    (b'40,2000,"Bern, Stadt"', [40, 2000, 3]),  # a quoted comma
    (b'"40","2000","Basel"', [40, 2000, 0]),  # quoted cells
    (b'40,2000,"B""asel"', [40, 2000, 1]),  # a doubled quote within quotes
    (b"", DEFAULTS),  # a blank line
    (b"\r", DEFAULTS),  # a blank line of another system
    (b"40", [40, np.nan, 1]),  # absent cells
    (b"40,2000,Basel,7,8,9", [40, 2000, 0]),  # superfluous cells
    (b"40,2000,Bas\xffel", [40, 2000, 1]),  # an undecodable byte in a level
    (b"4\xff0,2000,Basel", [77, 2000, 0]),  # an undecodable byte in a number
    (b'4\xfe0,"2000",Basel', [77, 2000, 0]),  # an undecodable byte next to quotes
    (b"\xff no cell,2000,Basel", [77, 2000, 0]),  # bytes like the mark of an absent cell
    (b"40\r,2000,Basel\r", [40, 2000, 0]),  # a carriage return within the line
    (b"4\x000,2000,Basel", [77, 2000, 0]),  # a NUL
    (b'4\x000,"2000",Basel', [77, 2000, 0]),  # a NUL next to quotes
    (b"40,2000,\xe2\x80\xa8Basel", [40, 2000, 0]),  # a line separator that is not a newline
    (b"40,inf,Basel", [40, 1e6, 0]),  # an infinite number
    (b"40," + b"9" * 200_000 + b",Basel", [40, 1e6, 0]),  # a huge cell
    (b'40,"' + b"9" * 200_000 + b'",Basel', [40, np.nan, 0]),  # a huge quoted cell
    (b"40,2000," + b"x" * 200_000, [40, 2000, 1]),  # a huge text
    (b'40,2000,"' + b"x" * 200_000, [40, 2000, 1]),  # a huge unclosed text
    (b'"' * 200_001, DEFAULTS),  # a line of quotes
    (b"," * 200_000, [77, np.nan, 1]),  # a line of commas
]  # fmt: skip


def test_a_line_changes_its_own_row_alone(tmp_path):
    for line, row in ODD_LINES:
        expected = [[30, 100.5, 0], row, [50, np.nan, 2]]
        np.testing.assert_array_equal(read_lines([*LINES[:2], line, LINES[3]], tmp_path), expected)


def test_quotes_that_could_span_lines_swallow_no_rows(tmp_path):
    """Read as ordinary CSV, these two quotes would make one cell of three rows."""
    lines = [LINES[0], b'30,1,"Basel', b"40,2,Genf", b'50,3,Bern"']
    assert len(pd.read_csv(io.BytesIO(b"\n".join(lines)))) == 1
    np.testing.assert_array_equal(read_lines(lines, tmp_path), [[30, 1, 0], [40, 2, 1], [50, 3, 1]])


# ---------------------------------------------------------------------- what publish returns

WEIGHTS = {
    "random-features": ["probability", "bounded", "signed"], "subspace": ["probability", "bounded", "signed", "published"],
    "generator": ["probability"],
}  # fmt: skip
CASES = [case(method, weights) for method in METHODS for weights in WEIGHTS[method]]


def published(method: str, frame: pd.DataFrame, domain: Domain, **options: Any) -> Release:
    return publish(frame, domain, method=method, **({**SMALL[method], **BUDGET} | options))


@pytest.mark.parametrize(("method", "weights"), CASES)
def test_every_method_and_weights_give_a_release_with_a_true_statement(method, weights, domain, frame, tmp_path):
    release = published(method, frame, domain, weights=weights)
    statement, measurement = release.statement, release.measurement
    assert statement is not None and measurement is not None
    statement.check_arithmetic()
    assert (statement.epsilon, statement.delta, statement.n_rows) == (1.0, 1e-6, 300)
    how = (statement.neighbouring, statement.mechanism, statement.calibration)
    assert how == ("replace-one", "discrete gaussian", "analytic")
    assert statement.noise_scale == measurement.noise_scale
    assert statement.public_points == 0
    assert set(statement.versions) >= {"python", "kmeanalyst", "numpy", "opendp", "dp-accounting"}
    public_facts = "; ".join(statement.taken_as_public)
    for public in ("number of rows", "names of the columns", "bounds", "levels", "kernel", "lengthscales", "sizes"):
        assert public in public_facts
    assert ("frequencies" in public_facts) == (method != "subspace")
    assert (release.method, release.weight_view, len(release)) == (method, weights, 20)
    if weights == "probability":
        assert release.weights.min() >= 0 and release.weights.sum() == pytest.approx(1.0, abs=1e-9)

    fitted = feature_mean(measurement.feature_map, release.encoded_points, release.weights)
    assert release.fit_distance == pytest.approx(float(np.linalg.norm(fitted - measurement.vector)), rel=1e-9)
    rows, counts = domain.encode_counted(release.to_frame().drop(columns="weight"))
    assert counts.notes() == []  # nothing is clamped and no level is unseen: the points are in the domain
    np.testing.assert_array_equal(rows, release.encoded_points)

    release.write(tmp_path / "a.kme")
    assert validate_release(tmp_path / "a.kme") == []


def test_bounded_and_signed_weights_keep_their_bound(domain, frame):
    limits = (("bounded", None, 1.0), ("bounded", 0.5, 0.5), ("signed", None, 2.0), ("signed", 0.25, 0.25))
    for method in (method for method in METHODS if "signed" in WEIGHTS[method]):
        for weights, bound, limit in limits:
            release = published(method, frame, domain, weights=weights, bound=bound)
            assert 0.2 * limit <= np.abs(release.weights).sum() <= limit * (1 + 1e-9)  # and they are not all zero


def test_published_weights_reproduce_the_measurement_without_a_bound(domain, frame):
    """L⁻ᵀβ: the points' weighted features are the noisy mean itself, up to rounding."""
    release = published("subspace", frame, domain, weights="published")
    assert release.fit_distance == pytest.approx(0.0, abs=1e-9)
    assert not release.is_probability


def test_the_domain_and_the_table_may_be_paths(domain, frame, tmp_path, no_noise):
    (tmp_path / "domain.toml").write_text(domain_toml(domain), encoding="utf-8")
    by_path = publish(as_csv(frame, tmp_path), tmp_path / "domain.toml", **FIRST)
    by_value = publish(frame, domain, **FIRST)
    assert by_path.domain == by_value.domain
    np.testing.assert_array_equal(by_path.measurement.noisy_sum, by_value.measurement.noisy_sum)


def test_progress_is_reported_in_shares_that_end_at_one(domain, frame):
    seen: list[tuple[str, float]] = []
    published("random-features", frame, domain, progress=lambda what, share: seen.append((what, share)))
    for what in ("reading rows", "placing points"):
        shares = [share for step, share in seen if step == what]
        assert shares == sorted(shares) and shares[-1] == 1.0


# ---------------------------------------------------------------------- public rows and public choices


def test_public_rows_are_the_points_of_a_subspace_and_the_statement_counts_them(domain, frame, tmp_path):
    public = frame[:30].astype(object)
    public.loc[0, ["age", "income", "city"]] = [200, 1e9, "Atlantis"]
    release = publish(frame, domain, method="subspace", public_points=public, **BUDGET)
    np.testing.assert_array_equal(release.encoded_points, domain.encode(public))
    assert release.encoded_points[0, :3].tolist() == [90, pytest.approx(np.log(1e6)), 0], "clamped to the domain"
    assert release.statement.public_points == 30
    assert any("30 rows given as public points" in fact for fact in release.statement.taken_as_public)
    fewer = publish(frame, domain, method="subspace", public_points=as_csv(public, tmp_path), points=12, **BUDGET)
    np.testing.assert_array_equal(fewer.encoded_points, domain.encode(public[:12]))
    assert fewer.statement.public_points == 12


def test_public_rows_that_only_start_the_points_are_named_but_not_counted_as_points(domain, frame):
    release = published("random-features", frame, domain, public_points=frame[:10])
    assert len(release) == 20
    assert release.statement.public_points == 0
    assert any("given as public" in fact for fact in release.statement.taken_as_public)
    without = published("random-features", frame, domain)
    assert not any("given as public" in fact for fact in without.statement.taken_as_public)


def test_frequencies_come_from_the_domain_the_kernel_and_the_size_alone(domain, frame):
    def frequencies(table: pd.DataFrame, of: Domain, **changes: Any) -> dict[str, Array]:
        return published("random-features", table, of, **changes).measurement.feature_map.arrays()

    def same(a: dict[str, Array], b: dict[str, Array]) -> bool:
        return all(np.array_equal(a[name], b[name], equal_nan=True) for name in a)

    first = frequencies(frame, domain)
    assert same(first, frequencies(frame[::-1][:200], domain, epsilon=0.5, points=7))
    wider = Domain((Integer(name="age", lower=17, upper=91, default=40), *domain.columns[1:]))
    assert not same(first, frequencies(frame, wider))
    renamed = Domain((Integer(name="years", lower=17, upper=90, default=40), *domain.columns[1:]))
    assert not same(first, frequencies(frame.rename(columns={"age": "years"}), renamed))


def test_drawn_points_and_kernels_come_from_the_domain_alone(domain, frame):
    first, again = publish(frame, domain, **FIRST), publish(frame[:100], domain, **FIRST)
    np.testing.assert_array_equal(first.encoded_points, again.encoded_points)
    assert first.kernel == again.kernel
    wider = Domain((Integer(name="age", lower=17, upper=150, default=40), *domain.columns[1:]))
    other = publish(frame, wider, **FIRST)
    assert other.kernel != first.kernel
    assert not np.array_equal(other.encoded_points[:, 1:], first.encoded_points[:, 1:], equal_nan=True)


@every_method
def test_the_noise_is_fresh_for_every_publication(method, domain, frame):
    sums = [published(method, frame, domain).measurement.noisy_sum for _ in range(2)]
    assert (sums[0] != sums[1]).all()  # a tie of one coordinate has a probability below 1e-7


# ---------------------------------------------------------------------- nothing depends on a private value

SECRET = "Sécret-4711"
HOSTILE_TEXTS = ["", " ", "NaN", "inf", "-inf", "1e308", "-1e999", "9" * 5000, "1_000", "٣", "😀", "\x00", "null", "<NA>",
                 "2024-02-30", "99999-01-01", "0000-00-00", '"', "''", "=1+1", "'; DROP TABLE", "\u202e", SECRET]  # fmt: skip
HOSTILE_CELLS = [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 10**400, None, pd.NA, pd.NaT, [], [1, [2]], {}, {"a": 1},
                 set(), b"bytes", object(), 1 + 2j, np.array([1, 2]), np.array(3.0), True, np.float16(1), "\ud800", SECRET,
                 pd.Timestamp("1700-01-01"), np.datetime64("NaT", "s"), pd.Timedelta(days=3),
                 np.timedelta64(3, "D"), np.longdouble("1e4000"), len]  # fmt: skip


def one_of_each_kind() -> Domain:
    columns: list[Column] = [
        Real(name="real", lower=-1, upper=1), Real(name="log", lower=1, upper=1e6, scale="log", missing=True),
        Integer(name="integer", lower=0, upper=99), Categorical(name="city", levels=("Basel", "Genf")),
        Ordinal(name="school", levels=("none", "some"), missing=True), Boolean(name="married"),
        Date(name="joined", lower="2000-01-01", upper="2020-12-31"),
    ]  # fmt: skip
    return Domain(tuple(columns))


def hostile_frame(cells: list[Any]) -> pd.DataFrame:
    """Every cell in every column, and fifty ordinary rows around them."""
    domain = one_of_each_kind()
    ordinary = domain.decode(domain.draw(50, 0)).astype(object)
    hostile = pd.DataFrame({name: pd.Series(cells, dtype=object) for name in domain.names})
    return pd.concat([ordinary, hostile], ignore_index=True)


def hostile_csv(folder: Path) -> Path:
    lines = [",".join([text.replace("\n", " ")] * 7).encode() for text in HOSTILE_TEXTS]
    names = ",".join(one_of_each_kind().names).encode()
    odd = [b"\xff\xfe,\xc3", b'"', b"", bytes(range(14, 256))]
    return saved(folder / "h.csv", b"\n".join([names, *lines, *odd]))


def hostile_parquet(folder: Path) -> Path:
    """Numbers beyond every bound, days beyond the calendar, and text that is not UTF-8."""
    broken = pa.array([b"\xff\xfe", b"\xc3\x28", b"a"]).view(pa.string())
    columns = {
        "real": pa.array([1e308, None, np.inf], pa.float64()), "log": pa.array([2**62, None, -(2**62)], pa.int64()),
        "integer": pa.array([2**64 - 1, None, 0], pa.uint64()), "city": broken,
        "school": pa.array(["none", None, "\0"]).dictionary_encode(), "married": pa.array([2**31 - 1, None, 0], pa.int32()),
        "joined": pa.array([2**31 - 1, None, -(2**31)], pa.date32()),
    }  # fmt: skip
    pq.write_table(pa.table(columns), folder / "h.parquet")
    return folder / "h.parquet"


def wild_timestamps(folder: Path) -> Path:
    wild = pa.array([2**62, None, -(2**62)], pa.timestamp("us", tz="Europe/Berlin"))
    columns = dict.fromkeys(one_of_each_kind().names, pa.nulls(3)) | dict.fromkeys(("city", "school", "joined"), wild)
    pq.write_table(pa.table(columns), folder / "h.parquet")
    return folder / "h.parquet"


HOSTILE_TABLES: list[Callable[[Path], Any]] = [
    hostile_csv, hostile_parquet, wild_timestamps,
    lambda folder: hostile_frame(HOSTILE_TEXTS), lambda folder: hostile_frame(HOSTILE_CELLS),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "table"),
    [
        *(case("random-features", table) for table in HOSTILE_TABLES),
        *(case(method, hostile_csv) for method in METHODS if method != "random-features"),
    ],
)
def test_no_cell_raises_warns_or_prints(method, table, tmp_path, capfd, caplog):
    """Warnings are errors here (pyproject.toml)."""
    release = published(method, table(tmp_path), one_of_each_kind(), target=None)
    release.write(tmp_path / "h.kme")
    assert np.isfinite(release.weights).all() and np.isfinite(release.measurement.vector).all()
    assert capfd.readouterr() == ("", "") and caplog.records == []


def test_one_hostile_cell_changes_its_own_row_alone():
    """The cell's row is in the domain, and the others do not change."""
    domain = one_of_each_kind()
    ordinary = encoded(hostile_frame([]), domain)
    for cell in HOSTILE_CELLS:
        rows = encoded(hostile_frame([cell]), domain)
        np.testing.assert_array_equal(rows[:50], ordinary)
        _, counts = domain.encode_counted(domain.decode(rows))
        assert [note for note in counts.notes() if "became its default" in note] == []


def contents(path: Path) -> str:
    """The whole content of a file: its bytes, its header and its points, inflated."""
    with zipfile.ZipFile(path) as archive:
        raw = path.read_bytes().decode("latin-1") + archive.read("release.json").decode()
        return raw + archive.read("points.csv").decode()


@every_method
def test_a_secret_in_a_cell_leaves_no_trace(method, domain, frame, tmp_path, capfd):
    """In columns of levels and numbers, and in a column outside the domain."""
    secret = frame.astype(object).assign(diary=SECRET)
    secret.loc[3, ["city", "school"]] = SECRET
    secret.loc[4, ["age", "income", "joined"]] = SECRET
    release = published(method, as_csv(secret, tmp_path), domain)
    release.write(tmp_path / "s.kme")
    back = read_release(tmp_path / "s.kme")
    seen = contents(tmp_path / "s.kme") + repr(back) + back._repr_html_() + "".join(capfd.readouterr())
    for trace in (SECRET, SECRET.encode().decode("latin-1"), "cret-4711", "diary"):
        assert trace not in seen
    assert "Gallen" in seen  # the public levels are there, so a trace would be seen
