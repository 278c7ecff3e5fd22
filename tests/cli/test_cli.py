"""Both command lines as a person or a program meets them: output, JSON, exit codes, refusals, and what stays unsaid."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import kmeanalyst
from kmeanalyst.cli import demo
from kmeanalyst.cli.main import main as kmeanalyst_main
from kmeanalyst.cli.terminal import print_json
from kmeanalyst.inference.questions.expectation import conditions_by
from kmeanalyst.release import read_release
from kmeanalyst.releases.domain.domain import Domain, domain_toml, read_domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.file.export import export
from release_side.cli.main import main as release_side_main
from release_side.door import door
from release_side.private_rows.rows import open_private
from release_side.publishing.methods.base import MeanMethod
from release_side.publishing.publish import publish

publishing = importlib.import_module("release_side.publishing.publish")
terminal = importlib.import_module("kmeanalyst.cli.terminal")

HEAVY = ["numpy", "pandas", "scipy", "sklearn", "opendp", "dp_accounting", "matplotlib", "pyarrow", "xarray"]
MAINS = {"kmeanalyst": kmeanalyst_main, "release-side": release_side_main}
MODULES = {"kmeanalyst": "kmeanalyst", "release-side": "release_side"}


class Files(NamedTuple):
    """A folder of sound files, which tests read and never change."""

    folder: Path
    domain: str
    private: str
    sample: str
    older: str
    release: str
    signed: str


def city_domain() -> Domain:
    return Domain(
        (
            Integer(name="age", lower=17, upper=90),
            Real(name="wage", lower=1, upper=1000, scale="log"),
            Categorical(name="city", levels=("Basel", "Genf", "O'Higgins", "Nowhere")),
            Integer(name="hours-per-week", lower=1, upper=99),
        )
    )


def people(n: int, seed: int, *, older: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": np.clip(rng.normal(40 + older, 8, n).round(), 17, 90).astype(int),
            "wage": np.exp(rng.normal(3, 0.5, n)).round(2),
            "city": rng.choice(["Basel", "Genf", "O'Higgins"], n, p=[0.5, 0.3, 0.2]),
            "hours-per-week": np.clip(rng.normal(38, 6, n).round(), 1, 99).astype(int),
        }
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("sound files")
    (folder / "domain.toml").write_text(domain_toml(city_domain()), encoding="utf-8")
    people(500, 1).assign(extra="x").to_csv(folder / "private.csv", index=False)
    people(400, 2).assign(extra="x").to_csv(folder / "sample.csv", index=False)
    people(400, 3, older=30).to_csv(folder / "older.csv", index=False)
    budget: dict[str, Any] = {"epsilon": 5.0, "delta": 1e-6}
    release = publish(folder / "private.csv", city_domain(), points=40, features=200, **budget)
    release.write(folder / "r.kme")
    publish(folder / "private.csv", city_domain(), method="subspace", points=30, weights="published", **budget).write(
        folder / "signed.kme"
    )
    names = ("domain.toml", "private.csv", "sample.csv", "older.csv", "r.kme", "signed.kme")
    return Files(folder, *(str(folder / name) for name in names))


def call(program: str, *arguments: str) -> Result:
    """The command in this process; an exception that is not an exit is raised here."""
    result = CliRunner().invoke(MAINS[program], list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A Python process of its own, with warnings as errors."""
    return subprocess.run([sys.executable, "-W", "error", *arguments], capture_output=True, text=True, **options)


def answer(result: Result) -> dict[str, Any]:
    """The one JSON object that is all of standard output; strict JSON, so NaN and Infinity are refused."""
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("\n") == 1 and result.stdout.endswith("}\n")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    value = json.loads(result.stdout, parse_constant=refuse)
    assert isinstance(value, dict)
    return value


def assert_numbers(values: dict[str, Any], *names: str) -> None:
    for name in names:
        assert isinstance(values[name], int | float) and not isinstance(values[name], bool), (name, values[name])


# ---------------------------------------------------------------------- JSON: one object, and numbers in it


def test_mmd_test_json_has_the_fields_of_the_interface(files):
    result = call("kmeanalyst", "mmd-test", files.release, files.sample, "--json", "--level", "0.01")
    found = answer(result)
    assert_numbers(
        found,
        "statistic",
        "pvalue",
        "mmd_squared",
        "n_release_rows",
        "n_release_points",
        "n_sample_rows",
        "epsilon",
        "delta",
        "level",
    )
    assert (found["n_release_rows"], found["n_release_points"], found["n_sample_rows"]) == (500, 40, 400)
    assert (found["epsilon"], found["delta"], found["level"]) == (5.0, 1e-6, 0.01)
    assert found["noise_aware"] is True
    assert isinstance(found["method"], str)
    assert found["reject"] is (found["pvalue"] < 0.01)
    assert any("ignored columns" in note and '"extra"' in note for note in found["notes"])


def test_mmd_test_rejects_people_who_are_thirty_years_older_and_says_so(files):
    found = answer(call("kmeanalyst", "mmd-test", files.release, files.older, "--json"))
    assert found["reject"] is True and found["level"] == 0.05
    shown = call("kmeanalyst", "mmd-test", files.release, files.older).stdout
    assert "at level 0.05: differ" in shown and "MMD²" in shown and "privacy noise included" in shown


def test_mmd_test_takes_another_release(files):
    found = answer(call("kmeanalyst", "mmd-test", files.release, files.release, "--json"))
    assert found["pvalue"] == pytest.approx(1.0)
    assert found["reject"] is False


