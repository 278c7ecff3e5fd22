"""Rules that a public sample suggests: what would be frequent by chance and is never seen, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import release_side
from kmeanalyst.releases.domain.domain import read_domain
from kmeanalyst.releases.rules import proposals
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.proposals import propose_rules
from release_side.choices.drafting import draft_toml
from release_side.cli.main import main

N = 2000


def people(n: int = N, seed: int = 0) -> pd.DataFrame:
    """Children have no work, no degree and no wage; nobody leaves before they came."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 90, n)
    works = (rng.random(n) < 0.6) & (age >= 15)
    degree = np.where(age < 18, "none", rng.choice(["none", "school", "doctor's"], n))
    came = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D")
    return pd.DataFrame({
        "age": age, "works": np.where(works, "yes", "no"), "degree": degree,
        "wage per hour": np.where(works, rng.gamma(5, 8, n).round(2), np.nan),
        "came": came, "left": came + pd.to_timedelta(rng.integers(0, 99, n), unit="D"), "coin": rng.choice(["head", "tail"], n),
    })  # fmt: skip


def proposed(frame: pd.DataFrame) -> dict[str, release_side.Draft]:
    draft = release_side.draft_domain(frame, this_sample_is_public=True)
    return {rule.describe(): note for rule, note in draft.rules}


def test_a_sample_suggests_thresholds_lists_missing_cells_and_orders():
    found = proposed(people())
    assert "never age < 15 and works == true" in found
    assert "never age < 18 and degree in [\"doctor's\", 'school']" in found
    assert "wage per hour is missing exactly where works == false" in found
    assert "always left >= came" in found
    assert not [text for text in found if "coin" in text]


def test_each_proposal_says_what_the_sample_can_exclude():
    """3/2,000 is 1,500 in a million."""
    note = proposed(people())["never age < 15 and works == true"]
    share = (people()["age"] < 15).mean() * (people()["works"] == "yes").mean()
    assert note.startswith("CHECK rule: none of 2,000 rows breaks it, by chance ")
    assert int(note.split("by chance ")[1].split(" ")[0].replace(",", "")) == pytest.approx(N * share, abs=1)
    assert note.endswith("up to 0.15 % of rows may (95 %: 1,500 in a million)")


def test_no_row_of_the_sample_breaks_a_proposal_and_chance_would_break_it_ten_times():
    frame = people(800, seed=3)
    frame.loc[0, ["age", "works"]] = [7, "yes"]  # one child works: the threshold is then lower
    draft = release_side.draft_domain(frame, this_sample_is_public=True)
    found = propose_rules(frame, draft.domain)
    assert len(found) > 3
    for each in found:
        domain = replace(draft.domain, rules=(each.rule,))
        assert not rules_of(domain).broken(domain.encode(frame)).any(), each.rule.describe()
        assert each.expected >= 10


def test_of_many_rows_some_are_looked_at_and_all_must_keep_what_they_suggest(monkeypatch):
    """Every fourth row has no child who works; one of the others has."""
    monkeypatch.setattr(proposals, "_MOST_ROWS", 1000)
    frame = people(4000)
    domain = release_side.draft_domain(frame, this_sample_is_public=True).domain
    texts = {each.rule.describe(): each for each in propose_rules(frame, domain)}
    assert texts["never age < 15 and works == true"].n_rows == 4000
    some = frame.iloc[::4]
    share = (some["age"] < 15).mean() * (some["works"] == "yes").mean()
    assert texts["never age < 15 and works == true"].expected == pytest.approx(4000 * share)
    frame.loc[5, ["age", "works"]] = [14, "yes"]
    found = {each.rule.describe() for each in propose_rules(frame, domain)}
    assert "always left >= came" in found and "never age < 15 and works == true" not in found


def test_independent_columns_suggest_no_rule():
    """Of some thousand cells one that is expected ten times is empty with probability e⁻¹⁰."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({f"x{j}": rng.integers(0, 12, 3000).astype(str) for j in range(4)})
    frame["level"] = rng.choice(list("abcdef"), 3000)
    frame["number"] = rng.normal(size=3000)
    frame.loc[rng.random(3000) < 0.3, "number"] = np.nan
    assert proposed(frame) == {}


def test_the_draft_is_a_domain_whose_rules_are_put_in_force_by_hand(tmp_path):
    frame = people()
    frame.to_csv(tmp_path / "sample.csv", index=False)
    arguments = [
        "draft-domain",
        str(tmp_path / "sample.csv"),
        "--this-sample-is-public",
        "--output",
        str(tmp_path / "domain.toml"),
    ]
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0 and "rules are proposed at its end, commented out" in done.stderr
    told = json.loads(done.stdout)["rules"]
    text = (tmp_path / "domain.toml").read_text()
    assert read_domain(tmp_path / "domain.toml").rules == ()
    assert text.count("# [[rule]]") == len(told) > 3 and told[0]["note"].startswith("CHECK rule")
    head, _, tail = text.partition("# Rules that the sample suggests")
    lines = tail.splitlines()[2:]
    active = [line if line.startswith("# CHECK") else line.removeprefix("# ") for line in lines]
    (tmp_path / "domain.toml").write_text("\n".join([head, *active]))
    assert len(read_domain(tmp_path / "domain.toml").rules) == len(told)
    assert draft_toml(release_side.draft_domain(frame[["coin"]], this_sample_is_public=True)).count("rule") == 0
