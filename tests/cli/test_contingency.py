"""`kmeanalyst independence` and `survival`: what they print, and what they refuse."""

from __future__ import annotations

import paths
from command_line import answer, call, read_release

import kmeanalyst as ka

EXAMPLES = paths.TESTS / "golden" / "examples"
COUNTED, SMOOTH = EXAMPLES / "counted.kme", EXAMPLES / "adult.kme"


def test_independence_as_json_is_the_tests_result_and_the_table():
    found = answer(call("kmeanalyst", "independence", COUNTED, "sex", "income", "--level", "0.01", "--json"))
    release = read_release(COUNTED)
    assert found["pvalue"] == ka.independence_test(release, "sex", "income").pvalue
    assert (found["reject"], found["level"], found["table"]["df"]) == (True, 0.01, 1)
    assert found["table"]["statistic"] == release.contingency("sex", "income").statistic
    given = answer(call("kmeanalyst", "independence", COUNTED, "sex", "marital-status", "--given", "income", "--json"))
    assert given["table"]["given"] == "income"
    assert len(given["table"]["cells"][0]["cell"]) == 3


def test_independence_as_text_has_the_verdict_the_table_and_each_note_once():
    text = call("kmeanalyst", "independence", COUNTED, "age", "marital-status").stdout
    assert text.startswith("The columns depend on each other (p < 1e-09") and "χ²" in text
    assert text.count("sparse cells were merged") == 1 and "independent draws" in text


def test_smooth_features_answer_without_a_table():
    found = answer(call("kmeanalyst", "independence", SMOOTH, "age", "income", "--json"))
    assert found["table"] is None and found["reject"] and "HSIC" in found["method"]


def test_survival_as_json_and_as_text():
    arguments = ("survival", COUNTED, "age", "income == '>50K'", "--where", "sex == 'Male'", "--level", "0.9")
    found = answer(call("kmeanalyst", *arguments, "--json"))
    first = found["curve"][0]
    assert (found["time"], found["level"]) == ("age", 0.9) and first["band_low"] <= first["low"] <= first["survival"]
    text = call("kmeanalyst", *arguments).stdout
    assert text.startswith("survival of income == '>50K' by age") and max(map(len, text.splitlines())) <= 80