def test_expect_json_has_the_fields_of_the_interface(files):
    questions = ("age", "age > 50", "`hours-per-week` * wage")
    found = answer(call("kmeanalyst", "expect", files.release, *questions, "--level", "0.8", "--json"))
    assert list(found) == ["rehearsal", "estimates"] and found["rehearsal"] is False
    assert [e["expression"] for e in found["estimates"]] == list(questions)
    release = read_release(files.release)
    for estimate, question in zip(found["estimates"], questions, strict=True):
        assert_numbers(estimate, "value", "standard_error", "level")
        assert_numbers(estimate["parts"], "privacy", "sampling", "resolution")
        assert list(estimate["parts"]) == ["privacy", "sampling", "resolution"]
        assert estimate["view"] == "probability" and estimate["level"] == 0.8
        low, high = estimate["interval"]
        assert low < estimate["value"] < high
        expected = release.expectation(question)
        assert estimate["value"] == expected.value
        assert [low, high] == list(expected.interval(0.8))


def test_expect_where_by_and_view_ask_what_they_say(files):
    release = read_release(files.signed)
    found = answer(
        call("kmeanalyst", "expect", files.signed, "age", "--where", "wage > 20", "--view", "probability", "--json")
    )
    expected = release.expectation("age", where="wage > 20", view="probability")
    assert found["estimates"][0]["value"] == expected.value
    assert found["estimates"][0]["view"] == "probability"
    assert found["estimates"][0]["expression"] == "age | wage > 20"
    signed = answer(call("kmeanalyst", "expect", files.signed, "age", "--json"))["estimates"][0]
    assert signed["view"] == "signed"
    assert signed["value"] == release.expectation("age", view="signed").value


def test_expect_by_answers_for_each_level_that_has_an_answer(files):
    """Nobody lives in Nowhere, as far as the weights say or barely so: that costs the other levels nothing."""
    result = call("kmeanalyst", "expect", files.release, "age", "--by", "city", "--where", "age < 80", "--json")
    release = read_release(files.release)
    found = {e["expression"]: e["value"] for e in answer(result)["estimates"]}
    conditions = conditions_by(release, "city", "age < 80")
    assert all(level in text for level, text in zip(("Basel", "Genf", "O'Higgins", "Nowhere"), conditions, strict=True))
    for condition in conditions[:2]:
        assert found[f"age | {condition}"] == release.expectation("age", where=condition).value
    frame = release.to_frame()
    nowhere = frame.loc[(frame["city"] == "Nowhere") & (frame["age"] < 80), "weight"].sum()
    assert (len(found), "no answer where" in result.stderr) == ((3, True) if nowhere == 0 else (4, False))


def test_expect_by_tells_a_level_without_points_and_fails_if_no_level_has_an_answer(files, tmp_path):
    release = read_release(files.release)
    frame = release.to_frame()
    frame["weight"] = np.where(frame["city"] == "Genf", 0.0, 1 / len(frame))
    changed = kmeanalyst.from_frame(frame, domain=release.domain)
    changed.write(tmp_path / "f.kme")
    result = call("kmeanalyst", "expect", str(tmp_path / "f.kme"), "age", "--by", "city", "--json")
    assert not any("Genf" in e["expression"] for e in answer(result)["estimates"])
    assert re.search(r"note: no answer where `?city`? == 'Genf': the condition has probability 0", result.stderr)
    bad = call("kmeanalyst", "expect", str(tmp_path / "f.kme"), "age", "agee", "--by", "city", "--json")
    assert (bad.exit_code, bad.stdout) == (1, "")


def test_unknown_parts_are_null(files, tmp_path):
    """Weighted points from elsewhere have no privacy part, and the JSON says null."""
    frame = read_release(files.release).to_frame()
    kmeanalyst.from_frame(frame, domain=city_domain()).write(tmp_path / "f.kme")
    found = answer(call("kmeanalyst", "expect", str(tmp_path / "f.kme"), "age", "--json"))["estimates"][0]
    assert found["parts"]["privacy"] is None and found["parts"]["resolution"] is None
    tested = answer(call("kmeanalyst", "mmd-test", str(tmp_path / "f.kme"), files.sample, "--json"))
    assert tested["noise_aware"] is False
    assert (tested["epsilon"], tested["delta"], tested["n_release_rows"]) == (None, None, None)
    told = answer(call("kmeanalyst", "info", str(tmp_path / "f.kme"), "--json"))
    assert (told["statement"], told["n_rows"], told["fit_distance"]) == (None, None, None)


def test_info_json_tells_what_the_release_is(files):
    found = answer(call("kmeanalyst", "info", files.signed, "--json"))
    release = read_release(files.signed)
    assert_numbers(
        found,
        "n_points",
        "n_rows",
        "n_features",
        "sum_weights",
        "sum_absolute_weights",
        "share_negative",
        "fit_distance",
    )
    assert (found["method"], found["weight_view"], found["n_points"], found["n_rows"]) == (
        "subspace",
        "published",
        30,
        500,
    )
    assert found["sum_absolute_weights"] == np.abs(release.weights).sum()
    assert found["share_negative"] == (release.weights < 0).mean()
    assert found["statement"]["epsilon"] == 5.0
    assert [column["name"] for column in found["columns"]] == ["age", "wage", "city", "hours-per-week"]
    assert found["kernel"] == release.kernel.to_dict()
    assert call("kmeanalyst", "info", files.signed).stdout == repr(release) + "\n"


