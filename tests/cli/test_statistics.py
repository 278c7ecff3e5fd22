"""`quantile` and `table` on the command line: the answers of Python, as JSON and as text."""

from __future__ import annotations

import html
import sys
from typing import Any

import numpy as np
import pytest
from command_line import answer, call, read_release

import kmeanalyst as ka
from kmeanalyst.cli.terminal import say
from kmeanalyst.inference.estimate.estimate import flagged


def ask(*arguments: object) -> dict[str, Any]:
    return answer(call("kmeanalyst", *arguments, "--json"))


def test_quantile_json_is_the_answer_of_python(mixed_path):
    release = read_release(mixed_path)
    found = ask("quantile", mixed_path, "age", "0.25", "0.5", "--where", "married", "--level", "0.8")
    assert list(found) == ["rehearsal", "column", "estimates"] and found["column"] == "age"
    expected = release.quantile("age", [0.25, 0.5], where="married")
    assert [e["q"] for e in found["estimates"]] == [0.25, 0.5]
    for shown, estimate in zip(found["estimates"], expected, strict=True):
        assert shown["value"] == estimate.value and shown["interval"] == list(estimate.interval(0.8))
        assert shown["view"] == "fitted" and list(shown["parts"]) == ["privacy", "sampling", "resolution"]


def test_the_coefficient_of_variation_has_the_flags_of_agencies(mixed_path):
    release = read_release(mixed_path)
    table = release.table("married")
    for cv, value, error in zip(table.parts["CV"], table["probability"], table["standard_error"], strict=True):
        assert cv.split()[0] == f"{100 * error / value:.0f}"
    assert [flagged(10, e) for e in (1.64, 1.66, 3.4, np.inf)] == ["16 %", "17 % E", "34 % F", "F"]


def test_print_shows_the_notes_of_numbers_once(mixed_release):
    found = mixed_release.expectations(["age < 50 and age > 20", "age < 51 and age > 21"])
    notes = dict.fromkeys(note for one in found for note in one.notes)
    assert notes and str(found) == "\n".join([repr(found), *(f"note: {note}" for note in notes)])
    variable = mixed_release["age"] < 50
    for shown in (found, found[0], variable, mixed_release.statement, mixed_release.glm("age ~ married")):
        assert html.escape(str(shown)) in shown._repr_html_()
    pairs, matrix = ka.associations(mixed_release, ["age", "income", "city"]), mixed_release.corr(["age", "income"])
    assert max(map(len, repr(pairs).splitlines()[:5])) <= 80 and "correlation ratio" in repr(pairs)
    (row,) = matrix.to_frame().itertuples()
    assert row.Index == ("age", "income") and row.value == matrix["age", "income"].value


def test_a_terminal_of_80_columns_breaks_no_line_inside_a_word_or_a_number(mixed_path, monkeypatch):
    asked = [
        ("info", mixed_path), ("table", mixed_path, "married", "city"), ("glm", mixed_path, "age ~ married + city"),
    ]  # fmt: skip
    files = [call("kmeanalyst", *arguments).stdout for arguments in asked]
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda stream: True)
    screens = [call("kmeanalyst", *arguments).stdout for arguments in asked]
    for in_file, on_screen in zip(files, screens, strict=True):
        assert max(map(len, on_screen.splitlines())) <= 80 < max(map(len, in_file.splitlines()))
    assert files[0].split() == screens[0].split()
    for text in screens[1:]:
        assert "a wider terminal also shows privacy, sampling, resolution)" in " ".join(text.split())


