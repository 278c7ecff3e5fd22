"""Rules on a domain: which rows break one, what a derived column is, which cells of tables a rule allows."""

from __future__ import annotations

import pickle
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import refusals
from contracts import every

from kmeanalyst.releases.domain.domain import Domain, domain_toml, read_domain
from kmeanalyst.releases.domain.kernels_for_domain import adaptive_kernel, one_way_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.kept_rows import check_kept, kept_row
from kmeanalyst.releases.rules.rule import Rule

AGE = Integer(name="age", lower=0, upper=99)
WORKS = Boolean(name="works")
WAGE = Real(name="wage", lower=0, upper=100_000, missing=True)
CAME = Integer(name="came", lower=0, upper=300, missing=True)
LEFT = Integer(name="left", lower=0, upper=300, missing=True)
STAY = Integer(name="stay", lower=0, upper=300, missing=True)
CITY = Categorical(name="city", levels=("Basel", "Bern", "Genf"))
STATE = Categorical(name="state", levels=("BS", "BE", "GE"), missing=True)


def broken(rule: Rule, *columns, **cells) -> list[bool]:
    domain = Domain(columns, rules=(rule,))
    return rules_of(domain).broken(domain.encode(cells)).tolist()


def test_a_condition_that_never_holds_is_broken_where_it_does():
    rule = Rule("never", "works and age < 15")
    assert broken(rule, AGE, WORKS, age=["14", "15", "9"], works=["yes", "yes", "no"]) == [True, False, False]


def test_a_condition_that_always_holds_is_broken_where_it_is_definitely_false():
    rule = Rule("always", "left >= came")
    came, left = ["3", "3", "", "3"], ["5", "2", "2", ""]
    assert broken(rule, CAME, LEFT, came=came, left=left) == [False, True, False, False]


@every(
    [
        ("missing(wage) or works", [True, False, False]),  # the cell itself is asked for
        ("not missing(wage) or not works", [False, False, True]),
        ("works", [True, False, False]),
        ("not works", [False, True, True]),
        ("0 < wage <= 10", [False, True, False]),
        ("wage in [10, 11]", [False, True, False]),
        ("where(works, wage == 20, wage > 50)", [True, False, False]),
        ("works == (wage > 15)", [False, False, True]),
    ],
    of="text, expected",
)
def test_always_denies_every_form_of_condition(text, expected):
    works, wage = ["no", "yes", "yes"], ["10", "20", ""]
    assert broken(Rule("always", text), WORKS, WAGE, works=works, wage=wage) == expected


def test_missing_exactly_where():
    rule = Rule("missing", "not works", ("wage",))
    cells = {"works": ["yes", "yes", "no", "no"], "wage": ["5", "", "5", ""]}
    assert broken(rule, WORKS, WAGE, **cells) == [False, True, True, False]


def test_combinations_are_those_of_the_list_missing_cells_too():
    rule = Rule("combinations", columns=("state", "city"), rows=(("BS", "Basel"), ("BE", "Bern"), ("", "Genf")))
    cells = {"city": ["Basel", "Basel", "Genf", "Genf"], "state": ["BS", "BE", "", "GE"]}
    assert broken(rule, CITY, STATE, **cells) == [False, True, False, True]


def test_a_derived_column_is_computed_and_its_cell_is_not_read():
    domain = Domain((CAME, STAY, LEFT), rules=(Rule("derive", "left - came", ("stay",)),))
    rows = domain.encode({"came": ["3", "3", ""], "left": ["5", "2", "9"], "stay": ["77", "x", ""]})
    np.testing.assert_array_equal(rows[:, 1], [2, 0, np.nan])  # clamped to the bounds; undefined: missing
    without = domain.encode({"came": ["3", "3", ""], "left": ["5", "2", "9"]})
    np.testing.assert_array_equal(rows, without)
    assert domain.names_read == ("came", "left")
    np.testing.assert_array_equal(domain.encode(domain.decode(rows)), rows)
    assert not rules_of(domain).broken(rows).any()
    assert rules_of(domain).broken(rows + np.array([0, 1, 0])).tolist() == [True, True, False]