def test_validate_json_is_valid_without_findings(files):
    assert answer(call("kmeanalyst", "validate", files.release, "--json")) == {"valid": True, "findings": []}
    assert "every claim that can be checked holds" in call("kmeanalyst", "validate", files.release).stdout


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".nc"])
def test_export_writes_every_format_and_tells_about_it(ending, files, tmp_path):
    path = tmp_path / f"out{ending}"
    result = call("kmeanalyst", "export", files.signed, str(path), "--json")
    assert answer(result) == {
        "output": str(path), "view": "signed", "rows": 30, "defused_cells": 0, "rehearsal": False,
    }  # fmt: skip
    assert f"wrote {path}" in result.stderr and "signed weights; most tools misread" in result.stderr
    export(read_release(files.signed), tmp_path / f"same{ending}")
    assert path.read_bytes() == (tmp_path / f"same{ending}").read_bytes()
    plain = call("kmeanalyst", "export", files.signed, str(path), "--view", "probability")
    assert plain.stdout == "" and "misread" not in plain.stderr


def test_export_resampled_has_the_rows_asked_for_and_repeats_with_a_seed(files, tmp_path):
    for name in ("a.csv", "b.csv"):
        options = ("--view", "resampled", "--rows", "123", "--seed", "7", "--json")
        found = answer(call("kmeanalyst", "export", files.release, str(tmp_path / name), *options))
        assert found["rows"] == 123
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert len(pd.read_csv(tmp_path / "a.csv")) == 123


PUBLISH = ("--epsilon", "1", "--delta", "1e-6", "--method", "subspace", "--points", "20", "--uncounted")


def test_publish_json_has_the_statement(files, tmp_path):
    output = str(tmp_path / "o.kme")
    result = call(
        "release-side", "publish", files.private, "--domain", files.domain, "--output", output, *PUBLISH, "--json"
    )
    found = answer(result)
    release = read_release(output)
    assert (found["output"], found["fit_distance"]) == (output, release.fit_distance)
    assert found["statement"] == json.loads(json.dumps(release.statement.to_dict()))
    assert_numbers(
        found["statement"], "epsilon", "delta", "sensitivity", "noise_scale", "rho", "n_rows", "public_points"
    )
    assert "note: columns not in the domain are ignored: extra" in result.stderr


def test_publish_passes_every_choice_on(files, tmp_path, monkeypatch):
    """What publish makes of each is tested there; here only that the words arrive."""
    seen: dict[str, Any] = {}

    def record(private: str, domain: Domain, **choices: Any) -> None:
        seen.update(choices)
        raise OSError("enough seen")

    monkeypatch.setattr(publishing, "publish", record)
    options = {
        "epsilon": 0.5,
        "delta": 1e-7,
        "method": "subspace",
        "public_points": files.sample,
        "points": 12,
        "features": 34,
        "family": "maclaurin",
        "kernel": "margins",
        "target": "city",
        "weights": "signed",
        "bound": 1.5,
        "noise": "laplace",
        "calibration": "zcdp",
        "ledger": str(tmp_path / "ledger"),
        "table": "people",
        "unit": "person",
        "rehearsal": 7,
        "workers": 3,
        "output": str(tmp_path / "o.kme"),
    }
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    for flag in ([], ["--float32"], ["--uncounted"], ["--weak"], ["--force"]):
        result = call("release-side", "publish", files.private, "--domain", files.domain, *words, *flag)
        assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, "Error: enough seen")
        assert callable(seen.pop("progress"))
        assert seen == options | {name: f"--{name}" in flag for name in ("float32", "uncounted", "weak", "force")}


def test_publish_in_words_shows_the_promise(files, tmp_path):
    output = str(tmp_path / "o.kme")
    result = call("release-side", "publish", files.private, "--domain", files.domain, "--output", output, *PUBLISH)
    assert result.exit_code == 0
    for label, text in read_release(output).summary().items():
        assert re.search(rf"^{label} +{re.escape(text)}$", result.stdout, re.MULTILINE)
    assert "█" not in result.stderr  # progress is for terminals


PUBLIC = "--this-sample-is-public"


def test_a_drafted_domain_reads_back_and_publishes(files, tmp_path):
    path = str(tmp_path / "d.toml")
    found = answer(call("release-side", "draft-domain", files.sample, PUBLIC, "--output", path, "--json"))
    domain = read_domain(path)
    assert found["columns"] == domain.to_dict()
    assert domain.names == ("age", "wage", "city", "hours-per-week", "extra")
    assert found["output"] == path
    assert found["checks"] == sum(note.startswith("CHECK") for notes in found["notes"].values() for note in notes) > 0
    printed = call("release-side", "draft-domain", files.sample, PUBLIC)
    assert printed.stdout == Path(path).read_text(encoding="utf-8")
    assert printed.stdout.count("# CHECK") == found["checks"]
    assert answer(call("release-side", "draft-domain", files.sample, PUBLIC, "--json"))["output"] is None
    output = str(tmp_path / "o.kme")
    assert call("release-side", "publish", files.private, "--domain", path, "--output", output, *PUBLISH).exit_code == 0


def test_every_command_takes_json(files):
    groups = list(MAINS.values())
    for group in groups:
        for command in group.commands.values():
            if isinstance(command, click.Group):
                groups.append(command)
            else:
                assert "--json" in [word for option in command.params for word in option.opts], command.name


def test_nan_and_infinities_become_null_and_numpy_numbers_numbers(capsys):
    values = {
        "a": float("nan"),
        "b": [np.inf, -np.inf],
        "c": np.float64(1.5),
        "d": np.int64(3),
        "e": np.bool_(True),
        "f": ("ü",),
    }
    print_json(values | {7: None})
    out = capsys.readouterr().out
    assert out == '{"a": null, "b": [null, null], "c": 1.5, "d": 3, "e": true, "f": ["ü"], "7": null}\n'


