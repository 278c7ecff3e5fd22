"""Budgets fail closed: no release is uncounted, unlimited, weak or added to others that protect something else by mistake."""

from __future__ import annotations

import dataclasses
import math
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from curator_calls import call
from scipy.stats import norm

from kmeanalyst.kernels import Gaussian
from kmeanalyst.release import read_release
from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.numbers import Integer
from kmeanalyst.releases.statement import EXPONENTIAL, GAUSSIAN, LAPLACE
from release_side import LedgerWarning, publish, publish_function
from release_side.budget import spending
from release_side.budget.composition import Spend, holds_if_adaptive, one_more
from release_side.budget.ledger import Ledger
from release_side.door.mechanism import PublishError

DOMAIN = Domain((Integer(name="age", lower=17, upper=90),))
FRAME = DOMAIN.decode(DOMAIN.draw(60, 1))
UNITS = FRAME.assign(patient=[f"{k % 20}" for k in range(60)], visit=[f"{k}" for k in range(60)])
SMALL: dict[str, Any] = {"epsilon": 0.5, "delta": 1e-6, "points": 5, "features": 20}
METHODS: dict[str, dict[str, Any]] = {
    "random-features": {"points": 5, "features": 20}, "subspace": {"points": 5}, "exponential": {"points": 1},
}  # fmt: skip


class Unread(type(FRAME)):  # type: ignore[misc]
    """A table whose rows may not be read."""

    def set_axis(self, *facts: Any, **options: Any) -> Any:
        raise AssertionError("a row was read")


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    """Files of the curator: a table, its domain, a ledger in which "people" may spend (2, 1e-5), and an output."""
    UNITS.to_csv(tmp_path / "p.csv", index=False)
    (tmp_path / "d.toml").write_text(domain_toml(DOMAIN), encoding="utf-8")
    Ledger(tmp_path / "b.ledger").init("people", 2.0, 1e-5)
    return {name: str(tmp_path / name) for name in ("p.csv", "d.toml", "b.ledger", "o.kme", "other.ledger")}


def command(name: str, place: dict[str, str], *more: object, epsilon: float = 0.5, delta: float = 1e-6) -> Result:
    """One of the commands that spend, on the table, with these options."""
    sizes = {
        "publish": ("--points", 5, "--features", 20), "exponential": ("--method", "exponential", "--points", 1),
        "publish-function": ("--kind", "density", "--grid", 5),
    }[name]  # fmt: skip
    delta = 0 if name == "exponential" else delta
    words = ("--domain", place["d.toml"], "--epsilon", epsilon, "--delta", delta, "--output", place["o.kme"], *sizes)
    return call("publish" if name == "exponential" else name, place["p.csv"], *words, *more)


def refused(result: Result, place: dict[str, str], *said: str) -> None:
    """One clear error, no file, nothing spent, no ledger made."""
    assert result.exit_code == 1 and result.stdout == "", result.stdout
    assert result.stderr.splitlines()[-1].startswith("Error: ") and result.stderr.count("Error") == 1
    for text in said:
        assert text in result.stderr, result.stderr
    assert not Path(place["o.kme"]).exists() and not Path(place["other.ledger"]).exists()
    assert Ledger(place["b.ledger"]).account("people").releases == ()


COMMANDS = ("publish", "exponential", "publish-function")
counted = pytest.mark.parametrize("name", COMMANDS)


# ---------------------------------------------------------------------- a ledger and a table, or --uncounted


@counted
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--ledger", "other.ledger", "--table", "people"), ("there is no ledger {other.ledger}", "release-side ledger init")),
        (("--ledger", "b.ledger", "--table", "hospitals"),
         ("table 'hospitals' has no budget in", "nothing would limit it", "--unlimited", "ledger init")),
        (("--ledger", "b.ledger", "--table", "peopel"), ("'peopel' has no budget", "but 'people' does. If this is a typo")),
        ((), ("no ledger is named: releases of one table add up", "say --uncounted")),
        (("--uncounted", "--ledger", "b.ledger", "--table", "people"),
         ("ledger and uncounted contradict each other", "Leave out one of the two")),
    ],
    ids=["a mistyped file", "an unknown table", "a mistyped table", "no ledger", "both"],
)  # fmt: skip
def test_a_release_that_no_ledger_would_limit_is_refused_unless_the_curator_says_so(name, options, said, place):
    """Power: without the check of names, "peopel" is recorded and not limited, and "people" can be spent once more."""
    result = command(name, place, *(place.get(option, option) for option in options), epsilon=5)
    refused(result, place, *(text.replace("{other.ledger}", place["other.ledger"]) for text in said))


