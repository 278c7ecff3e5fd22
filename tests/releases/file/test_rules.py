"""Rules in a file: read back as written, refused where they do not fit, checked by `validate` against points and measurement."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from file_tools import (
    SCHEMA_TEST,
    Members,
    all_of,
    bare,
    check_refusals,
    forged,
    members_of,
    same,
    setting,
    with_verdict_of_schema,
)  # fmt: skip

import release_side
from kmeanalyst.cli.main import main
from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.file import FileRefused, validate_release, write_release
from kmeanalyst.releases.rules.rule import Rule
from kmeanalyst.releases.rules.violations import violations_of
from release_side.publishing.methods.adaptive.shares_of_rounds import with_sets

COLUMNS = (
    Integer(name="came", lower=0, upper=99), Integer(name="left", lower=0, upper=99), Integer(name="stay", lower=0, upper=99),
    Boolean(name="works"), Real(name="wage", lower=0, upper=1000, missing=True),
    Categorical(name="city", levels=("Basel", "Bern", "Genf")), Categorical(name="state", levels=("BS", "BE", "GE"), missing=True),
)  # fmt: skip
RULES = (
    Rule("never", "works and came > 60"), Rule("always", "left >= came"), Rule("missing", "not works", ("wage",)),
    Rule("combinations", columns=("city", "state"), rows=(("Basel", "BS"), ("Bern", "BE"), ("Genf", ""))),
    Rule("derive", "left - came", ("stay",)),
)  # fmt: skip
DOMAIN = Domain(COLUMNS, rules=RULES)
CELLS = pd.DataFrame({
    "came": [1, 2, 70], "left": [4, 2, 99], "works": [True, False, False], "wage": [3.5, np.nan, np.nan],
    "city": ["Basel", "Bern", "Genf"], "state": ["BS", "BE", None],
})  # fmt: skip


def released(domain: Domain = DOMAIN, cells: pd.DataFrame = CELLS) -> Release:
    return bare(domain.decode(domain.encode(cells)), np.full(len(cells), 1 / len(cells)), domain)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_release(released(), tmp_path / "rules.kme")
    return tmp_path / "rules.kme"


def test_rules_read_back_are_the_rules_written(path):
    header = json.loads(members_of(path)["release.json"])
    SCHEMA_TEST.validate(header)
    assert header["schema_minor"] == 2 and header["rules"][0] == {"never": "works and came > 60"}
    same(read_release(path), released())
    assert read_release(path).domain.rules == RULES
    assert validate_release(path) == []


def test_rules_and_columns_of_an_analyst_go_together(tmp_path):
    both = released().transform({"twice": "2 * stay"})
    write_release(both, tmp_path / "both.kme")
    SCHEMA_TEST.validate(json.loads(members_of(tmp_path / "both.kme")["release.json"]))
    same(read_release(tmp_path / "both.kme"), both)


def test_a_release_computes_derived_cells_whatever_its_points_say():
    points = released().frame.assign(stay=[77, 77, 77])
    assert bare(points, np.ones(3) / 3, DOMAIN).frame["stay"].tolist() == [3, 0, 29]
    assert bare(points.drop(columns="stay"), np.ones(3) / 3, DOMAIN).frame["stay"].tolist() == [3, 0, 29]


def many(header: dict[str, Any], members: Members) -> None:
    header["rules"] = [{"never": "came > 60 and works"}] * 201


def wordy(header: dict[str, Any], members: Members) -> None:
    header["rules"] = [{"never": "came" + "+came" * 390 + " < 0"} for _ in range(200)]


def heavy(header: dict[str, Any], members: Members) -> None:
    header["rules"][4]["as"] = "left - came" + "+0*left" * 250
    header["n_points"] = 40_000


def test_a_false_rule_is_refused(path, tmp_path):
    check_refusals("rules", lambda edit: with_verdict_of_schema(forged(path, edit), tmp_path, SCHEMA_TEST), **globals())


def test_a_later_minor_version_may_have_rules_too(path):
    path.write_bytes(forged(path, all_of(setting("schema_minor", to=4), setting("remark", to=[1]))))
    assert read_release(path).domain.rules == RULES


def test_validate_names_each_rule_that_a_released_row_breaks(tmp_path):
    cells = CELLS.assign(left=[0, 2, 99], works=[True, False, True])
    write_release(released(cells=cells), tmp_path / "broken.kme")
    findings = validate_release(tmp_path / "broken.kme")
    assert [finding.split(" (")[0] for finding in findings] == ["rule 1", "rule 2", "rule 3"]
    assert "33.333% of the points break it" in findings[0]
    done = CliRunner().invoke(main, ["validate", str(tmp_path / "broken.kme")])
    assert done.exit_code == 3


def test_info_lists_the_rules(path):
    shown = CliRunner().invoke(main, ["info", str(path)]).output
    assert "rule 1 (never works and came > 60)" in shown and "rule 5 (stay = left - came)" in shown
    told = json.loads(CliRunner().invoke(main, ["info", str(path), "--json"]).output)["rules"]
    assert told[1]["always"] == "left >= came" and told[1]["broken"]["share"] is None


rough = pytest.mark.usefixtures("rough_representation")


def table(broken: int, n: int = 20_000) -> pd.DataFrame:
    """n rows, of which so many work at an age at which the rule forbids it; nobody else below 15 works."""
    rng = np.random.default_rng(1)
    age, works = rng.integers(0, 100, n), rng.random(n) < 0.5
    works[age < 15] = False
    age[:broken], works[:broken] = 7, True
    return pd.DataFrame({"age": age, "works": works})


AGES = Domain(
    (Integer(name="age", lower=0, upper=99, edges=(15, 65)), Boolean(name="works")), rules=(Rule("never", "works and age < 15"),)
)


@rough
@pytest.mark.parametrize(("broken", "contradicted"), [(0, False), (1000, True)])
def test_a_rule_that_the_measurement_contradicts_is_named(broken, contradicted, tmp_path):
    """1,000 of 20,000 rows are 5 %; the noise at ε = 1 on a cell is about .09 %."""
    path = tmp_path / "ages.kme"
    release = release_side.publish(
        table(broken), AGES, epsilon=1, delta=1e-6, kernel="margins", points=50, rehearsal=1, output=path
    )
    (violation,) = violations_of(release.domain, release.measurement)
    assert violation.share == pytest.approx(broken / 20_000, abs=4 * violation.standard_deviation)
    assert violation.is_contradicted == contradicted and "at least 0.0" in replace(violation, share=-0.1).describe()
    assert release.statement.taken_as_public[-1] == "rules of the domain: 1"
    findings = [each for each in validate_release(path, allow_rehearsal=True) if each.startswith("rule 1 ") and "at least" in each]
    assert bool(findings) == contradicted
    assert ("contradicted by the measurement: rule 1 (never works and age < 15): at least" in repr(release)) == contradicted
    told = json.loads(CliRunner().invoke(main, ["info", str(path), "--json", "--allow-rehearsal"]).stdout)
    assert told["rules"][0]["broken"]["contradicted"] == contradicted


@rough
def test_the_share_of_a_rule_is_read_off_any_table_with_its_columns():
    """The rule's columns are two of a pair's, or of three axes."""
    domain = Domain(
        (AGES.columns[0], Boolean(name="rich"), AGES.columns[1]),
        rules=(Rule("never", "works and age < 15"), Rule("never", "rich and works and age > 80")),
    )  # fmt: skip
    frame = table(1000).assign(rich=np.arange(20_000) % 3 == 0)
    for sets in ([], [(0, 1, 2)]):
        kernel = with_sets(margin_kernel(domain), sets)
        release = release_side.publish(frame, domain, epsilon=10, delta=1e-6, kernel=kernel, points=50, rehearsal=1)
        found = {each.rule: each for each in violations_of(release.domain, release.measurement)}
        assert found[0].share == pytest.approx(0.05, abs=4 * found[0].standard_deviation)
        assert (1 in found) == bool(sets)


@rough
def test_a_row_that_breaks_a_rule_is_measured_like_any_other():
    """The noisy sum of a table is the same with and without rules, whatever rows break them."""
    free = replace(AGES, rules=())
    one, other = (
        release_side.publish(table(1000), domain, epsilon=1, delta=1e-6, kernel="margins", points=50, rehearsal=1)
        for domain in (AGES, free)
    )
    np.testing.assert_array_equal(one.measurement.noisy_sum, other.measurement.noisy_sum)
    assert one.statement.n_rows == other.statement.n_rows == 20_000


def test_rules_that_take_too_long_to_try_are_refused_on_reading_and_before_anything_is_spent(tmp_path):
    """A rule of two columns of 500 levels is tried 250,000 times, each at the price of its 200 characters."""
    columns = tuple(Categorical(name=name, levels=tuple(f"l{k}" for k in range(500))) for name in ("a", "b"))
    long = Rule("never", "a == 'l1' and (b == 'l2'" + " or b == 'l3'" * 13 + ")")
    few, many = (Domain(columns, rules=(long,) * n) for n in (1, 10))
    cells = pd.DataFrame({"a": ["l5"] * 9, "b": ["l7"] * 9})
    write_release(released(few, cells), tmp_path / "few.kme")
    assert validate_release(tmp_path / "few.kme") == []
    write_release(released(many, cells), tmp_path / "many.kme")
    with pytest.raises(FileRefused, match=r"the rules are not tried at 9 points .* --large"):
        read_release(tmp_path / "many.kme")
    with pytest.raises(release_side.PublishError, match=r"steps to try its rules, and .* allow .* Write shorter rules"):
        release_side.publish(cells, many, epsilon=1, delta=1e-6, kernel="margins", rehearsal=1)


def test_a_rule_over_too_many_values_is_refused_before_anything_is_spent():
    columns = tuple(Categorical(name=name, levels=tuple(f"l{k}" for k in range(300))) for name in ("a", "b", "c"))
    domain = Domain(columns, rules=(Rule("never", "a == 'l1' and b == 'l2' and c == 'l3'"),))
    message = "27,000,000 combinations of values, and at most 4,194,304 are tried"
    with pytest.raises(release_side.DomainError, match=message):
        release_side.publish(pd.DataFrame({name: ["l5"] for name in "abc"}), domain, epsilon=1, delta=1e-6, rehearsal=1)