# ---------------------------------------------------------------------- refusals: one clear error, nothing left behind


class Bad(NamedTuple):
    """A wrong call, in words with {places}; what its message must say (what, why, mend), and the exit code."""

    name: str
    words: str
    message: str
    code: int = 1

    def arguments(self, places: dict[str, str]) -> list[str]:
        return spelled(self.words, places)


def spelled(words: str, places: dict[str, str]) -> list[str]:
    """Words of a call with their {places}, which may have spaces; GOOD stands for sound choices."""
    return [word.format(**places) for word in words.replace("GOOD", GOOD).replace("FUNCTION", FUNCTION).split(" ")]


def wrong_files(folder: Path, files: Files) -> dict[str, str]:
    """Every place a wrong call can name."""
    whole = Path(files.release).read_bytes()
    middle = len(whole) // 2
    rows = people(3000, 9).to_csv(index=False).encode()
    lacks = b"age,city,hours-per-week\n30,Basel,40\n31,Genf,41\n"
    contents: dict[str, bytes] = {
        "empty.csv": b"",
        "header.csv": b"age,wage,city,hours-per-week\n",
        "lacks.csv": lacks,
        "one_row.csv": b"age,wage,city,hours-per-week\n30,20,Basel,40\n",
        "other.csv": b"a,b\n1,2\n",
        "cut.csv.gz": gzip.compress(rows)[:-500],
        "damaged.csv.gz": (packed := gzip.compress(rows))[:2000] + b"damaged" + packed[2007:],
        "cr.csv": rows.replace(b"\n", b"\r"),
        "text.xlsx": b"PK\x03\x04",
        "names.csv": b"name\n" + b"".join(b"person %d\n" % i for i in range(300)),
        "corrupt.kme": whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :],
        "cut.kme": whole[:middle],
        "text.kme": b"not a release",
        "no.toml": b"[[column]\n",
        "of_lacks.toml": b'[[column]]\nname = "age"\nkind = "integer"\nlower = 0\nupper = 99\n'
        + b'[[sample]]\nbytes = %d\nsha256 = "%s"\n' % (len(lacks), hashlib.sha256(lacks).hexdigest().encode()),
        "unknown.toml": b'[[column]]\nname = "age"\nkind = "number"\n',
        "wider.toml": Path(files.domain).read_bytes()
        + b'\n[[column]]\nname = "height"\nkind = "real"\nlower = 0\nupper = 3\n',
    }
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    places = {name.replace(".", "_"): str(folder / name) for name in contents}
    (folder / "folder").mkdir()
    return (
        places
        | files._asdict()
        | {
            "nowhere": str(folder / "nowhere"),
            "out": str(folder / "out"),
            "a_folder": str(folder / "folder"),
        }
    )