@counted
def test_uncounted_publishes_without_a_ledger_and_without_a_warning(name, place):
    result = command(name, place, "--uncounted")
    assert result.exit_code == 0 and Path(place["o.kme"]).exists()
    assert "ledger" not in result.stderr and "warning" not in result.stderr


@counted
def test_a_rehearsal_needs_neither_uncounted_nor_weak(name, place):
    result = command(name, place, "--rehearsal", 1, epsilon=50, delta=0.1)
    assert result.exit_code == 0 and "NOT PRIVATE" in result.stdout and "warning" not in result.stderr


def test_an_unlimited_table_counts_and_refuses_nothing(place):
    made = call("ledger", "init", place["other.ledger"], "--table", "open", "--unlimited")
    assert made.exit_code == 0 and "budget  unlimited: releases are counted and none is refused" in made.stdout
    for _ in range(2):
        result = command("publish", place, "--ledger", place["other.ledger"], "--table", "open", epsilon=9)
        assert result.exit_code == 0
        Path(place["o.kme"]).unlink()
    assert "as a release of table open, which is unlimited and has spent epsilon 13.69 at delta 1e-06" in result.stderr
    assert len(Ledger(place["other.ledger"]).account("open").releases) == 2


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--epsilon", 1],
        ["--delta", 1e-6],
        ["--unlimited", "--epsilon", 1, "--delta", 1e-6],
        ["--unlimited", "--delta", 1e-6],
    ],
)
def test_init_takes_a_budget_or_unlimited_and_makes_nothing_else(words, place):
    result = call("ledger", "init", place["other.ledger"], "--table", "open", *words)
    assert result.exit_code == 2 and "is --unlimited. Give one of the two" in result.stderr
    assert not Path(place["other.ledger"]).exists()


# ---------------------------------------------------------------------- from Python


@pytest.mark.parametrize(("choices", "times"), [([{}, {}], 1), ([{"uncounted": True}, {"rehearsal": 1}], 0)])
def test_publishing_without_a_ledger_warns_once_in_a_process_unless_that_is_meant(choices, times):
    spending._warn_once_without_ledger.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for choice in choices:
            publish(FRAME, DOMAIN, **SMALL, **choice)
    spending._warn_once_without_ledger.cache_clear()
    assert len(caught) == times
    for each in caught:
        assert each.category is LedgerWarning and str(each.message) == spending.NO_LEDGER
        assert each.filename == __file__  # the caller's line
    assert all(word in spending.NO_LEDGER for word in ("add up", "ledger=", "uncounted=True"))


def test_the_warning_comes_before_anything_is_read(monkeypatch):
    spending._warn_once_without_ledger.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(LedgerWarning, match="no ledger"):
            publish(Unread(FRAME), DOMAIN, **SMALL)
    spending._warn_once_without_ledger.cache_clear()


def test_uncounted_contradicts_a_ledger_in_python_too():
    choice = {"ledger": "b.ledger", "table": "people"}
    with pytest.raises(PublishError, match="ledger and uncounted contradict each other"):
        publish(Unread(FRAME), DOMAIN, **SMALL, **choice, uncounted=True)
    with pytest.raises(PublishError, match="ledger and uncounted contradict each other"):
        publish_function(Unread(FRAME), DOMAIN, kind="density", epsilon=1, delta=1e-6, grid=5, **choice, uncounted=True)


# ---------------------------------------------------------------------- weak guarantees

WEAK = [
    (10.5, 1e-6, r"epsilon 10\.5 is a weak guarantee: above 10 a release may distinguish single rows"),
    (
        1.0,
        1 / 60,
        r"delta 0\.0166667 is a weak guarantee for N = 60 rows: with delta of 1/N or more .* reveal whole rows",
    ),
]


@pytest.mark.parametrize(("epsilon", "delta", "message"), WEAK)
@pytest.mark.parametrize("name", ["publish", "publish-function"])
def test_a_weak_guarantee_needs_weak(name, epsilon, delta, message, place):
    book = Ledger(place["other.ledger"])
    book.init("open", unlimited=True)
    counted = ("--ledger", place["other.ledger"], "--table", "open")
    for more in (counted, ("--uncounted",)):
        result = command(name, place, *more, epsilon=epsilon, delta=delta)
        assert (
            result.exit_code == 1
            and "Nothing was spent. Choose less, or, if that is meant, pass --weak" in result.stderr
        )
        assert re.search(message, result.stderr) and not Path(place["o.kme"]).exists()
    assert book.account("open").releases == ()
    assert command(name, place, *counted, "--weak", epsilon=epsilon, delta=delta).exit_code == 0
    assert len(book.account("open").releases) == 1