def test_a_terminal_gets_commands_whole_to_be_copied(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    said, command = "note: " + "word " * 20, "to compare: release-side quality a.kme b.csv --output c.html"
    say(said)
    say(command)
    say(label := "privacy     " + "word " * 20)
    lines = capsys.readouterr().out.splitlines()
    assert lines[3] == command and " ".join(lines[:3]).split() == said.split()
    assert lines[1].startswith("      word") and lines[5].startswith(" " * 10 + "word") and label not in lines


@pytest.mark.slow
def test_robust_intervals_are_asked_for_by_name(mixed_path):
    release = read_release(mixed_path)
    found = ask("expect", mixed_path, "age > 50", "--interval", "robust")["estimates"][0]
    expected = release.probability("age > 50")
    assert found["interval"] == list(expected.interval(kind="robust")) and found["interval_kind"] == "robust"
    assert found["interval"][1] - found["interval"][0] > 1.1 * 3.92 * expected.standard_error
    assert "95% robust interval" in call("kmeanalyst", "table", mixed_path, "married", "--interval", "robust").stdout


def test_quantile_by_answers_for_each_level(mixed_path):
    release = read_release(mixed_path)
    estimates = ask("quantile", mixed_path, "age", "0.5", "--by", "city")["estimates"]
    found = {e["expression"]: e["value"] for e in estimates}
    assert len(found) == 4
    given = "city == 'Zürich'"
    assert found[f"quantile(age, 0.5) | {given}"] == release.quantile("age", 0.5, where=given).value


def test_table_json_has_a_cell_for_each_pair_of_groups(mixed_path):
    release = read_release(mixed_path)
    found = ask("table", mixed_path, "city", "age", "--view", "probability")
    expected = release.table("city", "age", view="probability")
    assert found["columns"] == ["city", "age"] and len(found["cells"]) == len(expected) == 12
    for cell in found["cells"]:
        row = expected.loc[(cell["groups"]["city"], cell["groups"]["age"])]
        assert (cell["value"], cell["standard_error"]) == (row["probability"], row["standard_error"])
        assert cell["interval"] == [row["low"], row["high"]] and cell["view"] == "probability"
    assert sum(cell["value"] for cell in found["cells"]) == pytest.approx(1.0)
    three = ask("table", mixed_path, "city", "age", "married")["cells"]
    assert len(three) == 24 and [*three[0]["groups"]] == ["city", "age", "married"]


def test_table_by_gives_a_table_given_each_level(mixed_path):
    cells = ask("table", mixed_path, "married", "--by", "city", "--where", "age > 20")["cells"]
    assert len(cells) == 8
    for first, second in zip(cells[::2], cells[1::2], strict=True):
        assert first["value"] + second["value"] == pytest.approx(1.0)
    assert cells[0]["expression"] == "married == 'False' | (age > 20) and city == 'Zürich'"


def test_the_text_is_a_table_with_error_bars(mixed_path):
    release = read_release(mixed_path)
    lines = call("kmeanalyst", "table", mixed_path, "city").stdout.splitlines()
    assert lines[0].split()[:3] == ["question", "value", "±"] and len(lines) >= 6
    share = release.probability("city == 'Zürich'")
    assert lines[1].split()[-5:-3] == ["to", f"{share.interval()[1]:.{share.digits}f}"]
    assert f"  {share.value:.{share.digits}f}  " in lines[1] and lines[1].startswith("city == 'Zürich'")
    assert "(fitted weights)" in lines
    assert "quantile(age, 0.5)" in call("kmeanalyst", "quantile", mixed_path, "age", "0.5").stdout


def test_glm_json_is_the_coefficient_table_of_python(mixed_path):
    release = read_release(mixed_path)
    found = ask("glm", mixed_path, "married ~ age + city", "--family", "binomial", "--where", "age < 80", "--level", "0.8")
    expected = release.glm("married ~ age + city", "binomial", where="age < 80")
    assert (found["formula"], found["family"], found["link"]) == ("married ~ age + city", "binomial", "logit")
    assert [each["term"] for each in found["coefficients"]] == list(expected.names)
    for shown, one, p in zip(found["coefficients"], expected.coefficients, expected.pvalues, strict=True):
        assert (shown["value"], shown["pvalue"]) == (one.value, p)
        assert shown["interval"] == [end if np.isfinite(end) else None for end in one.interval(0.8)]
        assert list(shown["parts"]) == ["privacy", "sampling", "resolution"]


def test_glm_prints_the_table_and_its_errors_have_no_traceback(mixed_path):
    shown = call("kmeanalyst", "glm", mixed_path, "age ~ city", "--level", "0.9").stdout
    assert shown.startswith("age: gaussian family") and "[0.05" in shown and "0.95]" in shown
    named = call("kmeanalyst", "glm", mixed_path, "age ~ city", "--reference", "city=東京").stdout
    assert "city == '東京'" in shown and "city == '東京'" not in named and "city == 'Zürich'" in named
    assert call("kmeanalyst", "glm", mixed_path, "age ~ city", "--reference", "city").exit_code == 2
    failed = call("kmeanalyst", "glm", mixed_path, "age ~ citty")
    assert "no column citty" in failed.stderr and "Did you mean city" in failed.stderr and "Traceback" not in failed.stderr
