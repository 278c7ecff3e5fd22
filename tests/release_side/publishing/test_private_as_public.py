"""A private table is refused as its own public points, pivots or sample, under whatever name it is given.

Public points stand in the released file as they are, so a private table that passes as public is a table given away.
"""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kmeanalyst.releases.domain.domain import Domain, domain_toml, read_domain
from kmeanalyst.releases.domain.numbers import Integer, Real
from release_side import draft_domain, publish, publish_function
from release_side.budget.ledger import Ledger
from release_side.choices.public_inputs import refuse_private_as_public, samples_of
from release_side.door.mechanism import PublishError
from release_side.private_rows import rows as rows_module

REFUSED = r"the public points are the private table itself: .* would be in the release .*\. Name a file of rows"
DOMAIN = Domain((Integer(name="age", lower=17, upper=90), Real(name="wage", lower=0, upper=100)))


def table(n: int = 40, seed: int = 0) -> pd.DataFrame:
    """Rows whose CSV has the same number of bytes for every seed."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"age": rng.integers(20, 90, n), "wage": [f"{w:.3f}" for w in rng.uniform(10, 99, n)]})


def write(path: Path, frame: pd.DataFrame) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(".parquet"):
        frame.to_parquet(path)
    elif path.name.endswith(".gz"):
        path.write_bytes(gzip.compress(frame.to_csv(index=False).encode(), mtime=0))
    else:
        frame.to_csv(path, index=False)
    return path


# ---------------------------------------------------------------------- (private, public) that are one table


def _the_file(folder: Path) -> tuple[Any, Any]:
    path = write(folder / "t.csv", table())
    return path, path


def _hard_link(folder: Path) -> tuple[Any, Any]:
    path = write(folder / "t.csv", table())
    os.link(path, folder / "linked.csv")
    return path, folder / "linked.csv"


def _symbolic_link(folder: Path) -> tuple[Any, Any]:
    path = write(folder / "t.csv", table())
    (folder / "linked.csv").symlink_to(path)
    return path, folder / "linked.csv"


def _copy(folder: Path) -> tuple[Any, Any]:
    path = write(folder / "t.csv", table())
    return path, shutil.copy(path, folder / "other.csv")


def _parquet_copy(folder: Path) -> tuple[Any, Any]:
    path = write(folder / "t.parquet", table())
    return path, shutil.copy(path, folder / "other.parquet")


def _compressed_copy(folder: Path) -> tuple[Any, Any]:
    return write(folder / "t.csv", table()), write(folder / "t.csv.gz", table())


def _plain_copy_of_a_compressed_file(folder: Path) -> tuple[Any, Any]:
    return write(folder / "t.csv.gz", table()), write(folder / "t.csv", table())


def _two_compressions(folder: Path) -> tuple[Any, Any]:
    path = write(folder / "t.csv.gz", table())
    (folder / "other.csv.gz").write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1))
    return path, folder / "other.csv.gz"


def _folder_as_both(folder: Path) -> tuple[Any, Any]:
    write(folder / "t.parquet" / "a.parquet", table())
    return folder / "t.parquet", folder / "t.parquet"


def _link_to_the_folder(folder: Path) -> tuple[Any, Any]:
    write(folder / "t.parquet" / "a.parquet", table())
    (folder / "other.parquet").symlink_to(folder / "t.parquet", target_is_directory=True)
    return folder / "t.parquet", folder / "other.parquet"


def _copy_of_the_folder(folder: Path) -> tuple[Any, Any]:
    write(folder / "t.parquet" / "a.parquet", table())
    return folder / "t.parquet", shutil.copytree(folder / "t.parquet", folder / "other.parquet")


def _file_against_its_folder(folder: Path) -> tuple[Any, Any]:
    path = write(folder / "t.parquet" / "a.parquet", table())
    return path, folder / "t.parquet"


def _folder_against_its_file(folder: Path) -> tuple[Any, Any]:
    path = write(folder / "t.parquet" / "a.parquet", table())
    write(folder / "t.parquet" / "b.parquet", table(seed=1))
    return folder / "t.parquet", path


def _glob_against_its_folder(folder: Path) -> tuple[Any, Any]:
    write(folder / "t.parquet" / "a.parquet", table())
    return str(folder / "t.parquet" / "*.parquet"), folder / "t.parquet"


def _one_file_in_common(folder: Path) -> tuple[Any, Any]:
    for seed, name in enumerate(("t/a.parquet", "t/b.parquet", "other.parquet/c.parquet")):
        write(folder / name, table(seed=seed))
    shutil.copy(folder / "t" / "b.parquet", folder / "other.parquet" / "d.parquet")
    return folder / "t", folder / "other.parquet"


def _nested_in_the_folder_of_public_points(folder: Path) -> tuple[Any, Any]:
    path = write(folder / "other.parquet" / "year=1" / "a.parquet", table())
    return path, folder / "other.parquet"


def _linked_folder_in_the_folder_of_public_points(folder: Path) -> tuple[Any, Any]:
    write(folder / "t" / "a.parquet", table())
    write(folder / "other.parquet" / "b.parquet", table(seed=1))
    (folder / "other.parquet" / "more").symlink_to(folder / "t", target_is_directory=True)
    (folder / "t" / "back").symlink_to(folder / "other.parquet", target_is_directory=True)  # a loop
    return folder / "t", folder / "other.parquet"


def _a_name_without_an_ending_in_the_folder(folder: Path) -> tuple[Any, Any]:
    path = write(folder / "t.parquet", table())
    (folder / "other.parquet").mkdir()
    shutil.copy(path, folder / "other.parquet" / "part-0")
    return path, folder / "other.parquet"


def _the_frame(folder: Path) -> tuple[Any, Any]:
    frame = table()
    return frame, frame


def _copy_of_the_frame(folder: Path) -> tuple[Any, Any]:
    return table(), table()


def _columns_of_the_frame(folder: Path) -> tuple[Any, Any]:
    frame = table().assign(extra="x")
    return frame, frame[["wage", "age"]]


def _the_frame_with_other_types(folder: Path) -> tuple[Any, Any]:
    return table().astype(str), table().astype({"age": float}).set_index(np.arange(40) + 7)


SAME = [
    _the_file, _hard_link, _symbolic_link, _copy, _parquet_copy, _compressed_copy, _plain_copy_of_a_compressed_file,
    _two_compressions, _folder_as_both, _link_to_the_folder, _copy_of_the_folder, _file_against_its_folder,
    _folder_against_its_file, _glob_against_its_folder, _one_file_in_common, _nested_in_the_folder_of_public_points,
    _linked_folder_in_the_folder_of_public_points, _a_name_without_an_ending_in_the_folder, _the_frame,
    _copy_of_the_frame, _columns_of_the_frame, _the_frame_with_other_types,
]  # fmt: skip
same = pytest.mark.parametrize("pair", SAME, ids=lambda make: make.__name__.strip("_"))


def account(folder: Path) -> Path:
    """A new ledger with a budget for the table t."""
    Ledger(folder / "l.ledger").init("t", epsilon=10, delta=1e-4)
    return folder / "l.ledger"


@same
def test_a_private_table_is_refused_as_its_own_public_points(pair, tmp_path):
    private, public = pair(tmp_path)
    with pytest.raises(PublishError, match=REFUSED):
        publish(private, DOMAIN, epsilon=1, delta=1e-6, method="subspace", public_points=public, rehearsal=1)


EPSILON = {"epsilon": 1, "rehearsal": 1}
ENTRIES: list[tuple[str, Callable[..., Any]]] = [
    ("publish", lambda private, public: publish(private, DOMAIN, delta=1e-6, public_points=public, **EPSILON)),
    ("exponential", lambda private, public: publish(
        private, DOMAIN, delta=0, method="exponential", points=2, public_points=public, **EPSILON)),
    ("function", lambda private, public: publish_function(
        private, DOMAIN, kind="density", delta=1e-6, pivots=public, **EPSILON)),
]  # fmt: skip
every_entry = pytest.mark.parametrize("entry", [call for _, call in ENTRIES], ids=[name for name, _ in ENTRIES])


@every_entry
def test_every_way_to_publish_asks_whether_its_public_rows_are_the_private_table(entry, tmp_path):
    with pytest.raises(PublishError, match=REFUSED):
        entry(*_folder_as_both(tmp_path))


# ---------------------------------------------------------------------- the same rows in another container


def _without_the_final_newline(folder: Path) -> tuple[Any, Any]:
    path = write(folder / "t.csv", table())
    (folder / "other.csv").write_bytes(path.read_bytes().rstrip(b"\n"))
    return path, folder / "other.csv"


def _with_one_more_newline(folder: Path) -> tuple[Any, Any]:
    path = write(folder / "t.csv", table())
    (folder / "other.csv").write_bytes(path.read_bytes() + b"\n")
    return path, folder / "other.csv"


def _private_with_one_more_newline(folder: Path) -> tuple[Any, Any]:
    return _with_one_more_newline(folder)[::-1]


def _with_a_byte_order_mark(folder: Path) -> tuple[Any, Any]:
    path = write(folder / "t.csv", table())
    (folder / "other.csv").write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    return path, folder / "other.csv"


def _csv_as_parquet(folder: Path) -> tuple[Any, Any]:
    return write(folder / "t.csv", table()), write(folder / "other.parquet", table())


def _parquet_as_csv(folder: Path) -> tuple[Any, Any]:
    return _csv_as_parquet(folder)[::-1]


def _file_as_a_frame(folder: Path) -> tuple[Any, Any]:
    """Wages of seventeen digits, some of which pandas reads as the neighbour of the nearest float."""
    wages = np.random.default_rng(3).uniform(10, 99, 4000)
    path = write(folder / "t.csv", table(4000).assign(wage=[f"{wage:.17g}" for wage in wages]))
    return path, pd.read_csv(path)


def _frame_as_a_file(folder: Path) -> tuple[Any, Any]:
    return _file_as_a_frame(folder)[::-1]


def _frame_in_another_order(folder: Path) -> tuple[Any, Any]:
    return table(), table().sample(frac=1, random_state=0)


def _columns_and_rows_in_another_order(folder: Path) -> tuple[Any, Any]:
    path = write(folder / "t.csv", table())
    return path, write(folder / "other.csv", table()[["wage", "age"]].assign(more="x").iloc[::-1])


def _single_precision(folder: Path) -> tuple[Any, Any]:
    frame = table().astype({"wage": float})
    return write(folder / "t.csv", frame), write(folder / "other.parquet", frame.astype({"wage": "float32"}))


def _empty_cells(folder: Path) -> tuple[Any, Any]:
    frame = table().astype({"wage": float})
    frame.loc[:9, "wage"] = np.nan
    return write(folder / "t.csv", frame), write(folder / "other.parquet", frame)


REWRITTEN = [
    _without_the_final_newline, _with_one_more_newline, _private_with_one_more_newline, _with_a_byte_order_mark,
    _csv_as_parquet, _parquet_as_csv, _file_as_a_frame, _frame_as_a_file, _frame_in_another_order,
    _columns_and_rows_in_another_order, _single_precision, _empty_cells,
]  # fmt: skip
OPTIONAL = Domain(
    (Integer(name="age", lower=17, upper=90), Real(name="wage", lower=0, upper=100, missing=True)),
)


@pytest.mark.parametrize("domain", [DOMAIN, OPTIONAL], ids=["default", "missing"])
@pytest.mark.parametrize("pair", REWRITTEN, ids=lambda make: make.__name__.strip("_"))
def test_rows_of_the_private_table_are_refused_in_whatever_form(pair, domain, tmp_path):
    private, public = pair(tmp_path)
    with pytest.raises(PublishError, match=REFUSED):
        publish(private, domain, epsilon=1, delta=1e-6, method="subspace", public_points=public, rehearsal=1)


@every_entry
def test_every_way_to_publish_asks_whether_the_rows_are_the_same(entry, tmp_path):
    with pytest.raises(PublishError, match=REFUSED):
        entry(*_csv_as_parquet(tmp_path))


def test_pivots_are_compared_in_the_columns_that_the_function_looks_at(tmp_path):
    private = write(tmp_path / "t.csv", table())
    ages = table()[["age"]].iloc[::-1]
    for pivots in (ages, ages.assign(wage=7.0), write(tmp_path / "ages.parquet", ages)):
        with pytest.raises(PublishError, match=REFUSED):
            publish_function(private, DOMAIN, kind="ridge", target="wage", delta=1e-6, pivots=pivots, **EPSILON)


def test_a_refusal_of_the_same_rows_leaves_the_ledger_as_it_is(tmp_path):
    private, copied = _csv_as_parquet(tmp_path)
    counted = {"ledger": account(tmp_path), "table": "t"}
    before = counted["ledger"].read_bytes()
    with pytest.raises(PublishError, match=REFUSED):
        publish_function(private, DOMAIN, kind="density", epsilon=1, delta=1e-6, pivots=copied, **counted)
    with pytest.raises(PublishError, match=REFUSED):
        publish(private, DOMAIN, epsilon=1, delta=1e-6, public_points=copied, **counted)
    assert counted["ledger"].read_bytes() == before


def test_private_rows_are_read_only_where_the_numbers_of_rows_agree(tmp_path, monkeypatch):
    read: list[int] = []
    encoded = rows_module._Csv._pieces
    monkeypatch.setattr(rows_module._Csv, "_pieces", lambda self, names: read.append(1) or encoded(self, names))
    private = write(tmp_path / "t.csv", table(50))
    for rows in (20, 80):
        refuse_private_as_public(private, table(rows), DOMAIN)
    assert read == []
    refuse_private_as_public(private, table(50, seed=1), DOMAIN)
    assert read == [1]


def test_a_table_that_differs_in_one_cell_or_holds_one_row_twice_is_another(tmp_path):
    private = write(tmp_path / "t.csv", table())
    changed, twice = table(), table()
    changed.loc[7, "age"] = 17
    twice.loc[7] = twice.loc[8]
    for public in (changed, twice, table()[:20], pd.concat([table(), table(seed=1)])):
        refuse_private_as_public(private, public, DOMAIN)


def test_comparing_rows_never_raises_or_warns_by_a_cell(recwarn):
    cells = [
        np.nan,
        None,
        pd.NA,
        [1],
        {},
        object(),
        1 + 2j,
        b"x",
        10**400,
        "\ud800",
        np.inf,
        -np.inf,
        "-0",
        1e308,
        -1e-310,
    ]
    domain = Domain((Real(name="age", lower=-1e308, upper=1e308), Real(name="wage", lower=-1e308, upper=1e308)))
    hostile = pd.DataFrame({"age": pd.Series(cells, dtype=object), "wage": pd.Series(cells, dtype=object)})
    refuse_private_as_public(hostile, pd.DataFrame({"age": np.arange(15.0), "wage": 1.0}), domain)
    with pytest.raises(PublishError, match=REFUSED):
        refuse_private_as_public(hostile, hostile.iloc[::-1], domain)
    assert not recwarn.list


# ---------------------------------------------------------------------- honest public rows pass


def _other_rows_of_equal_size(folder: Path) -> tuple[Any, Any]:
    private, public = write(folder / "t.csv", table()), write(folder / "other.csv", table(seed=1))
    assert private.stat().st_size == public.stat().st_size
    return private, public


def _other_rows_of_equal_size_compressed(folder: Path) -> tuple[Any, Any]:
    return write(folder / "t.csv", table()), write(folder / "other.csv.gz", table(seed=1))


def _other_file_of_the_folder_above(folder: Path) -> tuple[Any, Any]:
    write(folder / "t" / "a.parquet", table())
    return folder / "t", write(folder / "t" / "public" / "b.parquet", table(seed=1))


def _a_part_without_rows_in_both(folder: Path) -> tuple[Any, Any]:
    for name in ("t", "other.parquet"):
        write(folder / name / "empty.parquet", table().iloc[:0])
        write(folder / name / "full.parquet", table(seed=len(name)))
    return folder / "t", folder / "other.parquet"


def _other_frame_of_equal_size(folder: Path) -> tuple[Any, Any]:
    return table(), table(seed=1)


def _some_rows_of_the_frame(folder: Path) -> tuple[Any, Any]:
    frame = table()
    return frame, frame[:20]


HONEST = [
    _other_rows_of_equal_size, _other_rows_of_equal_size_compressed, _other_file_of_the_folder_above,
    _a_part_without_rows_in_both, _other_frame_of_equal_size, _some_rows_of_the_frame,
]  # fmt: skip


@pytest.mark.parametrize("pair", HONEST, ids=lambda make: make.__name__.strip("_"))
def test_other_rows_pass_whatever_their_size(pair, tmp_path):
    private, public = pair(tmp_path)
    release = publish(private, DOMAIN, epsilon=1, delta=1e-6, method="subspace", public_points=public, rehearsal=1)
    assert release.statement.public_points > 0


@pytest.mark.parametrize(
    "pair", [_the_file, _hard_link, _symbolic_link, _link_to_the_folder], ids=lambda make: make.__name__.strip("_")
)
def test_one_file_under_two_names_is_recognised_without_reading_it(pair, tmp_path, monkeypatch):
    monkeypatch.setattr("release_side.choices.public_inputs.open_bytes", lambda path: pytest.fail(f"{path} was read"))
    with pytest.raises(PublishError, match=REFUSED):
        refuse_private_as_public(*pair(tmp_path), DOMAIN)


def test_content_is_read_only_where_sizes_agree(tmp_path, monkeypatch):
    read: list[Path] = []
    opened = rows_module.open_bytes
    monkeypatch.setattr("release_side.choices.public_inputs.open_bytes", lambda path: read.append(path) or opened(path))
    private = write(tmp_path / "t.csv", table(50))
    refuse_private_as_public(private, write(tmp_path / "other.csv", table(40)), DOMAIN)
    assert read == []
    refuse_private_as_public(private, write(tmp_path / "other.csv", table(50, seed=1)), DOMAIN)
    assert sorted(path.name for path in read) == ["other.csv", "t.csv"]


# ---------------------------------------------------------------------- files that cannot be compared


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are of POSIX")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    path = write(tmp_path / "t.csv", table())
    for private, public in ((path, tmp_path / "pipe.csv"), (tmp_path / "pipe.csv", path)):
        with pytest.raises(PublishError, match=r"pipe\.csv is not a regular file, .* read more than once\. Write"):
            publish(private, DOMAIN, epsilon=1, delta=1e-6, public_points=public, rehearsal=1)


def test_a_pipe_is_no_private_table_without_public_points_either(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(PublishError, match=r"pipe\.csv is not a regular file"):
        publish(tmp_path / "pipe.csv", DOMAIN, epsilon=1, delta=1e-6, rehearsal=1)


def test_a_file_that_cannot_be_read_is_refused_and_not_taken_for_another(tmp_path, monkeypatch):
    private = write(tmp_path / "t.csv", table())
    public = write(tmp_path / "other.csv", table(seed=1))

    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("release_side.choices.public_inputs.open_bytes", denied)
    with pytest.raises(PublishError, match=r"(t|other)\.csv could not be read, so .* compared .*\. Make it readable"):
        refuse_private_as_public(private, public, DOMAIN)


def test_a_damaged_compressed_file_is_refused(tmp_path):
    private = write(tmp_path / "t.csv", table())
    (tmp_path / "other.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(PublishError, match=r"other\.csv\.gz is cut off, damaged or no \.gz file"):
        refuse_private_as_public(private, tmp_path / "other.csv.gz", DOMAIN)


def test_comparing_frames_never_raises_or_warns_by_a_cell(recwarn):
    cells = [
        np.nan,
        None,
        pd.NA,
        [1],
        {},
        object(),
        1 + 2j,
        b"x",
        10**400,
        "\ud800",
        pd.Timedelta(days=1),
        np.array([1, 2]),
    ]
    hostile = pd.DataFrame({"age": pd.Series(cells, dtype=object), "wage": pd.Series(cells, dtype=object)})
    refuse_private_as_public(hostile, hostile.assign(age=1), DOMAIN)
    with pytest.raises(PublishError, match=REFUSED):
        refuse_private_as_public(hostile, hostile.copy(), DOMAIN)
    assert not recwarn.list


# ---------------------------------------------------------------------- the sample a domain was drafted from

SAMPLE_REFUSED = r"the domain was drafted from the private table itself: its bounds and levels .*\. Draft it"


def drafted(sample: Any, folder: Path) -> Path:
    """A domain file drafted from a sample, with a bound edited by hand."""
    draft = draft_domain(sample, this_sample_is_public=True)
    path = folder / "domain.toml"
    text = domain_toml(draft.domain, draft.notes).replace("upper = 98", "upper = 99")
    path.write_text("# edited\n" + text, encoding="utf-8")
    return path


@pytest.mark.parametrize("pair", [make for make in SAME if make is not _columns_of_the_frame],
                         ids=lambda make: make.__name__.strip("_"))  # fmt: skip
def test_a_domain_drafted_from_the_private_table_is_refused(pair, tmp_path):
    private, sample = pair(tmp_path)
    domain = drafted(sample, tmp_path)
    with pytest.raises(PublishError, match=SAMPLE_REFUSED):
        publish(private, domain, epsilon=1, delta=1e-6)


@pytest.mark.parametrize("call", [
    lambda private, domain: publish(private, domain, epsilon=1, delta=1e-6),
    lambda private, domain: publish(private, domain, epsilon=1, delta=0, method="exponential"),
    lambda private, domain: publish_function(private, domain, kind="density", epsilon=1, delta=1e-6),
], ids=["publish", "exponential", "function"])  # fmt: skip
def test_every_way_to_publish_asks_what_the_domain_was_drafted_from(call, tmp_path):
    private = write(tmp_path / "t.csv", table())
    for domain in (drafted(private, tmp_path), draft_domain(private, this_sample_is_public=True).domain):
        with pytest.raises(PublishError, match=SAMPLE_REFUSED):
            call(private, domain)


def test_a_domain_drafted_from_a_file_of_the_private_folder_is_refused(tmp_path):
    for seed, name in enumerate("abc"):
        write(tmp_path / "t" / f"{name}.csv", table(seed=seed))
    domain = drafted(tmp_path / "t" / "b.csv", tmp_path)
    with pytest.raises(PublishError, match=SAMPLE_REFUSED):
        publish(tmp_path / "t", domain, epsilon=1, delta=1e-6)


def test_a_rehearsal_on_the_sample_itself_is_what_a_sample_is_for(tmp_path):
    sample = write(tmp_path / "t.csv", table())
    release = publish(sample, drafted(sample, tmp_path), epsilon=1, delta=1e-6, features=20, points=5, rehearsal=1)
    assert release.is_rehearsal


def test_the_digest_of_a_sample_outlives_the_sample_and_is_not_in_a_release(tmp_path):
    private = write(tmp_path / "t.csv", table())
    sample = write(tmp_path / "sample.csv", table(seed=1))
    domain = drafted(sample, tmp_path)
    assert read_domain(domain).samples == samples_of(sample) and len(samples_of(sample)) == 1
    release = publish(
        private, domain, epsilon=1, delta=1e-6, features=20, points=5, rehearsal=1, output=tmp_path / "r.kme"
    )
    assert release.domain == read_domain(domain)
    assert samples_of(sample)[0].sha256.encode() not in (tmp_path / "r.kme").read_bytes()
    sample.unlink()
    write(tmp_path / "later.csv", table(seed=1))
    with pytest.raises(PublishError, match=SAMPLE_REFUSED):
        publish(tmp_path / "later.csv", domain, epsilon=1, delta=1e-6)


# ---------------------------------------------------------------------- what is shown of private rows


def test_a_private_frame_shows_no_rows():
    frame = pd.DataFrame({"age": [4711], "wage": ["Secret"]})
    shown = repr(rows_module.open_private(frame))
    assert "4711" not in shown and "Secret" not in shown