FUNCTION = "--domain {domain} --epsilon 1 --delta 1e-6 --output {out}.kme --uncounted"
GOOD = "--domain {domain} --epsilon 1 --delta 1e-6 --output {out}.kme --points 20 --method subspace --uncounted"
ANALYST = [
    Bad("a release where a function is", "evaluate {release} {sample}", r"holds weighted points: it is no .*\. Read"),
    Bad(
        "a quantile of levels", "quantile {release} city 0.5", r"city is a column of levels, and a number .*\. Compare"
    ),
    Bad("a quantile beyond one", "quantile {release} age 1.5", r"1\.5 is not in the range 0<=x<=1", code=2),
    Bad("a table of no column", "table {release} agee", r"no column 'agee'; the columns are .*Did you mean age"),
    Bad("a drawing of no column", "plot {release} agee --output {out}.png", r"no column .?agee.*Did you mean age"),
    Bad("a drawing of no kind", "plot {release} age --output {out}.xlsx", r"only \.png, \.pdf, \.svg are known\. Name"),
    Bad("a report on no column", "report {release} --output {out}.html --columns agee", r"no column .?agee.*"),
    Bad("a table of three", "table {release} age wage city", r"one or two columns, got 3\. Name two", code=2),
    Bad("two releases compared", "compare {release} {release}", r"needs rows to compare with, .*\. Use mmd-test"),
    Bad("compare lacks a column", "compare {release} {lacks_csv}", r"the sample lacks \"wage\": .*\. Add the column"),
    Bad("more than all", "thin {release} 10000 --output {out}.kme", r"from 1 to 40, got 10000: .*\. Pass how many"),
    Bad(
        "a name that is taken",
        "transform {release} age=wage --output {out}.kme",
        r"column age already, and .*\. Choose",
    ),
    Bad("learn no column", "train {release} --target agee --output {out}.skops", r"no column agee to learn; .*\. Name"),
    Bad("a model with code", "train {release} --target city --output {out}.pkl", r"as a \.skops file, got .*\. Name"),
    Bad("keep in a file", "demo --keep {sample}", r"Directory '.*' is a file", code=2),
    Bad("validate nothing", "validate", r"Missing argument 'FILE\.kme'", code=2),
    Bad("unknown column", "expect {release} agee", r"no column agee: the columns are .*Did you mean age"),
    Bad("unknown column in where", "expect {release} age --where agee>3", r"no column agee: .*Did you mean"),
    Bad(
        "unknown column to group by",
        "expect {release} age --by agee",
        r"no column 'agee'; the columns are .*Did you mean age",
    ),
    Bad("a column without levels", "expect {release} age --by wage", r"wage has no levels .*: it is real\. Name"),
    Bad("a broken expression", "expect {release} (age", r"\(age\n"),
    Bad("no such code", "expect {release} __import__('os')", r"__import__"),
    Bad(
        "an impossible condition", "expect {release} age --where age>99", r"probability 0 .*so nothing can be said.*Ask"
    ),
    Bad("level", "expect {release} age --level 1.5", r"Invalid value for '--level'", code=2),
    Bad("view", "expect {release} age --view magic", r"Invalid value for '--view'", code=2),
    Bad("no expression", "expect {release}", r"Missing argument 'EXPRESSION", code=2),
    Bad("missing release", "info {nowhere}.kme", r"nowhere\.kme: there is no such file: nothing could be read\. Check"),
    Bad("corrupted release", "info {corrupt_kme}", r"corrupt\.kme: .*\. (Fetch the file again|Check)"),
    Bad("cut release", "expect {cut_kme} age", r"cut\.kme: .*: .*\. (Fetch the file again|Check)"),
    Bad("no release", "mmd-test {text_kme} {sample}", r"text\.kme: .*: .*\. (Fetch the file again|Check)"),
    Bad("a folder for a release", "info {a_folder}", r"folder: .*\. "),
    Bad("missing sample", "mmd-test {release} {nowhere}.csv", r"no file at .*nowhere\.csv\. Check the path"),
    Bad("empty sample", "mmd-test {release} {empty_csv}", r"empty\.csv is empty: it has no header line\. Name"),
    Bad("sample of a header", "mmd-test {release} {header_csv}", r"has a header and no rows\. Name a table"),
    Bad("sample lacks a column", "mmd-test {release} {lacks_csv}", r'the sample lacks "wage": .*\. Add the column'),
    Bad("sample of one row", "mmd-test {release} {one_row_csv}", r"needs at least two rows .*, got 1\. Add rows"),
    Bad("sample of no kind", "mmd-test {release} {text_xlsx}", r"neither \.csv, \.csv\.gz nor \.parquet\. Convert"),
    Bad(
        "cut sample",
        "mmd-test {release} {cut_csv_gz}",
        r"cut\.csv\.gz could not be read as a table: .*\. Write it again",
    ),
    Bad("damaged sample", "mmd-test {release} {damaged_csv_gz}", r"could not be read as a table: .*\. Write it again"),
    Bad("a folder for a sample", "mmd-test {release} {a_folder}", r"neither \.csv.*\. Convert|could not be read"),
    Bad("level of a test", "mmd-test {release} {sample} --level 0", r"Invalid value for '--level'", code=2),
    Bad("export of no kind", "export {release} {out}.xlsx", r"cannot export to .*: the ending .* are known\. Name"),
    Bad(
        "export into no folder", "export {release} {nowhere}/out.csv", r"no folder .*, so nothing was written\. Create"
    ),
    Bad("export over a folder", "export {release} {a_folder}", r"is a directory", code=2),
    Bad(
        "rows without resampling",
        "export {release} {out}.csv --rows 9",
        r"rows goes with view=\"resampled\": the signed",
    ),
    Bad("no rows", "export {release} {out}.csv --view resampled --rows 0", r"Invalid value for '--rows'", code=2),
    Bad("no command", "magic", r"No such command 'magic'", code=2),
]
CURATOR = [
    Bad("plan without a domain", "plan --rows 9 --delta 0 --domain {nowhere}", r"no domain file at .*\. Draft one"),
    Bad(
        "plan nothing", "plan --rows 9 --domain {domain} --delta 1e-6 --epsilon 0", r"epsilon must be .*\. Pass e\.g\."
    ),
    Bad("a density of levels", "publish-function {private} --kind density FUNCTION", r"city have levels .*\. Leave"),
    Bad("predict nothing", "publish-function {private} --kind svm FUNCTION", r"no target is named: .*\. Name it"),
    Bad("no ledger", "ledger show {nowhere}", r"there is no ledger .*\. Check the path, or make one"),
    Bad("a budget of nothing", "ledger init {nowhere} --table t --epsilon 0 --delta 0", r"epsilon must be .*\. Pass"),
    Bad("missing table", "publish {nowhere}.csv GOOD", r"no file at .*nowhere\.csv\. Check the path"),
    Bad("empty table", "publish {empty_csv} GOOD", r"empty\.csv is empty: it has no header line\. Name"),
    Bad("table of a header", "publish {header_csv} GOOD", r"the table has no rows: nothing .*\. Name"),
    Bad("table of no kind", "publish {text_xlsx} GOOD", r"neither \.csv, .* so it is not read\. Convert"),
    Bad("table without a header", "publish {other_csv} GOOD", r"names no column of the domain, so .*\. Give"),
    Bad("table of one line", "publish {cr_csv} GOOD", r"carriage returns alone, so .*\. Write it again"),
    Bad("cut table", "publish {cut_csv_gz} GOOD", r"cut off, damaged or no \.gz file, so .*\. Write it again"),
    Bad("a column too few", "publish {lacks_csv} GOOD", r'the private table lacks "wage": .*\. Add the column'),
    Bad(
        "a column too many in the domain",
        "publish {private} GOOD --domain {wider_toml}",
        r'lacks "height": .*\. Add the column, or write a domain without it',
    ),
    Bad("epsilon of zero", "publish {private} GOOD --epsilon 0", r"epsilon must be a positive .*, got 0\.0: .*\. Pass"),
    Bad(
        "negative epsilon",
        "publish {private} GOOD --epsilon -1",
        r"epsilon must be a positive .*, got -1\.0: .*\. Pass",
    ),
    Bad(
        "no epsilon at all",
        "publish {private} GOOD --epsilon nan",
        r"epsilon must be a positive .*, got nan: .*\. Pass",
    ),
    Bad("epsilon in words", "publish {private} GOOD --epsilon one", r"Invalid value for '--epsilon'", code=2),
    Bad("delta of one", "publish {private} GOOD --delta 1", r"delta must be in \[0, 1\), got 1\.0: .*\. Pass"),
    Bad("negative delta", "publish {private} GOOD --delta -0.1", r"delta must be in \[0, 1\), got -0\.1: .*\. Pass"),
    Bad(
        "delta of zero",
        "publish {private} GOOD --delta 0",
        r"delta = 0 asks for .*cannot give it\. Pass a small delta",
    ),
    Bad(
        "no delta",
        "publish {private} --domain {domain} --epsilon 1 --output {out}.kme",
        r"Missing option '--delta'",
        code=2,
    ),
    Bad(
        "missing domain",
        "publish {private} GOOD --domain {nowhere}.toml",
        r"no domain file at .*\. Draft one from a public sample",
    ),
    Bad("broken domain", "publish {private} GOOD --domain {no_toml}", r"no\.toml is not TOML: .*\. Correct that line"),
    Bad(
        "unknown kind",
        "publish {private} GOOD --domain {unknown_toml}",
        r"column age: kind must be one of .*, got 'number'",
    ),
    Bad(
        "output into no folder",
        "publish {private} GOOD --output {nowhere}/o.kme",
        r"the folder .* does not exist or is not writable, so .*\. Make it first",
    ),
    Bad("output over a folder", "publish {private} GOOD --output {a_folder}", r"is a directory", code=2),
    Bad("unknown method", "publish {private} GOOD --method magic", r"Invalid value for '--method'", code=2),
    Bad(
        "odd features",
        "publish {private} GOOD --method random-features --features 9",
        r"features must be even, got 9: .*\. Add one",
    ),
    Bad(
        "bound of nothing",
        "publish {private} GOOD --bound 1",
        r"bound goes with bounded or signed weights: .*\. Leave it out",
    ),
    Bad(
        "kernel on levels",
        "publish {private} GOOD --kernel gaussian:lengthscale=1",
        r"is for numbers, and city have levels.*Use",
    ),
    Bad(
        "public points that do not fit",
        "publish {private} GOOD --public-points {lacks_csv}",
        r'the file of public points lacks "wage": .*\. Add',
    ),
    Bad(
        "the private table as public points",
        "publish {private} GOOD --public-points {private}",
        r"the public points are the private table itself: its rows would be in the release .*\. Name a file",
    ),
    Bad("no public points", "publish {private} GOOD --public-points {nowhere}.csv", r"no file at .*\. Check the path"),
    Bad(
        "draft from nothing",
        "draft-domain {nowhere}.csv --this-sample-is-public --output {out}.toml",
        r"no file at .*\. Check the path",
    ),
    Bad(
        "draft from an empty file",
        "draft-domain {empty_csv} --this-sample-is-public --output {out}.toml",
        r"is empty: it has no header line\. Name",
    ),
    Bad(
        "draft from names",
        "draft-domain {names_csv} --this-sample-is-public --output {out}.toml",
        r"300 different texts .*: it looks like a name .*\. Remove",
    ),
    Bad(
        "draft into no folder",
        "draft-domain {sample} --this-sample-is-public --output {nowhere}/d.toml",
        r"no folder .*, so nothing was written\. Create",
    ),
    Bad(
        "draft without the word that the sample is public",
        "draft-domain {sample} --output {out}.toml",
        r"from a public sample only: its levels, .* without noise\. .* say --this-sample-is-public",
        code=2,
    ),
    Bad(
        "draft over the sample",
        "draft-domain {lacks_csv} --this-sample-is-public --output {lacks_csv}",
        r"is a file of the sample, which the domain would replace: .*\. Name another file",
    ),
    Bad(
        "a domain drafted from the private table",
        "publish {lacks_csv} GOOD --domain {of_lacks_toml}",
        r"the domain was drafted from the private table itself: .*\. Draft it from a public sample",
    ),
]
BAD = [("kmeanalyst", bad) for bad in ANALYST] + [("release-side", bad) for bad in CURATOR]