def test_an_undefined_derived_value_is_the_default_where_missing_is_not_declared():
    stay = Integer(name="stay", lower=0, upper=300, default=7)
    domain = Domain((CAME, stay), rules=(Rule("derive", "came + 1", ("stay",)),))
    np.testing.assert_array_equal(domain.encode({"came": ["3", ""]})[:, 1], [4, 7])


def test_derived_columns_may_use_each_other_and_have_levels():
    levels = Categorical(name="tens", levels=("0", "1", "2", "many"), default="many")
    domain = Domain(
        (levels, Boolean(name="long"), STAY, CAME, LEFT),
        rules=(
            Rule("derive", "floor(stay / 10)", ("tens",)), Rule("derive", "stay > 15", ("long",)),
            Rule("derive", "left - came", ("stay",)),
        ),
    )  # fmt: skip
    frame = domain.decode(domain.encode({"came": ["0", "0", "0"], "left": ["5", "16", "80"]}))
    assert frame["tens"].tolist() == ["0", "1", "many"]
    assert frame["long"].tolist() == [False, True, True]


def test_encoding_is_row_by_row_whatever_other_rows_hold():
    domain = Domain((CAME, STAY, LEFT), rules=(Rule("derive", "1000 / (left - came)", ("stay",)),))
    cells = {"came": ["3", "3", "", "nonsense", "9" * 400], "left": ["5", "3", "9", "7", "-inf"]}
    together = domain.encode(cells)
    alone = [domain.encode({name: [own[i]] for name, own in cells.items()}) for i in range(5)]
    np.testing.assert_array_equal(together, np.vstack(alone))


def test_cells_are_allowed_that_hold_a_row_which_keeps_the_rule():
    domain = Domain((AGE, WORKS, WAGE), rules=(Rule("never", "works and age < 15"), Rule("missing", "not works", ("wage",))))
    rules = rules_of(domain)
    assert rules.columns == ((0, 1), (1, 2)) and dict(rules.cuts) == {0: (14.5,)}
    kernel = adaptive_kernel(domain, asked=rules.cuts)
    first = rules.cells_allowed(kernel, 0)
    below = np.array([*kernel.edges[0], np.inf]) <= 14.5
    np.testing.assert_array_equal(first, np.column_stack([np.ones(len(below), bool), ~below]))
    second = rules.cells_allowed(kernel, 1)
    assert second[0].tolist() == [False] * (kernel.sizes[2] - 1) + [True]
    assert second[1].tolist() == [True] * (kernel.sizes[2] - 1) + [False]


def test_cells_of_column_against_column_and_of_derived_columns():
    came, left, stay = (Integer(name=name, lower=0, upper=300, edges=(100, 200)) for name in ("came", "left", "stay"))
    domain = Domain((came, left, stay), rules=(Rule("always", "left >= came"), Rule("derive", "left - came", ("stay",))))
    rules, kernel = rules_of(domain), one_way_kernel(domain, (0, 1, 2), ranged=True).kernel
    np.testing.assert_array_equal(rules.cells_allowed(kernel, 0), np.triu(np.ones((3, 3), bool)))
    table = rules.cells_allowed(kernel, 1)
    assert table[0, 2].tolist() == [False, True, True]  # 101 to 300
    assert table[2, 0].tolist() == [True, False, False]  # clamped to 0


def test_rules_read_back_from_the_domain_file_are_the_rules_written(tmp_path):
    (tmp_path / "pairs.csv").write_text("state,zip,city\nBS,4000,Basel\nBE,3000,Bern\n,1200,Genf\n")
    texts = domain_toml(Domain((CITY, STATE, CAME, LEFT, STAY)))
    path = tmp_path / "domain.toml"
    path.write_text(
        texts + '\n[[rule]]\ncombinations = ["city", "state"]\nfile = "pairs.csv"\n'
        '[[rule]]\nderive = "stay"\nas = "left - came"\n[[rule]]\nmissing = "came"\nwhere = "missing(left)"\n'
    )
    domain = read_domain(path)
    assert domain.rules[0].rows == (("Basel", "BS"), ("Bern", "BE"), ("Genf", ""))
    path.write_text(domain_toml(domain))
    assert read_domain(path) == domain


