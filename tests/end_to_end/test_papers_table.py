"""The table of tutorials/papers.md: every name in it is one of the code, and every test in it is collected."""

from __future__ import annotations

import ast
import importlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import paths

HERE = paths.TESTS
PAGE = HERE.parent / "tutorials" / "papers.md"
HEAD = ["statement", "where it lives", "the tests that hold it"]
QUOTED = re.compile(r"`([^`]+)`")
SECTIONS = {
    "Balog, Tolstikhin & Schölkopf 2018": [
        "Algorithm 1", "Algorithm 2", "Theorem 2", "Propositions 5 and 6", "Theorem 7", "Proposition 8", "Theorem 11",
        "Remark 4", "§2", "§3.2", "§3.3", "§3.4", "§7", "Figure 1", "Figure 2",
    ],
    "Hall, Rinaldo & Wasserman 2013": [
        "Proposition 1.1", "Proposition 2.1", "Corollary 9", "§3.2", "exponential type", "§4.1", "§4.2", "Figures",
    ],
    "Harder, Adamczewski & Park 2021": [
        "The mechanism", "Label-crossed features", "Heterogeneous data", "Proposition 3.1", "Shares of classes",
    ],
    "Features and estimators they build on": ["Rahimi & Recht 2007, §3", "Rahimi & Recht 2007, §4", "Kar & Karnick"],
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A statement, and the names in the cells next to it."""

    section: str
    statement: str
    code: tuple[str, ...]
    tests: tuple[str, ...]


def rows_of(page: str) -> list[Row]:
    """The rows of all tables that have this page's head."""
    found, section, inside = [], "", False
    for line in page.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)][1:-1]
        if line.startswith("## "):
            section = line[3:]
        if not cells:
            inside = False
        elif cells == HEAD:
            inside = True
        elif inside and set("".join(cells)) != {"-"}:
            assert len(cells) == len(HEAD), line
            code = tuple(name for name in QUOTED.findall(cells[1]) if not name.startswith("--"))
            found.append(Row(section, cells[0], code, tuple(QUOTED.findall(cells[2]))))
    return found


def is_in_the_code(name: str) -> bool:
    """Whether a dotted name is that of a module of this project or of something in one."""
    parts = name.split(".")
    if parts[0] not in ("kmeanalyst", "release_side"):
        return False
    for length in range(len(parts), 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if not hasattr(thing, part):
                return False
            thing = getattr(thing, part)
        return True
    return False


@cache
def collected_from(file: str) -> tuple[str, ...]:
    """The test functions of a file that pytest collects, by name."""
    path = HERE / file
    if not path.name.startswith("test_") or HERE not in path.parents or not path.is_file():
        return ()
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return tuple(node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))


def problems(row: Row) -> list[str]:
    found = [f"{name} is not in the code" for name in row.code if not is_in_the_code(name)]
    for name in row.tests:
        file, _, test = name.partition("::")
        if file.startswith("benchmarks/") and not test:
            if not (HERE / file).is_file():
                found.append(f"there is no benchmark {file}")
        elif collected_from(file).count(test) != 1:
            found.append(f"{name} is not a test")
    if not row.code:
        found.append("it lives nowhere")
    if not any("::" in name for name in row.tests):
        found.append("no test holds it")
    return found


ROWS = rows_of(PAGE.read_text(encoding="utf-8"))


def test_the_table_has_every_paper_and_the_statements_that_this_project_cites():
    for section, statements in SECTIONS.items():
        text = "\n".join(row.statement for row in ROWS if row.section == section)
        missing = [statement for statement in statements if statement not in text]
        assert not missing, f"{section}: no row for {', '.join(missing)}"
    assert {row.section for row in ROWS} == set(SECTIONS)
    assert len(ROWS) >= 45


def test_what_the_statements_name_is_there():
    assert {row.statement: wrong for row in ROWS if (wrong := problems(row))} == {}


TWINS = "`representation/test_thinning.py::test_twins_and_a_weight_of_zero_do_no_harm`"


OUTDATED = [
    ("`kmeanalyst.fit` | `test_thinning.py::test_no_such`", "test_thinning.py::test_no_such is not a test"),
    ("`kmeanalyst.fit` | `test_lost.py::test_it`", "test_lost.py::test_it is not a test"),
    ("`kmeanalyst.thinner` | `benchmarks/rates.py`", "kmeanalyst.thinner is not in the code"),
    ("`os.path` | `benchmarks/rates.py`", "os.path is not in the code"),
    ("by hand | `benchmarks/rates.py`", "it lives nowhere"),
    ("`kmeanalyst.fit` | `benchmarks/lost.py`", "there is no benchmark benchmarks/lost.py"),
    ("`kmeanalyst.fit` | `benchmarks/rates.py`", "no test holds it"),
    ("`kmeanalyst.fit` | `conftest.py::one_thread`", "conftest.py::one_thread is not a test"),
]


def test_an_outdated_row_is_reported():
    for cells, problem in OUTDATED:
        (row,) = rows_of(f"## Paper\n| {' | '.join(HEAD)} |\n|---|---|---|\n| Theorem 0 | {cells} |\n")
        assert row.section == "Paper" and problem in problems(row), cells


def test_the_pictures_are_there_and_small():
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", PAGE.read_text(encoding="utf-8"))
    assert {Path(name).name for name in pictures} >= {"function_density.png", "function_boundary.png"}
    for name in pictures:
        content = (PAGE.parent / name).read_bytes()
        assert content.startswith(b"\x89PNG") and len(content) < 80_000
        benchmarks = [path.read_text(encoding="utf-8") for path in (HERE / "benchmarks").glob("*.py")]
        assert any(name.rsplit("/")[-1] in text for text in benchmarks)


def test_the_pages_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", PAGE.read_text(encoding="utf-8"))
    assert links and all((PAGE.parent / link).exists() for link in links)
