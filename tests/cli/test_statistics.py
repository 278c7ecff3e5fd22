"""`quantile` and `table` on the command line: what Python says, as JSON and as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import kmeanalyst
from kmeanalyst.cli.main import main
from kmeanalyst.release import read_release


def call(*arguments: str) -> Result:
    """The command in this process; an exception that is not an exit is raised here."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def answer(*arguments: str) -> dict[str, Any]:
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout, parse_constant=pytest.fail)


def test_quantile_json_is_what_python_says(mixed_path):
    release = read_release(mixed_path)
    found = answer("quantile", mixed_path, "age", "0.25", "0.5", "--where", "married", "--level", "0.8")
    assert list(found) == ["rehearsal", "column", "estimates"] and found["column"] == "age"
    expected = release.quantile("age", [0.25, 0.5], where="married")
    assert [e["q"] for e in found["estimates"]] == [0.25, 0.5]
    for told, estimate in zip(found["estimates"], expected, strict=True):
        assert told["value"] == estimate.value and told["interval"] == list(estimate.interval(0.8))
        assert told["view"] == "probability" and list(told["parts"]) == ["privacy", "sampling", "resolution"]


@pytest.mark.slow
def test_robust_intervals_are_asked_for_by_name(mixed_path):
    release = read_release(mixed_path)
    found = answer("expect", mixed_path, "age > 50", "--interval", "robust")["estimates"][0]
    expected = release.probability("age > 50")
    assert found["interval"] == list(expected.interval(kind="robust")) and found["interval_kind"] == "robust"
    assert found["interval"][1] - found["interval"][0] > 1.1 * 3.92 * expected.standard_error
    assert "robust 95% interval" in call("table", mixed_path, "married", "--interval", "robust").stdout


def test_quantile_by_answers_for_each_level(mixed_path):
    release = read_release(mixed_path)
    found = {
        e["expression"]: e["value"] for e in answer("quantile", mixed_path, "age", "0.5", "--by", "city")["estimates"]
    }
    assert len(found) == 4
    given = "city == 'Zürich'"
    assert found[f"quantile(age, 0.5) | {given}"] == release.quantile("age", 0.5, where=given).value


def test_table_json_has_a_cell_for_each_pair_of_groups(mixed_path):
    release = read_release(mixed_path)
    found = answer("table", mixed_path, "city", "age", "--view", "probability")
    expected = release.table("city", "age", view="probability")
    assert found["columns"] == ["city", "age"] and len(found["cells"]) == len(expected) == 12
    for cell in found["cells"]:
        row = expected.loc[(cell["groups"]["city"], cell["groups"]["age"])]
        assert (cell["value"], cell["standard_error"]) == (row["probability"], row["standard_error"])
        assert cell["interval"] == [row["low"], row["high"]] and cell["view"] == "probability"
    assert sum(cell["value"] for cell in found["cells"]) == pytest.approx(1.0)


def test_table_by_gives_a_table_given_each_level(mixed_path):
    cells = answer("table", mixed_path, "married", "--by", "city", "--where", "age > 20")["cells"]
    assert len(cells) == 8
    for first, second in zip(cells[::2], cells[1::2], strict=True):
        assert first["value"] + second["value"] == pytest.approx(1.0)
    assert cells[0]["expression"] == "married == 'False' | (age > 20) and city == 'Zürich'"


def test_the_text_is_a_table_with_error_bars(mixed_path):
    release = read_release(mixed_path)
    lines = call("table", mixed_path, "city").stdout.splitlines()
    assert lines[0].split()[:3] == ["question", "value", "±"] and len(lines) == 6
    share = release.probability("city == 'Zürich'")
    assert lines[1].split()[-5:-3] == ["to", f"{share.interval()[1]:.{share.digits}f}"]
    assert f"  {share.value:.{share.digits}f}  " in lines[1] and lines[1].startswith("city == 'Zürich'")
    assert lines[-1] == "(probability weights)"
    assert "quantile(age, 0.5)" in call("quantile", mixed_path, "age", "0.5").stdout


def test_numbers_that_are_none_are_null(mixed_path, tmp_path):
    """Weighted points from elsewhere have no privacy part; a level without weight costs the others nothing."""
    frame = read_release(mixed_path).to_frame()
    frame.loc[frame["city"] == "Zürich", "weight"] = 0.0
    frame["weight"] /= frame["weight"].sum()
    path = tmp_path / "f.kme"
    kmeanalyst.from_frame(frame, domain=read_release(mixed_path).domain).write(path)
    result = call("quantile", str(path), "age", "0.5", "--by", "city", "--json")
    estimates = json.loads(result.stdout)["estimates"]
    assert len(estimates) == 3 and {e["parts"]["privacy"] for e in estimates} == {None}
    assert "note: no answer where city == 'Zürich': the condition has probability 0" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["quantile", "{path}", "age", "2"], "2.0 is not in the range 0<=x<=1", 2),
        (["quantile", "{path}", "age"], "Missing argument 'Q...'", 2),
        (["quantile", "{path}", "agee", "0.5"], "no column agee: the columns are", 1),
        (["quantile", "{path}", "city", "0.5"], "a number is needed here", 1),
        (["quantile", "{path}", "age", "0.5", "--by", "income"], "income has no levels to group by", 1),
        (["table", "{path}", "age", "city", "school"], "one or two columns, got 3. Name two, and use --by", 2),
        (["table", "{path}", "age", "age"], "a table needs different columns", 1),
        (["table", "{path}", "agee"], "no column 'agee'; the columns are age, children, ", 1),
        (["table", "{path}", "age", "--where", "age > 1000"], "the condition has probability 0", 1),
    ],
)
def test_refusals_say_what_and_exit_with_their_code(mixed_path: Path, arguments: list[str], message: str, code: int):
    result = call(*(argument.format(path=mixed_path) for argument in arguments))
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr and "Traceback" not in result.stderr