def test_weak_is_above_ten_or_from_one_in_n_on():
    """By public facts alone: no row is read."""
    for epsilon, delta, weak in [(10.0, 0.99 / 60, False), (10.001, 1e-6, True), (1.0, 1 / 60, True)]:
        choices: dict[str, Any] = SMALL | {"epsilon": epsilon, "delta": delta, "uncounted": True}
        if weak:
            with pytest.raises(PublishError, match="weak guarantee"):
                publish(Unread(FRAME), DOMAIN, **choices)
        with pytest.raises(AssertionError, match="a row was read"):
            publish(Unread(FRAME), DOMAIN, **choices, weak=weak)


def test_the_exponential_mechanism_asks_for_weak_too():
    with pytest.raises(PublishError, match="epsilon 11 is a weak guarantee"):
        publish(Unread(FRAME), DOMAIN, method="exponential", epsilon=11, delta=0, points=1, uncounted=True)


def test_units_are_counted_for_weak_and_not_their_rows():
    """20 patients with 60 rows: δ = 1/30 would be weak for 60 rows and is strong enough to be let through for 20 units."""
    choices: dict[str, Any] = SMALL | {"unit": "patient", "uncounted": True}
    assert publish(UNITS, DOMAIN, **choices | {"delta": 1 / 30}).statement is not None
    with pytest.raises(PublishError, match=r"for N = 20 units of 'patient': .* may reveal whole units of 'patient'"):
        publish(UNITS, DOMAIN, **choices | {"delta": 1 / 20})


# ---------------------------------------------------------------------- units of one kind


def test_releases_that_protect_different_units_do_not_add_up(place):
    """At δ = 1e-6 two releases of ε = .9 are (1.31, 1e-6) together; a patient with ten visits has lost (12.05, 1e-6).

    By arithmetic: the release of patients moves by at most its sensitivity, that of visits by ten times its own.
    """
    counted = ("--ledger", place["b.ledger"], "--table", "people")
    assert command("publish", place, *counted, "--unit", "patient", epsilon=0.9).exit_code == 0
    Path(place["o.kme"]).unlink()
    second = command("publish", place, *counted, "--unit", "visit", epsilon=0.9)
    assert second.exit_code == 1 and not Path(place["o.kme"]).exists()
    assert "protect units of 'patient', and this one would protect units of 'visit'" in second.stderr
    assert "Protect the same, or count it under another name and budget" in second.stderr
    account = Ledger(place["b.ledger"]).account("people")
    assert len(account.releases) == 1 and account.protects == "units of 'patient'"
    assert "units of 'patient'" in call("ledger", "show", place["b.ledger"]).stdout
    multiplier = one_more(0.9, 1e-6, GAUSSIAN).noise_multiplier
    assert round(_epsilon(math.hypot(1, 1) / multiplier), 2) == 1.31
    assert round(_epsilon(math.hypot(1, 10) / multiplier), 2) == 12.05


def _epsilon(shift: float) -> float:
    """ε of a Gaussian release at δ = 1e-6, by the shift of its neighbours in standard deviations."""
    low, high = 0.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        delta = norm.cdf(shift / 2 - middle / shift) - math.exp(middle) * norm.cdf(-shift / 2 - middle / shift)
        low, high = (middle, high) if delta > 1e-6 else (low, middle)
    return high


@pytest.mark.parametrize(("first", "second"), [("patient", None), (None, "patient"), ("patient", "Patient")])
def test_unlike_units_are_refused_whichever_comes_first(first, second, place):
    book = Ledger(place["b.ledger"])
    spends = [
        dataclasses.replace(one_more(0.1, 1e-6, GAUSSIAN), unit=unit, neighbouring="replace-one" + "-unit" * bool(unit))
        for unit in (first, second)
    ]
    book.record("people", spends[0])
    for action in (book.check, book.record):
        with pytest.raises(PublishError, match="do not add up to one guarantee"):
            action("people", spends[1])
        action("people", spends[0])


def test_a_unit_has_a_name_and_rows_have_none():
    spend, statement = one_more(0.1, 1e-6, GAUSSIAN), publish(FRAME, DOMAIN, **SMALL, rehearsal=1).statement
    assert statement is not None
    of_units = [("replace-one-unit", unit) for unit in (None, "", "a\nb", "x" * 201, 7)]
    for neighbouring, unit in [("replace-one", "patient"), *of_units]:
        with pytest.raises(PublishError, match="units need the name of the column"):
            dataclasses.replace(spend, neighbouring=neighbouring, unit=unit)
        with pytest.raises(ValueError, match="unit"):
            dataclasses.replace(statement, neighbouring=neighbouring, unit=unit)