COLUMNS = (AGE, WORKS, WAGE, CAME, LEFT, STAY, CITY, STATE)


def read(rule: str) -> Domain:
    """The domain of all columns with this rule, from its file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "domain.toml"
        path.write_text(f"{domain_toml(Domain(COLUMNS))}\n[[rule]]\n{rule}".replace("; ", "\n"))
        return read_domain(path)


def kept(*texts: str) -> None:
    """Whether a row of three small numbers and a boolean keeps these rules."""
    numbers = tuple(Integer(name=name, lower=0, upper=500) for name in ("x", "y", "z"))
    check_kept(Domain((*numbers, WORKS), rules=tuple(Rule("always", text) for text in texts)))


def test_rules_that_do_not_fit_a_domain_or_leave_no_row_are_refused():
    refusals.check(Path(__file__).parent / "refusals.txt", lambda text: eval(text, globals()))


def test_a_row_is_found_that_keeps_rules_which_hardly_any_drawn_row_keeps():
    """Each column alone, a chain of equal columns, and a permutation of ten values."""
    kept("x == 77", "y == x", "z == y")
    kept("x > y", "y > z", "z == 100", "works == (x == 200)")
    places = tuple(Integer(name=f"x{i}", lower=0, upper=9) for i in range(10))
    domain = Domain(places, rules=tuple(Rule("never", f"x{i} == x{j}") for i, j in combinations(range(10), 2)))
    row = kept_row(domain)
    assert row is not None and sorted(row) == list(range(10)) and not rules_of(domain).broken(row[None]).any()
    assert np.array_equal(kept_row(Domain(places, rules=domain.rules)), row)


SOUND = [
    Rule("never", "age < 15 and wage > 100"), Rule("always", "wage >= 300 * age"), Rule("always", "left - came > 5 or works"),
    Rule("missing", "age > 40 or works", ("wage",)), Rule("never", "wage / 1000 + age > 120 and city == 'Bern'"),
    Rule("derive", "log(1 + wage) * 7", ("score",)), Rule("derive", "left - came", ("stay",)),
    Rule("derive", "wage % 1000 / 10", ("score",)), Rule("never", "rate > 2 * share"), Rule("always", "rate <= 2 * share or works"),
]  # fmt: skip


@every(SOUND, of="rule")
@every([True, False], of="asked")
def test_a_row_that_keeps_a_rule_is_in_an_allowed_cell(rule, asked):
    """20,000 rows drawn from the domain, of ranges that end where rules change and of ranges that do not."""
    columns = (
        AGE, WORKS, WAGE, CAME, LEFT, STAY, CITY,
        Real(name="score", lower=0, upper=99, atoms=(0,), edges=(1, 20, 70, 77), missing=True),
        Real(name="rate", lower=0.01, upper=50, scale="log"), Real(name="share", lower=0, upper=20),
    )  # fmt: skip
    domain = Domain(columns, rules=(rule,))
    rules = rules_of(domain)
    kernel = adaptive_kernel(domain, asked=rules.cuts if asked else {})
    X = domain.draw(20_000, 0)
    kept = X[~rules.broken(X)]
    allowed = rules.cells_allowed(kernel, 0)
    assert len(kept) > 100 and allowed[tuple(kernel.cells(kept)[:, j] for j in rules.columns[0])].all()
    cells = kernel.cells(X)[:, list(rules.columns[0])]
    if rule.kind != "derive":
        forbidden = ~allowed[tuple(cells.T)]
        assert rules.broken(X)[forbidden].all()


def test_a_domain_of_lists_is_compiled_and_pickles_without_what_was_compiled():
    domain = Domain([AGE, WORKS], rules=[Rule("never", "works and age < 15")])
    assert len(rules_of(domain)) == 1 and rules_of(domain) is rules_of(domain)
    again = pickle.loads(pickle.dumps(domain))
    assert again == domain and "_memo" not in again.__dict__
