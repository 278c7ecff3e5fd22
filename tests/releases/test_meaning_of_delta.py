"""What δ means, computed: the sentence that every text shares holds for every event, and the usual false one does not.

Two neighbouring tables whose sums differ by the sensitivity, in one coordinate: the worst pair. Discrete Gaussian noise of
the scale that the curator's calibration asks for, summed exactly over the grid. An event is a set of outcomes.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from click.testing import CliRunner
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from scipy.special import ndtr

import kmeanalyst as ka
from kmeanalyst.releases.statement import attack_line, guarantee, loss_above_epsilon, right_guesses
from kmeanalyst.report.facts import facts_of
from kmeanalyst.report.guarantee import plain_words
from kmeanalyst.report.page import report_html
from release_side.cli.main import main
from release_side.door.mechanism import GaussianNoise, PublishError, check_budget

STEPS = 64  # grid steps between the two sums: the discrete distribution then equals the continuous one to many digits
BUDGETS = [(0.1, 1e-6), (1.0, 1e-6), (1.0, 1e-3), (3.0, 1e-9)]


def two_distributions(epsilon: float, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of each outcome under the table and under its neighbour, from the least to the greatest."""
    scale = STEPS * GaussianNoise(epsilon, delta).multiplier()
    outcomes = np.arange(-round(14 * scale), round(14 * scale) + STEPS)
    weights = [np.exp(-0.5 * ((outcomes - mean) / scale) ** 2) for mean in (STEPS, 0)]
    return tuple(w / math.fsum(w) for w in weights)  # type: ignore[return-value]


def events(ratios: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Sets of outcomes: those likelier than each of many thresholds (the hardest), single ones, and random ones."""
    thresholds = [ratios > t for t in np.quantile(ratios, np.linspace(0, 1, 2001))]
    single = [np.arange(len(ratios)) == i for i in range(0, len(ratios), 97)]
    return [*thresholds, *single, *(rng.random((200, len(ratios))) < 0.5)]


def test_every_event_has_at_most_the_probability_that_the_sentence_says():
    """The numbers are read from the sentence itself; without "plus δ", or with e^ε a little less, it is false."""
    for epsilon, delta in BUDGETS:
        here, there = two_distributions(epsilon, delta)
        numbers = re.search(r"at most e\^ε = ([\d.]+) times .*, plus δ = ([\d.e-]+)$", guarantee(epsilon, delta))
        assert numbers is not None
        factor, added = map(float, numbers.groups())
        probabilities = [(here[event].sum(), there[event].sum()) for event in events(here / there, np.random.default_rng(0))]
        assert all(p <= factor * q + added for p, q in probabilities)
        assert any(p > factor * q for p, q in probabilities)
        assert any(p > 0.9 * math.exp(epsilon) * q + added for p, q in probabilities)


def test_delta_is_not_the_probability_that_the_loss_exceeds_epsilon():
    """P(ln P(x)/P′(x) > ε) is many times δ, and is what `loss_above_epsilon` says."""
    for epsilon, delta in BUDGETS:
        here, there = two_distributions(epsilon, delta)
        exceeded = here[np.log(here / there) > epsilon].sum()
        assert exceeded > 5 * delta
        formula = loss_above_epsilon(epsilon=epsilon, noise_multiplier=GaussianNoise(epsilon, delta).multiplier())
        assert exceeded == pytest.approx(formula, rel=0.05)  # a grid's outcome is in or out: 1/64 of the distance


def test_right_guesses_are_those_of_the_exact_trade_off_curve():
    """(1 + δ(0))/2, the total variation between neighbours, as dp-accounting has it; two releases are worth one of √2 μ."""
    for epsilon, delta in BUDGETS:
        multiplier = GaussianNoise(epsilon, delta).multiplier()
        curve = from_gaussian_mechanism(multiplier)
        assert right_guesses(1 / multiplier) == pytest.approx(0.5 + 0.5 * curve.get_delta_for_epsilon(0.0), rel=1e-4)
        both = re.search(r"μ = ([\d.]+)", attack_line(1 / multiplier, 1 / multiplier)["attack"])
        assert both is not None
        assert float(both[1]) == pytest.approx(math.sqrt(2) / multiplier, rel=0.005)
    assert attack_line(4.2, None) == {}  # Laplace noise has no μ


def test_the_figures_in_promise_md():
    for epsilon, one_in in [(1.0, 49_751), (0.1, 6_703)]:
        multiplier = GaussianNoise(epsilon, 1e-6).multiplier()
        assert round(1 / loss_above_epsilon(epsilon=epsilon, noise_multiplier=multiplier)) == one_in
        assert 1 / ndtr(0.5 / multiplier - epsilon * multiplier) == pytest.approx(one_in, abs=0.6)


def test_the_factor_is_never_rounded_down():
    """At ε = 1.2 three digits of e^ε are 3.32, which is less than it is."""
    for epsilon in [0.05, 0.3, 1.0, 1.2, 2.0, 7.3, 11.0, 19.9]:
        factor = re.search(r"e\^ε = ([\d.,e+]+) times", guarantee(epsilon, 1e-6))
        assert factor is not None
        assert math.exp(epsilon) <= float(factor[1].replace(",", "")) <= 1.01 * math.exp(epsilon)


def test_without_delta_nothing_is_added_and_units_are_replaced_with_all_their_rows():
    assert guarantee(1.0, 0.0).endswith("with any other row in place of yours")
    assert "in place of all of yours" in guarantee(1.0, 1e-6, units=True)
    assert guarantee() == (
        "whatever is seen, its probability is at most e^ε times what it would be with any other row in place of yours, plus δ"
    )


def test_every_text_that_explains_delta_has_the_sentence(mixed_release):
    """One function writes it: the command line's help, its errors, the statement's errors and the report."""
    for command in ("publish", "publish-function"):
        shown = " ".join(CliRunner().invoke(main, [command, "--help"], terminal_width=10_000).output.split())
        assert guarantee() in shown
    with pytest.raises(PublishError, match=re.escape(guarantee())):
        check_budget(1.0, 1.0)
    with pytest.raises(ValueError, match=re.escape(guarantee())):
        ka.PrivacyStatement(**(vars(mixed_release.statement) | {"delta": 1.0}))
    statement = mixed_release.statement
    sentence = guarantee(statement.epsilon, statement.delta).capitalize()
    assert any(sentence[1:] in words for words in plain_words(mixed_release))
    assert sentence[1:] in report_html(facts_of(mixed_release))