@pytest.mark.parametrize("program", MAINS)
def test_every_command_has_a_bad_call_in_the_list(program):
    called = {bad.words.split(" ")[0] for name, bad in BAD if name == program}
    assert set(MAINS[program].commands) <= called


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize(("program", "bad"), BAD, ids=[f"{program}: {bad.name}" for program, bad in BAD])
def test_a_bad_call_ends_in_one_clear_error_and_writes_nothing(program, bad, files, tmp_path):
    places = wrong_files(tmp_path, files)
    before = listing(tmp_path)
    result = call(program, *bad.arguments(places))
    assert result.exit_code == bad.code, result.stderr
    assert result.stdout == ""
    error = result.stderr[result.stderr.index("Error: ") :]
    assert re.search(bad.message, error, re.DOTALL), error
    assert len(error.splitlines()) == 1 or "^" in error  # an expression is shown below, with its trouble marked
    assert "Traceback" not in result.stderr
    assert listing(tmp_path) == before  # no output, no temporary file
    assert listing(files.folder).keys() == {
        files.domain,
        files.private,
        files.sample,
        files.older,
        files.release,
        files.signed,
    }


@pytest.mark.parametrize(("name", "number"), [("corrupt_kme", 1), ("cut_kme", 1), ("text_kme", 1), ("nowhere", 1)])
def test_validate_exits_with_3_where_a_file_cannot_be_trusted_or_read(name, number, files, tmp_path):
    path = wrong_files(tmp_path, files)[name]
    result = call("kmeanalyst", "validate", path)
    assert result.exit_code == 3
    assert result.stdout.startswith("finding: ") and f"{number} findings" in result.stdout
    told = call("kmeanalyst", "validate", path, "--json")
    assert told.exit_code == 3
    found = json.loads(told.stdout)
    assert found["valid"] is False and len(found["findings"]) == number
    assert path in found["findings"][0]


