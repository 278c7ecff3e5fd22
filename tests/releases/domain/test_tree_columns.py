"""A tree of codes: a row holds a leaf, a node is a range of codes, and a question about a node is one about all codes below it."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from contracts import every

from kmeanalyst.inference.questions.groups import groups_of
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.domain import Domain, column_from_dict, domain_toml, read_domain
from kmeanalyst.releases.domain.kernels_for_domain import adaptive_kernel, margin_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.tree_column import MOST_CODES, Tree
from kmeanalyst.releases.expressions import ExpressionError, parse

PARENTS = {"I10": "I10-I15", "I20": "I20-I25", "I11": "I10-I15", "I10-I15": "I", "II1": "II", "I20-I25": "I", "Z": ""}
CAUSE = Tree(name="cause", parents=PARENTS)
INNER = Tree(name="cause", parents=PARENTS, inner=True, missing=True)
ROWS = Domain((CAUSE,)).decode(np.arange(5.0)[:, None])


def test_a_tree_worked_by_hand():
    assert CAUSE.levels == ("I10", "I11", "I20", "II1", "Z") and CAUSE.depths == 3
    assert INNER.levels == ("I", "I10-I15", "I10", "I11", "I20-I25", "I20", "II", "II1", "Z") == CAUSE.nodes
    assert [CAUSE.span(code) for code in ("I", "I10-I15", "I20", "Z", "I12")] == [(0, 3), (0, 2), (2, 3), (4, 5), None]
    assert [INNER.span(code) for code in ("I", "I10-I15", "I10")] == [(0, 6), (1, 4), (2, 3)]
    assert [CAUSE.groups(depth) for depth in range(3)] == [
        ["I", "II", "Z"], ["I10-I15", "I20-I25", "II1", "Z"], ["I10", "I11", "I20", "II1", "Z"],
    ]  # fmt: skip
    assert INNER.groups(1) == ["I", "I10-I15", "I20-I25", "II", "II1", "Z"]
    assert (CAUSE.deepest(5), CAUSE.deepest(4), CAUSE.deepest(1)) == (2, 1, 0)
    np.testing.assert_array_equal(CAUSE.group_of(np.array([0, 2, 4, np.nan]), 1), [0, 1, 3, np.nan])


@every([CAUSE, INNER], of="column")
def test_the_groups_of_each_depth_are_neighbours_that_finer_ones_divide(column: Tree):
    for depth in range(column.depths):
        starts = column.starts(depth)
        assert starts[0] == 0 and (np.diff(starts) > 0).all()
        assert set(starts) <= set(column.starts(depth + 1))
    np.testing.assert_array_equal(column.starts(column.depths - 1), np.arange(len(column.levels)))


def test_a_private_cell_is_a_leaf_or_becomes_the_default():
    codes, _ = CAUSE.encode(["I20", " II1 ", "I10-I15", "I99", "", "i20"])
    np.testing.assert_array_equal(codes, [2, 3, 0, 0, 0, 0])
    codes, _ = INNER.encode(["I10-I15", "I99", ""])
    np.testing.assert_array_equal(codes, [1, np.nan, np.nan])


@every([
        ("cause == 'I10-I15'", "11000"), ("'I' == cause", "11100"), ("cause != 'I'", "00011"), ("cause == 'II1'", "00010"),
        ("cause in ['I20-I25', 'Z']", "00101"), ("cause not in ['I', 'Z']", "00010"), ("not cause == 'I10-I15'", "00111"),
    ], of="question, held")  # fmt: skip
def test_a_node_in_an_expression_is_every_code_below_it(question: str, held: str):
    np.testing.assert_array_equal(parse(question).evaluate(ROWS, Domain((CAUSE,))), [each == "1" for each in held])


def test_a_missing_cell_is_in_no_node_and_a_node_that_rows_hold_is_below_itself():
    domain = Domain((INNER,))
    rows = domain.decode(np.array([[1.0], [np.nan], [0.0]]))
    for question, held in (("cause == 'I10-I15'", [1, 0, 0]), ("cause != 'I10-I15'", [0, 0, 1]), ("cause == 'I'", [1, 0, 1])):
        np.testing.assert_array_equal(parse(question).evaluate(rows, domain), held)


def test_a_code_that_the_tree_lacks_and_an_order_of_codes_are_refused():
    for text, message in (
        ("cause == 'I10-I16'", r"cause has no level 'I10-I16'.*Did you mean 'I10-I15'\?"),
        ("cause < 'I20'", "its levels have no order"),
        ("number(cause)", "no level of cause is a number"),
    ):
        with pytest.raises(ExpressionError, match=message):
            parse(text).check(Domain((CAUSE,)))


def test_numbers_and_other_columns_compare_with_leaves():
    puma = Tree(name="puma", parents={"0101": "01", "0102": "01", "0201": "02"})
    domain = Domain((puma, Categorical(name="before", levels=("0102", "9"))))
    rows = domain.decode(np.array([[0.0, 0], [1, 0], [2, 1]]))
    np.testing.assert_array_equal(parse("number(puma)").evaluate(rows, domain), [101, 102, 201])
    np.testing.assert_array_equal(parse("puma == before").evaluate(rows, domain), [False, True, False])


def test_a_column_written_and_read_is_itself_whatever_order_its_pairs_had():
    for column in (CAUSE, INNER):
        assert column_from_dict(column.to_dict()) == column
        assert Tree(name="cause", parents=column.parents, inner=column.inner, missing=column.missing) == column
    assert Tree(name="cause", parents=tuple(PARENTS.items())) == CAUSE
    assert CAUSE.describe() == "tree I, II, Z (5 codes, 3 deep)"


def test_a_domain_file_lists_codes_names_a_file_of_them_or_cuts_them_from_prefixes(tmp_path: Path):
    domain = Domain((CAUSE, INNER.__class__(name="b", parents={"x": "y", "z": "y"})))
    (tmp_path / "listed.toml").write_text(domain_toml(domain), encoding="utf-8")
    assert read_domain(tmp_path / "listed.toml") == domain
    head = '[[column]]\nname = "cause"\nkind = "tree"\n'
    rows = "".join(f"{code},{parent}\n" for code, parent in PARENTS.items())
    (tmp_path / "icd.csv").write_text("code,parent\n" + rows, encoding="utf-8")
    (tmp_path / "file.toml").write_text(head + 'parents = "icd.csv"\n', encoding="utf-8")
    assert read_domain(tmp_path / "file.toml").columns == (CAUSE,)
    table = "".join(f'"{code}" = "{parent}"\n' for code, parent in PARENTS.items())
    (tmp_path / "table.toml").write_text(f"{head}[column.parents]\n{table}", encoding="utf-8")
    assert read_domain(tmp_path / "table.toml").columns == (CAUSE,)
    (tmp_path / "cut.toml").write_text(
        head + 'prefixes = [2, 5]\nlevels = ["0600101", "0600102", "0900101", "99"]\n', encoding="utf-8"
    )
    cut = read_domain(tmp_path / "cut.toml")["cause"]
    assert isinstance(cut, Tree) and cut.nodes == ("06", "06001", "0600101", "0600102", "09", "09001", "0900101", "99")
    assert cut.levels == ("0600101", "0600102", "0900101", "99")


def test_a_tree_of_the_most_codes_is_made_at_once_and_a_larger_one_refused():
    parents = {f"c{k}": f"p{k % 100}" for k in range(MOST_CODES - 100)}
    assert len(Tree(name="x", parents=parents).levels) == MOST_CODES - 100
    with pytest.raises(DomainError, match="at most 20,000 codes"):
        Tree(name="x", parents=parents | {"one": "p0"})


def wide_tree(inner: bool = False, missing: bool = False) -> Tree:
    """3 chapters, 66 blocks, 330 codes: more blocks than the tables of pairs have."""
    parents = {f"b{k}": f"c{k % 3}" for k in range(66)} | {f"d{k}": f"b{k % 66}" for k in range(330)}
    return Tree(name="code", parents=parents, inner=inner, missing=missing)


@every([*product([margin_kernel, adaptive_kernel], [False, True])], of="kernel_of, inner")
def test_pairs_see_the_deepest_nodes_that_are_few_and_single_tables_every_depth_below(kernel_of, inner: bool):
    column = wide_tree(inner, missing=True)
    kernel = kernel_of(Domain((Categorical(name="sex", levels=("F", "M")), column)))
    assert kernel.sizes == (2, 4) and kernel.finer == (1, 1)
    blocks, codes = (70, 400) if inner else (67, 331)  # and missing; with inner each node is a code of its own
    assert kernel.fine_sizes == (blocks, codes)
    rows = np.column_stack([np.zeros(len(column.levels)), np.arange(len(column.levels))])
    cells = np.column_stack([kernel.cells(rows)[:, 1], kernel.fine_cells(rows)])
    for own, depth in zip(cells.T, range(3), strict=True):
        np.testing.assert_array_equal(own, column.group_of(rows[:, 1], depth))


def test_groups_are_the_nodes_of_a_depth():
    domain = Domain((wide_tree(missing=True), INNER))
    assert [group.label for group in groups_of(domain, "code")] == ["c0", "c1", "c2", "(missing)"]
    assert len(groups_of(domain, "code", 70)) == 67 and len(groups_of(domain, "code", 1000)) == 331
    with pytest.raises(ValueError, match=r"bins are the most groups, got \[1, 2\]\. Pass a number"):
        groups_of(domain, "code", [1, 2])
    rows = domain.decode(np.column_stack([np.zeros(9), np.arange(9)]))
    for bins in (3, 6, 9):
        groups = groups_of(domain, "cause", bins)
        held = np.array([parse(group.condition).evaluate(rows, domain) for group in groups])
        np.testing.assert_array_equal(held.sum(axis=0), 1)
        for group, rows_of in zip(groups, held, strict=True):
            assert group.code is None or list(np.flatnonzero(rows_of)) == [group.code]
    assert re.fullmatch(r"I \(unspecified\)", groups_of(domain, "cause", 6)[0].label)
