"""A private table is refused as its own public points, pivots or sample, under any name and in any form.

The released file holds public points unchanged, so a private table that passed as public would be published.
"""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.domain import Domain, domain_toml, read_domain
from kmeanalyst.releases.domain.numbers import Integer, Real
from release_side import draft_domain, publish, publish_function
from release_side.budget.ledger import Ledger
from release_side.choices.public_inputs import refuse_private_as_public, samples_of
from release_side.door.mechanism import PublishError
from release_side.private_rows import csv_file
from release_side.private_rows.rows import open_private

Pair = tuple[Any, Any]  # a private table and public rows
REFUSED = r"the public points are the private table itself: .* would be in the release .*\. Name a file of rows"
DOMAIN = Domain((Integer(name="age", lower=17, upper=90), Real(name="wage", lower=0, upper=100)))


def table(n: int = 40, seed: int = 0) -> pd.DataFrame:
    """Rows whose CSV has the same number of bytes for every seed."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"age": rng.integers(20, 90, n), "wage": [f"{w:.3f}" for w in rng.uniform(10, 99, n)]})


def compare(private: Any, public: Any, domain: Domain = DOMAIN) -> None:
    """Refuse public rows that are the private table; nothing is published."""
    refuse_private_as_public(open_private(private), public, domain)


def write(path: Path, frame: pd.DataFrame | None = None) -> Path:
    """A file of these rows, by default those of `table`."""
    frame = table() if frame is None else frame
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(".parquet"):
        frame.to_parquet(path)
    elif path.name.endswith(".gz"):
        path.write_bytes(gzip.compress(frame.to_csv(index=False).encode(), mtime=0))
    else:
        frame.to_csv(path, index=False)
    return path


# ---------------------------------------------------------------------- (private, public) that are one table


def twice(source: Any) -> Pair:
    return source, source


def made_from(path: Path, name: str, make: Callable[[Path, Path], Any]) -> Pair:
    """A file or folder, and another that `make` makes from it."""
    make(path, path.with_name(name))
    return path, path.with_name(name)


def compressed_again(path: Path, other: Path) -> None:
    other.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1))


def folder_in(folder: Path) -> Path:
    return write(folder / "t.parquet" / "a.parquet").parent


def two_files(folder: Path) -> Path:
    write(folder / "t.parquet" / "b.parquet", table(seed=1))
    return folder_in(folder)


def one_file_in_common(folder: Path) -> Pair:
    for seed, name in enumerate(("t/a.parquet", "t/b.parquet", "other.parquet/c.parquet")):
        write(folder / name, table(seed=seed))
    shutil.copy(folder / "t" / "b.parquet", folder / "other.parquet" / "d.parquet")
    return folder / "t", folder / "other.parquet"


def linked_folder(folder: Path) -> Pair:
    write(folder / "t" / "a.parquet")
    write(folder / "other.parquet" / "b.parquet", table(seed=1))
    (folder / "other.parquet" / "more").symlink_to(folder / "t", target_is_directory=True)
    (folder / "t" / "back").symlink_to(folder / "other.parquet", target_is_directory=True)  # a loop
    return folder / "t", folder / "other.parquet"


def name_without_an_ending(folder: Path) -> Pair:
    (folder / "other.parquet").mkdir()
    shutil.copy(write(folder / "t.parquet"), folder / "other.parquet" / "part-0")
    return folder / "t.parquet", folder / "other.parquet"


SAME: dict[str, Callable[[Path], Pair]] = {
    "the file": lambda f: twice(write(f / "t.csv")),
    "a hard link": lambda f: made_from(write(f / "t.csv"), "linked.csv", os.link),
    "a symbolic link": lambda f: made_from(write(f / "t.csv"), "linked.csv", os.symlink),
    "a copy": lambda f: made_from(write(f / "t.csv"), "other.csv", shutil.copy),
    "a Parquet copy": lambda f: made_from(write(f / "t.parquet"), "other.parquet", shutil.copy),
    "a compressed copy": lambda f: (write(f / "t.csv"), write(f / "t.csv.gz")),
    "a plain copy of a compressed file": lambda f: (write(f / "t.csv.gz"), write(f / "t.csv")),
    "two compressions": lambda f: made_from(write(f / "t.csv.gz"), "other.csv.gz", compressed_again),
    "a folder as both": lambda f: twice(folder_in(f)),
    "a link to the folder": lambda f: made_from(folder_in(f), "other.parquet", os.symlink),
    "a copy of the folder": lambda f: made_from(folder_in(f), "other.parquet", shutil.copytree),
    "a file and its folder": lambda f: (folder_in(f) / "a.parquet", f / "t.parquet"),
    "a folder and its file": lambda f: (two_files(f), f / "t.parquet" / "a.parquet"),
    "a glob and its folder": lambda f: (f"{f}/t.parquet/*.parquet", folder_in(f)),
    "one file in common": one_file_in_common,
    "nested in the folder": lambda f: (write(f / "other.parquet" / "year=1" / "a.parquet"), f / "other.parquet"),
    "a linked folder in the folder": linked_folder,
    "a name without an ending in the folder": name_without_an_ending,
    "the frame": lambda _: twice(table()),
    "a copy of the frame": lambda _: (table(), table()),
    "columns of the frame": lambda _: (table().assign(extra="x"), table()[["wage", "age"]]),
    "the frame with other types": lambda _: (
        table().astype(str), table().astype({"age": float}).set_index(np.arange(40) + 7)
    ),
}  # fmt: skip


def account(folder: Path) -> Path:
    Ledger(folder / "l.ledger").init("t", epsilon=10, delta=1e-4)
    return folder / "l.ledger"


Names = Iterable[str] | None


def every_one(pairs: dict[str, Callable[[Path], Pair]], folder: Path, names: Names = None) -> Iterator[Pair]:
    """Each pair, in a folder of its own, which an error shows."""
    for name in names or pairs:
        (folder / name).mkdir(exist_ok=True)
        yield pairs[name](folder / name)


EPSILON = {"epsilon": 1, "rehearsal": 1}
DRAW = {"delta": 0, "method": "exponential", "points": 2}
ENTRIES: tuple[Callable[..., Any], ...] = (
    lambda private, public: publish(private, DOMAIN, delta=1e-6, public_points=public, **EPSILON),
    lambda private, public: publish(private, DOMAIN, public_points=public, **DRAW, **EPSILON),
    lambda private, public: publish_function(private, DOMAIN, kind="density", delta=1e-6, pivots=public, **EPSILON),
)


def test_every_way_to_publish_compares_its_public_rows_with_the_private_table(tmp_path):
    for entry in ENTRIES:
        for pair in every_one(SAME | REWRITTEN, tmp_path, ("a folder as both", "CSV as Parquet")):
            with pytest.raises(PublishError, match=REFUSED):
                entry(*pair)


# ---------------------------------------------------------------------- the same rows in another container


def edited(edit: Callable[[bytes], bytes]) -> Callable[[Path], Pair]:
    """A CSV file, and one of edited bytes."""
    return lambda folder: made_from(
        write(folder / "t.csv"), "other.csv", lambda path, other: other.write_bytes(edit(path.read_bytes()))
    )


def csv_and_parquet(folder: Path) -> Pair:
    return write(folder / "t.csv"), write(folder / "other.parquet")


def file_and_frame(folder: Path) -> Pair:
    """Wages of seventeen digits, some of which pandas reads as the neighbour of the nearest float."""
    wages = np.random.default_rng(3).uniform(10, 99, 4000)
    path = write(folder / "t.csv", table(4000).assign(wage=[f"{wage:.17g}" for wage in wages]))
    return path, pd.read_csv(path)


def single_precision(folder: Path) -> Pair:
    frame = table().astype({"wage": float})
    return write(folder / "t.csv", frame), write(folder / "other.parquet", frame.astype({"wage": "float32"}))


def empty_cells(folder: Path) -> Pair:
    frame = table().astype({"wage": float})
    frame.loc[:9, "wage"] = np.nan
    return write(folder / "t.csv", frame), write(folder / "other.parquet", frame)


REWRITTEN: dict[str, Callable[[Path], Pair]] = {
    "without the final newline": edited(lambda data: data.rstrip(b"\n")),
    "one more newline": edited(lambda data: data + b"\n"),
    "the private file with one more newline": lambda f: edited(lambda data: data + b"\n")(f)[::-1],
    "a byte order mark": edited(lambda data: b"\xef\xbb\xbf" + data),
    "CSV as Parquet": csv_and_parquet,
    "Parquet as CSV": lambda f: csv_and_parquet(f)[::-1],
    "a file as a frame": file_and_frame,
    "a frame as a file": lambda f: file_and_frame(f)[::-1],
    "a frame in another order": lambda _: (table(), table().sample(frac=1, random_state=0)),
    "columns and rows in another order": lambda f: (
        write(f / "t.csv"), write(f / "other.csv", table()[["wage", "age"]].assign(more="x").iloc[::-1])
    ),
    "single precision": single_precision,
    "empty cells": empty_cells,
}  # fmt: skip
OPTIONAL = Domain((Integer(name="age", lower=17, upper=90), Real(name="wage", lower=0, upper=100, missing=True)))


def test_a_private_table_is_refused_as_its_own_public_points_in_every_form(tmp_path):
    for private, public in every_one(SAME | REWRITTEN, tmp_path):
        for domain in (DOMAIN, OPTIONAL):
            with pytest.raises(PublishError, match=REFUSED):
                publish(private, domain, delta=1e-6, method="subspace", public_points=public, **EPSILON)


def test_pivots_are_compared_in_the_columns_that_the_function_looks_at(tmp_path):
    private = write(tmp_path / "t.csv")
    ages = table()[["age"]].iloc[::-1]
    for pivots in (ages, ages.assign(wage=7.0), write(tmp_path / "ages.parquet", ages)):
        with pytest.raises(PublishError, match=REFUSED):
            publish_function(private, DOMAIN, kind="ridge", target="wage", delta=1e-6, pivots=pivots, **EPSILON)


def test_a_refusal_of_the_same_rows_leaves_the_ledger_as_it_is(tmp_path):
    private, copied = csv_and_parquet(tmp_path)
    ledger = account(tmp_path)
    before = ledger.read_bytes()
    for release, public in ((publish_function, {"kind": "density", "pivots": copied}), (publish, {"public_points": copied})):
        with pytest.raises(PublishError, match=REFUSED):
            release(private, DOMAIN, epsilon=1, delta=1e-6, ledger=ledger, table="t", **public)
    assert ledger.read_bytes() == before


def test_a_table_that_differs_in_one_cell_or_holds_one_row_twice_is_another(tmp_path):
    private = write(tmp_path / "t.csv")
    changed, twice = table(), table()
    changed.loc[7, "age"] = 17
    twice.loc[7] = twice.loc[8]
    for public in (changed, twice, table()[:20], pd.concat([table(), table(seed=1)])):
        compare(private, public)


HOSTILE = [np.nan, None, pd.NA, [1], {}, object(), 1 + 2j, b"x", 10**400, "\ud800"]
HOSTILE_NUMBERS, HOSTILE_OBJECTS = [np.inf, -np.inf, "-0", 1e308, -1e-310], [pd.Timedelta(days=1), np.array([1, 2])]


@pytest.mark.parametrize("cells", [HOSTILE + HOSTILE_NUMBERS, HOSTILE + HOSTILE_OBJECTS], ids=["numbers", "objects"])
def test_comparing_rows_never_raises_or_warns_by_a_cell(cells, recwarn):
    domain = Domain((Real(name="age", lower=-1e308, upper=1e308), Real(name="wage", lower=-1e308, upper=1e308)))
    hostile = pd.DataFrame({"age": pd.Series(cells, dtype=object), "wage": pd.Series(cells, dtype=object)})
    others = (pd.DataFrame({"age": np.arange(len(cells)), "wage": 1.0}), hostile.assign(age=1))
    for other in others:
        compare(hostile, other, domain)
    for same in (hostile.iloc[::-1], hostile.copy()):
        with pytest.raises(PublishError, match=REFUSED):
            compare(hostile, same, domain)
    assert not recwarn.list


# ---------------------------------------------------------------------- honest public rows pass


def parts_without_rows(folder: Path) -> Pair:
    for name in ("t", "other.parquet"):
        write(folder / name / "empty.parquet", table().iloc[:0])
        write(folder / name / "full.parquet", table(seed=len(name)))
    return folder / "t", folder / "other.parquet"


HONEST: dict[str, Callable[[Path], Pair]] = {
    "other rows": lambda f: (write(f / "t.csv"), write(f / "other.csv", table(seed=1))),  # files of equal size
    "other rows, compressed": lambda f: (write(f / "t.csv"), write(f / "other.csv.gz", table(seed=1))),
    "another file of the folder": lambda f: (
        write(f / "t" / "a.parquet").parent, write(f / "t" / "public" / "b.parquet", table(seed=1))
    ),
    "parts without rows in both": parts_without_rows,
    "another frame": lambda _: (table(), table(seed=1)),
    "some rows of the frame": lambda _: (table(), table()[:20]),
}  # fmt: skip


def test_other_rows_pass_even_if_they_are_as_many(tmp_path):
    private, public = HONEST["other rows"](tmp_path)
    assert private.stat().st_size == public.stat().st_size
    for private, public in every_one(HONEST, tmp_path):
        release = publish(private, DOMAIN, epsilon=1, delta=1e-6, method="subspace", public_points=public, rehearsal=1)
        assert release.statement.public_points > 0


def test_one_file_under_two_names_is_recognised_without_reading_it(tmp_path, monkeypatch):
    names = ("the file", "a hard link", "a symbolic link", "a link to the folder")
    monkeypatch.setattr("release_side.choices.public_inputs.open_bytes", lambda path: pytest.fail(f"{path} was read"))
    for private, public in every_one(SAME, tmp_path, names):
        with pytest.raises(PublishError, match=REFUSED):
            compare(private, public)


def test_files_are_read_only_where_their_sizes_agree_and_rows_where_their_numbers_do(tmp_path, monkeypatch):
    read: list[Any] = []
    opened, encoded = csv_file.open_bytes, csv_file.CsvFile._pieces
    monkeypatch.setattr("release_side.choices.public_inputs.open_bytes", lambda path: read.append(path) or opened(path))
    monkeypatch.setattr(csv_file.CsvFile, "_pieces", lambda self, names: read.append("rows") or encoded(self, names))
    private = write(tmp_path / "t.csv", table(50))
    for public in (write(tmp_path / "other.csv", table(40)), table(20), table(80)):
        compare(private, public)
    assert read == []
    compare(private, table(50, seed=1))
    assert read == ["rows"]
    compare(private, write(tmp_path / "other.csv", table(50, seed=1)))
    assert sorted(path.name for path in read if path != "rows") == ["other.csv", "t.csv"]


# ---------------------------------------------------------------------- files that cannot be compared


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are of POSIX")
def test_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    path = write(tmp_path / "t.csv")
    pipe = tmp_path / "pipe.csv"
    for private, public in ((path, pipe), (pipe, path), (pipe, None)):
        with pytest.raises(PublishError, match=r"pipe\.csv is not a regular file, .* read more than once\. Write"):
            publish(private, DOMAIN, epsilon=1, delta=1e-6, public_points=public, rehearsal=1)


def test_a_file_that_cannot_be_read_or_is_damaged_is_refused(tmp_path, monkeypatch):
    private, public = write(tmp_path / "t.csv"), write(tmp_path / "other.csv", table(seed=1))
    (tmp_path / "other.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(PublishError, match=r"other\.csv\.gz is cut off, damaged or no \.gz file"):
        compare(private, tmp_path / "other.csv.gz")

    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("release_side.choices.public_inputs.open_bytes", denied)
    with pytest.raises(PublishError, match=r"(t|other)\.csv could not be read, so .* compared .*\. Make it readable"):
        compare(private, public)


# ---------------------------------------------------------------------- the sample a domain was drafted from

SAMPLE_REFUSED = r"the domain was drafted from the private table itself: its bounds and levels .*\. Draft it"


def drafted(sample: Any, folder: Path) -> Path:
    """A domain file drafted from a sample, with a bound edited by hand."""
    draft = draft_domain(sample, this_sample_is_public=True)
    path = folder / "domain.toml"
    text = domain_toml(draft.domain, draft.notes).replace("upper = 98", "upper = 99")
    path.write_text("# edited\n" + text, encoding="utf-8")
    return path


NOT_READ = ("nested in the folder", "a name without an ending in the folder")  # of a folder, its own files are read


def test_no_domain_is_drafted_from_files_that_are_not_read(tmp_path):
    for _, sample in every_one(SAME, tmp_path, NOT_READ):
        with pytest.raises(DomainError, match=r"holds no file of a table .*Name the folder that has them"):
            drafted(sample, tmp_path)


def test_a_domain_drafted_from_the_private_table_is_refused(tmp_path):
    names = [name for name in SAME if name not in ("columns of the frame", *NOT_READ)]
    for private, sample in every_one(SAME, tmp_path, names):
        domain = drafted(sample, tmp_path)
        with pytest.raises(PublishError, match=SAMPLE_REFUSED):
            publish(private, domain, epsilon=1, delta=1e-6)


def test_every_way_to_publish_checks_the_sample_of_the_domain(tmp_path):
    private = write(tmp_path / "t.csv")
    for domain in (drafted(private, tmp_path), draft_domain(private, this_sample_is_public=True).domain):
        for method in ("random-features", "exponential"):
            with pytest.raises(PublishError, match=SAMPLE_REFUSED):
                publish(private, domain, epsilon=1, delta=0 if method == "exponential" else 1e-6, method=method)
        with pytest.raises(PublishError, match=SAMPLE_REFUSED):
            publish_function(private, domain, kind="density", epsilon=1, delta=1e-6)


def test_a_rehearsal_on_the_sample_itself_is_allowed(tmp_path):
    sample = write(tmp_path / "t.csv")
    release = publish(sample, drafted(sample, tmp_path), epsilon=1, delta=1e-6, features=20, points=5, rehearsal=1)
    assert release.is_rehearsal


def test_the_digest_of_a_sample_outlives_the_sample_and_is_not_in_a_release(tmp_path):
    private, sample = write(tmp_path / "t.csv"), write(tmp_path / "sample.csv", table(seed=1))
    domain = drafted(sample, tmp_path)
    assert read_domain(domain).samples == samples_of(sample) and len(samples_of(sample)) == 1
    release = publish(private, domain, delta=1e-6, features=20, points=5, output=tmp_path / "r.kme", **EPSILON)
    assert release.domain == read_domain(domain)
    assert samples_of(sample)[0].sha256.encode() not in (tmp_path / "r.kme").read_bytes()
    sample.unlink()
    write(tmp_path / "later.csv", table(seed=1))
    with pytest.raises(PublishError, match=SAMPLE_REFUSED):
        publish(tmp_path / "later.csv", domain, epsilon=1, delta=1e-6)