def test_an_older_file_stays_as_it_was_when_a_publication_fails(files, tmp_path, monkeypatch):
    output = tmp_path / "o.kme"
    output.write_bytes(b"older")
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        result = call(
            "release-side",
            "publish",
            files.private,
            "--domain",
            files.domain,
            "--output",
            str(output),
            "--force",
            *PUBLISH,
        )
    assert result.exit_code == 1
    told = f"Error: {output} was not written: disk full. The noise had been drawn: count this release as spent."
    assert result.stderr.splitlines()[-1] == told
    assert listing(tmp_path) == {str(output): b"older"}


@pytest.mark.slow
def test_the_bad_calls_look_the_same_from_a_shell(files, tmp_path):
    """No traceback and the same exit codes in processes of their own."""
    places = wrong_files(tmp_path, files)
    for module, words, code in [
        ("kmeanalyst", "expect {release} agee", 1),
        ("kmeanalyst", "validate {corrupt_kme}", 3),
        ("release_side", "publish {lacks_csv} GOOD", 1),
        ("release_side", "publish", 2),
    ]:
        done = process("-m", module, *spelled(words, places))
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr + done.stdout
        assert ("Error: " in done.stderr) == (code != 3)


# ---------------------------------------------------------------------- what the curator's command line keeps to itself

SECRET = "the cell said secret 4711"


