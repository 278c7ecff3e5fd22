"""Estimates as values: arithmetic keeps what two estimates share, and refuses what has no meaning."""

from __future__ import annotations

import html
import operator
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import refusals
from scipy.stats import norm

from kmeanalyst.inference.estimate.estimate import Estimate, pictured
from kmeanalyst.inference.estimate.statistic import OfRatio
from kmeanalyst.inference.questions.quantiles import InverseCdf


def by_hand() -> Estimate:
    return Estimate(value=1.0, standard_error=0.5, parts={}, view="signed", question="other")


def test_an_estimate_less_itself_is_zero_without_error(mixed_release):
    age = mixed_release.mean("age")
    difference, quotient = age - age, age / age
    assert (difference.value, difference.standard_error) == (0.0, 0.0)
    assert quotient.value == pytest.approx(1.0, abs=1e-12)
    assert quotient.standard_error == pytest.approx(0.0, abs=1e-12)
    assert age.standard_error > 0.1


def test_the_noise_interval_is_the_interval_without_sampling(mixed_release):
    """At the level at which the default interval has z times the share of privacy and resolution."""
    for ask in [lambda r: r.mean("age"), lambda r: r.quantile("age", 0.4)]:
        estimate = ask(mixed_release)
        share = np.hypot(estimate.parts["privacy"], estimate.parts["resolution"]) / estimate.standard_error
        assert share < 0.995
        same_width = 2 * norm.cdf(share * norm.ppf(0.975)) - 1
        assert estimate.interval(kind="noise") == pytest.approx(estimate.interval(same_width))
        low, high = estimate.interval(kind="noise")
        assert estimate.interval()[0] <= low <= estimate.value <= high <= estimate.interval()[1]


def test_sums_of_estimates_are_estimates_of_sums(mixed_release):
    """E[a] + E[a + 5 b] has the error of E[2 a + 5 b], part by part: correlation kept."""
    age, higher = mixed_release.mean("age"), mixed_release.expectation("age + 5 * (age > 40)")
    together = mixed_release.expectation("2 * age + 5 * (age > 40) - 3")
    summed = age + higher - 3
    assert summed.value == pytest.approx(together.value)
    assert summed.parts == pytest.approx(together.parts)
    assert summed.standard_error == pytest.approx(together.standard_error)
    assert summed.standard_error > 1.1 * np.hypot(age.standard_error, higher.standard_error)


def test_the_ratio_of_estimates_is_the_conditional_probability(mixed_release):
    given = mixed_release.probability("age > 50", where="married")
    ratio = mixed_release.probability("age > 50 and married") / mixed_release.probability("married")
    assert ratio.value == pytest.approx(given.value, rel=1e-12)
    assert "age > 50 | married" in repr(given)
    assert ratio.parts == pytest.approx(given.parts, rel=1e-6)


@pytest.mark.parametrize(
    ("denominator", "error", "correlation"), [(1.0, 0.2, 0.0), (-0.5, 0.3, 0.8), (0.02, 0.6, 0.9), (3.0, 1.0, -0.5)]
)
def test_the_interval_of_a_ratio_holds_its_level_where_the_denominator_may_be_0(denominator, error, correlation):
    """2,000 draws of both sides: to first order .19 to .94 of them would hold the ratio."""
    rng, held = np.random.default_rng(0), []
    covariance = np.array([[0.01, 0.1 * error * correlation], [0.1 * error * correlation, error**2]])
    for a, b in rng.multivariate_normal([1.0, denominator], covariance, 2000):
        first_order = np.sqrt(np.array([1, -a / b]) @ covariance @ [1, -a / b]) / abs(b)
        low, high = OfRatio(a / b, first_order, (0.1 / abs(b), error / abs(b))).interval(norm.ppf(0.975))
        held.append(low <= 1 / denominator <= high)
    assert np.mean(held) > 0.95 - 4 * np.sqrt(0.05 * 0.95 / 2000)


def test_a_rising_or_falling_function_of_an_estimate_has_the_function_of_its_interval(mixed_release):
    quantile, ratio = mixed_release.quantile("age", 0.4), mixed_release.mean("age") / mixed_release.probability("age > 50")
    low, high = quantile.interval()
    assert (3 - quantile / 12).interval() == (3 - high / 12, 3 - low / 12)
    assert np.log(ratio).interval(0.9) == tuple(np.log(ratio.interval(0.9)))
    assert (100 * mixed_release.probability("age > 50")).possible == (0.0, 100.0)
    assert ratio.possible == (0.0, np.inf)
    assert ratio.interval()[1] - ratio.value > ratio.value - ratio.interval()[0] > 0


def test_estimates_of_different_releases_add_their_variances_and_say_so(mixed_release, levels_release):
    a, b = mixed_release.probability("city == 'St. Gallen'"), levels_release.probability("city == 'St. Gallen'")
    difference = a - b
    for name in a.parts:
        assert difference.parts[name] == pytest.approx(np.hypot(a.parts[name], b.parts[name]))
    assert difference.standard_error == pytest.approx(np.hypot(a.standard_error, b.standard_error))
    assert any("independent" in note for note in difference.notes)
    assert not any("independent" in note for note in (a + a).notes)
    back = difference + b  # what the two share still cancels
    assert back.standard_error == pytest.approx(a.standard_error, rel=1e-9)