def test_the_name_of_the_column_is_in_the_file_and_taken_as_public(place):
    output = place["o.kme"]
    assert command("publish", place, "--uncounted", "--unit", "patient").exit_code == 0
    release = read_release(output)
    statement = release.statement
    assert statement is not None and statement.to_dict()["unit"] == "patient"
    assert (statement.unit, statement.n_rows, statement.counted) == ("patient", 20, "units of 'patient'")
    assert "20 units of 'patient', of equal weight" in release.summary()["table"]
    assert statement.taken_as_public[0] == (
        "the number P of units of 'patient' (not that of their rows) and the names of the columns, 'patient' included"
    )
    assert "person" not in repr(release)


def test_a_column_whose_name_cannot_stand_in_a_file_is_no_unit():
    frame = UNITS.rename(columns={"patient": "\x1b[2J"})
    with pytest.raises(PublishError, match=r"its name cannot stand in a file: .* Rename the column"):
        publish(frame, DOMAIN, **SMALL, unit="\x1b[2J", uncounted=True)


# ---------------------------------------------------------------------- choices that depend on earlier releases


def spends(*asked: tuple[float, float, str]) -> list[Spend]:
    return [one_more(*each) for each in asked]


GAUSS, LAP, EXPO = (1.0, 1e-6, GAUSSIAN), (1.0, 0.0, LAPLACE), (1.0, 0.0, EXPONENTIAL)


def test_mixtures_that_the_sums_do_not_admit_hold_only_if_chosen_beforehand():
    for asked, budget, holds in [
        ([GAUSS, GAUSS], (1.5, 1e-6), True),  # Gaussian alone: a filter, by the exact rule or by sums
        ([LAP, LAP], (2.0, 0.0), True),  # sums
        ([LAP, LAP], (2.0, 1e-6), True),  # sums are enough, whatever the delta
        ([GAUSS, LAP], (2.0, 1e-6), True),
        ([LAP, LAP], (1.99, 1e-2), False),  # by the exact δ(ε) alone
        ([GAUSS, LAP], (1.9, 1e-6), False),
        ([GAUSS, EXPO], (1.9, 1e-6), False),
        ([GAUSS, GAUSS, LAP], (3.0, 1e-6), False),  # Σδ is 2e-6
        ([LAP], (0.99, 1e-2), True),  # nothing was seen before the first
    ]:
        assert holds_if_adaptive(spends(*asked), *budget) == holds


def test_a_warning_before_the_draw_where_the_choice_may_not_depend_on_earlier_releases(place):
    book = Ledger(place["other.ledger"])
    book.init("mixed", 1.48, 1e-6)
    counted: dict[str, Any] = {"ledger": book.path, "table": "mixed", "kernel": Gaussian(20.0)}
    publish(FRAME, DOMAIN, **SMALL | {"epsilon": 1.0}, **counted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            LedgerWarning, match=r"chosen before the first release was seen.*use Gaussian noise throughout, or"
        ):
            publish(Unread(FRAME), DOMAIN, **SMALL | {"delta": 0, "noise": "laplace"}, **counted)
    assert len(book.account("mixed").releases) == 1 and book.account("mixed").holds_if_adaptive
    with pytest.warns(LedgerWarning, match="table 'mixed' has noise that is not Gaussian"):
        publish(FRAME, DOMAIN, **SMALL | {"delta": 0, "noise": "laplace"}, **counted)
    assert not book.account("mixed").holds_if_adaptive
    shown = call("ledger", "show", book.path)
    assert "note    the total and what is left hold only if every epsilon was chosen before" in shown.stdout


def test_the_command_line_warns_on_standard_error(place):
    book = Ledger(place["other.ledger"])
    book.init("mixed", unlimited=True)
    counted = ("--ledger", book.path, "--table", "mixed")
    assert "warning" not in command("publish", place, *counted).stderr
    Path(place["o.kme"]).unlink()
    second = command("publish", place, *counted, "--noise", "laplace", delta=0)
    assert second.exit_code == 0
    (line,) = [line for line in second.stderr.splitlines() if line.startswith("warning: ")]
    assert line.startswith("warning: with this release table 'mixed' has noise that is not Gaussian")
    assert "LedgerWarning" not in second.stderr


def test_gaussian_releases_alone_are_not_warned_about(place):
    book = Ledger(place["b.ledger"])
    for _ in range(2):
        publish(FRAME, DOMAIN, **SMALL, ledger=book.path, table="people")  # a warning would be an error
    assert book.account("people").holds_if_adaptive
