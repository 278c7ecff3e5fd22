"""Budgets fail closed: no release is uncounted, unlimited, weak or added to others that protect something else by mistake."""

from __future__ import annotations

import dataclasses
import math
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import refusals
from click.testing import Result
from command_line import curate as call
from ledger_cases import Unread
from scipy.stats import norm

from kmeanalyst.kernels import Gaussian
from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.numbers import Integer
from kmeanalyst.releases.statement import EXPONENTIAL, GAUSSIAN, LAPLACE
from release_side import LedgerWarning, publish, publish_function  # noqa: F401  (refusals_counting.txt)
from release_side.budget import spending
from release_side.budget.composition import Spend, holds_if_adaptive, one_more
from release_side.budget.ledger import Ledger
from release_side.door.mechanism import PublishError

DOMAIN = Domain((Integer(name="age", lower=17, upper=90),))
FRAME = DOMAIN.decode(DOMAIN.draw(60, 1))
UNITS = FRAME.assign(patient=[f"{k % 20}" for k in range(60)], visit=[f"{k}" for k in range(60)])
SMALL: dict[str, Any] = {"epsilon": 0.5, "delta": 1e-6, "points": 5, "features": 20}


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
def test_uncounted_publishes_without_a_ledger_or_a_warning_and_a_rehearsal_needs_neither_uncounted_nor_weak(name, place):
    result = command(name, place, "--uncounted")
    assert result.exit_code == 0 and Path(place["o.kme"]).exists()
    assert "ledger" not in result.stderr and "warning" not in result.stderr
    Path(place["o.kme"]).unlink()
    result = command(name, place, "--rehearsal", 1, epsilon=50, delta=0.1)
    assert result.exit_code == 0 and "NOT PRIVATE" in result.stdout and "warning" not in result.stderr


def test_init_takes_a_budget_or_unlimited_and_makes_nothing_else(place):
    for words in ("", "--epsilon 1", "--delta 1e-6", "--unlimited --epsilon 1 --delta 1e-6", "--unlimited --delta 1e-6"):
        result = call("ledger", "init", place["other.ledger"], "--table", "open", *words.split())
        assert result.exit_code == 2 and "is --unlimited. Give one of the two" in result.stderr
        assert not Path(place["other.ledger"]).exists()


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


def unread(domain: Domain = DOMAIN, make: Any = publish, frame: Any = FRAME, **choices: Any) -> Any:
    """A publication from Python in which no row may be read, and a warning is an error."""
    spending._warn_once_without_ledger.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return make(Unread(frame), domain, **(SMALL if make is publish else FUNCTION) | choices)


FUNCTION: dict[str, Any] = {"kind": "density", "epsilon": 1, "delta": 1e-6, "grid": 5}
COUNTED = {"ledger": "b.ledger", "table": "people"}


WEAK = {
    (10.5, 1e-6): r"epsilon 10\.5 is a weak guarantee: above 10 a release may distinguish single rows",
    (1.0, 1 / 60): r"delta 0\.0166667 is a weak guarantee for N = 60 rows: with delta of 1/N or more .* reveal whole rows",
}


@pytest.mark.parametrize("name", ["publish", "publish-function"])
def test_a_weak_guarantee_needs_weak(name, place):
    book = Ledger(place["other.ledger"])
    for number, ((epsilon, delta), message) in enumerate(WEAK.items()):
        book.init(f"open {number}", unlimited=True)
        counted = ("--ledger", place["other.ledger"], "--table", f"open {number}")
        for more in (counted, ("--uncounted",)):
            result = command(name, place, *more, epsilon=epsilon, delta=delta)
            assert result.exit_code == 1 and re.search(message, result.stderr)
            assert "Nothing was spent. Choose less, or, if that is meant, pass --weak" in result.stderr
            assert not Path(place["o.kme"]).exists()
        assert book.account(f"open {number}").releases == ()
        assert command(name, place, *counted, "--weak", epsilon=epsilon, delta=delta).exit_code == 0
        assert len(book.account(f"open {number}").releases) == 1
        Path(place["o.kme"]).unlink()


def test_what_is_uncounted_or_weak_by_mistake_is_refused_by_public_facts_alone():
    """Weak is above ten, or from one in N on. Let through, a row would be read, which these tables forbid."""
    refusals.check(Path(__file__).parent / "refusals_counting.txt", lambda text: eval(text, globals()))


def test_units_are_counted_for_weak_and_not_their_rows():
    """20 patients with 60 rows: δ = 1/30 would be weak for 60 rows and is let through for 20 units; 1/20 is refused."""
    assert publish(UNITS, DOMAIN, **SMALL | {"delta": 1 / 30, "unit": "patient", "uncounted": True}).statement is not None


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


def test_unlike_units_are_refused_whichever_comes_first(place):
    for number, units in enumerate([("patient", None), (None, "patient"), ("patient", "Patient")]):
        book = Ledger(f"{place['other.ledger']}{number}")
        book.init("people", 2.0, 1e-5)
        one, two = (dataclasses.replace(SPEND, unit=unit, neighbouring="replace-one" + "-unit" * bool(unit)) for unit in units)
        book.record("people", one)
        for action in (book.check, book.record):
            with pytest.raises(PublishError, match="do not add up to one guarantee"):
                action("people", two)
            action("people", one)


SPEND, ROWS_ALONE = one_more(0.1, 1e-6, GAUSSIAN), {"neighbouring": "replace-one", "unit": "patient"}


def statement_with(**changes: Any) -> Any:
    return dataclasses.replace(publish(FRAME, DOMAIN, **SMALL, rehearsal=1).statement, **changes)


def of_unit(unit: Any) -> dict[str, Any]:
    return {"neighbouring": "replace-one-unit", "unit": unit}


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
        message = r"chosen before the first release was seen.*use Gaussian noise throughout, or"
        with pytest.raises(LedgerWarning, match=message):
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