@pytest.mark.parametrize(
    "error",
    [
        ValueError(SECRET),
        KeyError(SECRET),
        RuntimeError(SECRET),
        TypeError(SECRET),
        UnicodeDecodeError("utf-8", SECRET.encode(), 0, 1, SECRET),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("place", ["private_mean", "represent", "open_private"])
def test_the_text_of_an_unforeseen_error_is_withheld(place, error, files, tmp_path, monkeypatch):
    def fail(*_: Any, **__: Any) -> None:
        raise error

    homes = {"private_mean": door, "represent": MeanMethod, "open_private": publishing}
    monkeypatch.setattr(homes[place], place, fail)
    output = (
        "--output",
        str(tmp_path / "o.kme"),
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--points",
        "5",
        "--features",
        "10",
        "--uncounted",
    )
    result = call("release-side", "publish", files.private, "--domain", files.domain, *output)
    assert result.exit_code == 1
    shown = result.stdout + result.stderr
    for trace in ("4711", "secret", "Traceback", type(error).__name__):
        assert trace not in shown
    for part in (
        "an unexpected error happened",
        "may hold private values",
        "Nothing was written. Try the same on a public sample",
    ):
        assert part in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_unforeseen_error_is_withheld_in_a_process_too(files, tmp_path):
    """What Python itself would print of an error and of those it came from does not reach the terminal."""
    code = (
        "import sys, release_side.door.door as p\n"
        "def fail(*a, **k):\n"
        "    try: int('secret 4711')\n"
        "    except ValueError as e: raise RuntimeError('secret 4712') from e\n"
        "p.private_mean = fail\n"
        "from release_side.cli.main import main\nmain(sys.argv[1:])\n"
    )
    arguments = ["publish", files.private, "--domain", files.domain, "--output", str(tmp_path / "o.kme"), *PUBLISH]
    done = process("-c", code, *arguments)
    assert done.returncode == 1
    assert "withheld" in done.stderr
    assert not re.search("471|secret|Traceback|File ", done.stdout + done.stderr)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_hostile_cells_leave_no_word_on_the_terminal(files, tmp_path):
    """The same table with and without them prints the same, but for what the noise decides."""
    plain = Path(files.private).read_text(encoding="utf-8").splitlines()
    cells = ["secret4711,secret4711,secret4711,secret4711", '"secret4711', "", "1e999,nan,\x00,-inf", "\udcff"]
    (tmp_path / "h.csv").write_text("\n".join([*plain[:-5], *cells]), encoding="utf-8", errors="surrogateescape")
    shown = []
    for table in (files.private, str(tmp_path / "h.csv")):
        output = ("--output", str(tmp_path / "o.kme"), "--force")
        done = process("-m", "release_side", "publish", table, "--domain", files.domain, *output, *PUBLISH)
        assert done.returncode == 0, done.stderr
        assert "4711" not in done.stdout + done.stderr
        noisy = ("Σw", "residual")
        shown.append((done.stderr, [line for line in done.stdout.splitlines() if not any(w in line for w in noisy)]))
    assert shown[0] == shown[1]
    assert open_private(tmp_path / "h.csv").count() == 500


# ---------------------------------------------------------------------- help, versions and quick starts


@pytest.mark.parametrize("program", MAINS)
def test_the_help_of_every_command_has_an_example_of_itself(program):
    assert f"{program} " in call(program, "--help").stdout.split("Example")[1]
    for name in MAINS[program].commands:
        text = call(program, name, "-h").stdout
        assert re.search(rf"Examples?:\s+{program} {name}", text), text


@pytest.mark.parametrize("program", MAINS)
def test_both_packages_run_as_modules_and_tell_their_version(program):
    done = process("-m", MODULES[program], "--version")
    assert done.returncode == 0
    assert kmeanalyst.__version__ in done.stdout
    done = process("-m", MODULES[program], "--help")
    assert done.returncode == 0 and "Examples:" in done.stdout


@pytest.mark.parametrize(
    "code",
    [
        "import kmeanalyst",
        "import release_side",
        "import kmeanalyst; dir(kmeanalyst)",
        "from kmeanalyst.cli.main import main; main(['--help'], standalone_mode=False)",
        "from release_side.cli.main import main; main(['--help'], standalone_mode=False)",
        "from kmeanalyst.cli.main import main; main(['expect', '--help'], standalone_mode=False)",
        "from release_side.cli.main import main; main(['publish', '--help'], standalone_mode=False)",
    ],
)
def test_imports_and_help_load_nothing_heavy(code):
    done = process("-c", f"{code}\nimport sys\nprint('loaded', [m for m in {HEAVY} if m in sys.modules])")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded []"


def test_the_heavy_import_check_sees_one():
    """The power of the test above."""
    done = process(
        "-c", f"import kmeanalyst; kmeanalyst.Domain\nimport sys\nprint([m for m in {HEAVY} if m in sys.modules])"
    )
    assert "numpy" in done.stdout and "pandas" in done.stdout


def test_the_public_names_of_the_package_are_there():
    for name in kmeanalyst.__all__:
        assert getattr(kmeanalyst, name) is not None
    assert dir(kmeanalyst) == sorted(kmeanalyst.__all__)
    with pytest.raises(AttributeError, match="no attribute 'magic'"):
        kmeanalyst.magic  # noqa: B018


# ---------------------------------------------------------------------- the demo


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The demo's steps are recorded, not run."""
    steps: list[list[str]] = []

    def record(arguments: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        steps.append(arguments)
        return subprocess.CompletedProcess(arguments, 0, stdout=b'{"step": 1}\n')

    monkeypatch.setattr(demo.subprocess, "run", record)
    return steps


def test_demo_json_is_one_object_with_the_answer_of_each_step(stage, tmp_path):
    result = call("kmeanalyst", "demo", "--json", "--keep", str(tmp_path / "kept"))
    found = answer(result)
    assert_numbers(found, "seconds")
    assert found["folder"] == str(tmp_path / "kept")
    assert [step["answer"] for step in found["steps"]] == [{"step": 1}] * len(stage)
    assert all(arguments[-1] == "--json" for arguments in stage)
    assert "1. The curator drafts a domain" in result.stderr


def test_the_demo_shows_the_commands_it_runs(stage):
    result = call("kmeanalyst", "demo")
    shown = [line for line in result.stdout.splitlines() if line.startswith("$ ")]
    assert len(shown) == len(stage) == 10
    assert all(arguments[1:3] in (["-m", "kmeanalyst"], ["-m", "release_side"]) for arguments in stage)
    assert "--keep FOLDER keeps them" in result.stdout


@pytest.mark.parametrize("name", ["private.csv", "my_older_sample.csv", "domain.toml", "census.kme", "census.ledger"])
def test_the_demo_replaces_no_file_of_a_folder_that_it_is_given(name, stage, tmp_path):
    """Power: `--keep .` overwrote a private.csv that was there."""
    (tmp_path / name).write_text("mine", encoding="utf-8")
    result = call("kmeanalyst", "demo", "--keep", str(tmp_path))
    assert result.exit_code == 1 and stage == []
    assert f"has a file {name} already" in result.stderr and "Name a new folder" in result.stderr
    assert listing(tmp_path) == {str(tmp_path / name): b"mine"}


def test_a_step_of_the_demo_that_fails_ends_it(monkeypatch):
    monkeypatch.setattr(demo.subprocess, "run", lambda a, **_: subprocess.CompletedProcess(a, 7))
    result = call("kmeanalyst", "demo")
    assert result.exit_code == 1
    assert "the step above failed with exit code 7. Please report it" in result.stderr


@pytest.mark.slow
def test_the_demo_runs_to_its_end_and_keeps_its_files(tmp_path):
    done = process("-m", "kmeanalyst", "demo", "--keep", "kept", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "That was every step" in done.stdout and "The files are in kept." in done.stdout
    assert "every claim that can be checked holds" in done.stdout
    pvalues = [float(found) for found in re.findall(r"^p-value +(\S+)", done.stdout, re.MULTILINE)]
    assert len(pvalues) == 2 and pvalues[0] > 1e-4 and pvalues[1] < 0.01
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert kept >= {
        "private.csv",
        "public_sample.csv",
        "my_sample.csv",
        "domain.toml",
        "census.kme",
    }
    assert not any(name.endswith(".partial") for name in kept)
    release = read_release(tmp_path / "kept" / "census.kme")
    assert release.statement is not None and release.statement.n_rows == 6000
    assert abs(release.mean("age").value - 38.6) < 2


def test_no_command_replaces_the_file_it_was_given(files, tmp_path):
    """Power: before, the domain became a zip file and a release a part of itself."""
    domain, release = tmp_path / "d.toml", tmp_path / "r.kme"
    shutil.copy(files.domain, domain)
    shutil.copy(files.release, release)
    before = domain.read_bytes(), release.read_bytes()
    promise = ("--epsilon", "1", "--delta", "1e-6", "--uncounted")
    for program, *words in (
        ("release-side", "publish", files.private, "--domain", str(domain), *promise, "--output", str(domain)),
        ("kmeanalyst", "thin", str(release), "20", "--output", str(release)),
        ("kmeanalyst", "transform", str(release), "half = age / 2", "--output", str(release)),
    ):
        result = call(program, *words)
        assert result.exit_code == 1 and "Name a new file" in result.stderr
    assert (domain.read_bytes(), release.read_bytes()) == before