def test_an_unknown_part_stays_unknown_in_arithmetic(foreign_release):
    doubled = 2 * foreign_release.mean("age", view="probability")
    assert (doubled.parts["privacy"], doubled.parts["resolution"]) == (None, None)
    assert any("privacy noise is unknown" in note for note in doubled.notes)


def test_the_text_of_a_calculation_distinguishes_estimates_from_questions(mixed_release):
    age, old = mixed_release.mean("age"), mixed_release.probability("age > 50")
    assert (age / old).question == "[age] / [age > 50]"
    assert (2 * np.sqrt(age)).question == "2 * [sqrt[age]]"
    assert (-(age**2)).question == "-[[age] ** 2]"


def test_what_cannot_be_calculated_says_why_and_what_to_do(numeric_release):
    refusals.check(Path(__file__).parent / "refusals.txt", lambda text: eval(text, globals(), {"r": numeric_release}))


def test_estimates_calculate_with_numbers_alone(mixed_release):
    age = mixed_release.mean("age")
    for other in ["text", None, [1.0], np.array([1.0, 2.0])]:
        for rule, first in ((operator.add, True), (operator.mul, False), (operator.pow, True)):
            with pytest.raises(TypeError):
                rule(*((age, other) if first else (other, age)))


def test_a_page_shows_question_numbers_view_and_notes_escaped(mixed_release):
    estimate = mixed_release.probability("age < 50 and age > 20")
    page = estimate._repr_html_()
    assert "age &lt; 50" in page and "age < 50" not in page
    assert f"{estimate.value:.{estimate.digits}f} ±" in page
    assert all(html.escape(note) in page for note in estimate.notes)
    assert repr(estimate) == f"{str(estimate).splitlines()[0]} [1 note]"


def test_a_picture_of_a_row_has_its_interval_on_the_axis_of_all_rows():
    frame = pd.DataFrame({"level": ["<b>", "no error", "picture 0"]})
    page = pictured(frame, np.array([[1.0, 0.0, 2.0], [1.0, np.nan, np.nan], [2.0, -np.inf, np.inf]]))
    assert "&lt;b&gt;" in page and "<b>" not in page and page.count("<svg") == 2
    first, second = re.findall("<svg.*?</svg>", page)
    assert 'cx="75.0"' in first and 'd="M4.0 7H146.0"' in first  # 142 pixels from 0 to 2, after a margin of 4
    assert 'cx="146.0"' in second and 'd="M4.0 7H146.0"' in second
    assert page.count('d="M4.0 0V14"') == 2  # the line at zero
    near = pictured(frame, np.array([[1.0, 0.5, 2.0]] * 3))
    assert near.count('d="M4.0 0V14"') == 3 and near.count('cx="75.0"') == 3
    far = pictured(frame, np.array([[38.0, 37.0, 39.0]] * 3))
    assert "0V14" not in far and 'cx="75.0"' in far
    assert "<svg" not in pictured(frame, np.full((3, 3), np.nan)) and "interval" in far


def test_what_an_estimate_carries_is_neither_shown_nor_compared_nor_written(mixed_release):
    one, two = mixed_release.mean("age"), mixed_release.mean("age")
    assert one == two and one.terms[0][1] is not two.terms[0][1]
    assert "terms" not in repr(one) and "terms" not in one.to_dict()


def test_a_quantiles_interval_by_hand():
    """Values 1, 2, 3, 4 of mass 1/4 each: at the median ± 0.3 the inverse is 1 and 4, at ± 0.6 the bounds 0 and 9."""
    inverse = InverseCdf(np.arange(1.0, 5.0), np.array([0.25, 0.5, 0.75, 1.0]), 0.5, 0.3, (0.0, 9.0), list, lambda x: ())
    assert inverse.at(0.5) == 2.0
    assert inverse.interval(1.0) == (1.0, 4.0)
    assert inverse.interval(2.0) == (0.0, 9.0)


def test_a_format_is_that_of_the_value_and_of_the_error():
    estimate = replace(by_hand(), value=1234.5, standard_error=0.25)
    assert f"{estimate:,.1f} years" == "1,234.5 ± 0.2 years" and f"{estimate}" == str(estimate)


def test_a_number_too_long_or_too_short_for_decimals_is_written_by_its_exponent():
    for scale, written in [(1.0, "h: 3.00 ± 0.25 (95 %"), (1e20, "h: 3e+20 ± 2.5e+19 (95 %"), (1e-20, "h: 3e-20 ± 2.5e-21 (95 %")]:
        parts = {"privacy": 0.0, "sampling": 0.25 * scale, "resolution": None}
        estimate = replace(by_hand(), value=3.0 * scale, standard_error=0.25 * scale, parts=parts, question="h")
        assert repr(estimate).startswith(written)
        assert len(repr(estimate)) < 150
