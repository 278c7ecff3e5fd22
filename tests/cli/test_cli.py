"""Both command lines: their output, their JSON, what they withhold, how quickly they start, and the demo."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import Result
from command_line import CITIES, Files, answer, call, read_release

import kmeanalyst
from kmeanalyst.cli import demo
from kmeanalyst.cli.terminal import json_text
from kmeanalyst.inference.questions.expectation import conditions_by
from kmeanalyst.releases.domain.domain import Domain, read_domain
from kmeanalyst.releases.file.export import export
from release_side.door import door
from release_side.private_rows.rows import open_private
from release_side.publishing import opening
from release_side.publishing.unfinished import Begun

publishing = importlib.import_module("release_side.publishing.publish")

HEAVY = ["numpy", "pandas", "scipy", "sklearn", "opendp", "dp_accounting", "matplotlib", "pyarrow", "xarray"]


def process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A Python process of its own, with warnings as errors."""
    return subprocess.run([sys.executable, "-W", "error", *arguments], capture_output=True, text=True, **options)


def assert_numbers(values: dict[str, Any], names: str) -> None:
    for name in names.split():
        assert isinstance(values[name], int | float) and not isinstance(values[name], bool), (name, values[name])


def test_mmd_test_json_has_the_fields_of_the_interface(files):
    result = call("kmeanalyst", "mmd-test", files.release, files.sample, "--json", "--level", "0.01")
    found = answer(result)
    assert_numbers(found, "statistic pvalue mmd_squared n_release_rows n_release_points n_sample_rows epsilon delta level")
    assert (found["n_release_rows"], found["n_release_points"], found["n_sample_rows"]) == (500, 40, 400)
    assert (found["epsilon"], found["delta"], found["level"]) == (5.0, 1e-6, 0.01)
    assert found["noise_aware"] is True
    assert isinstance(found["method"], str)
    assert found["reject"] is (found["pvalue"] < 0.01)
    assert any("ignored columns" in note and '"extra"' in note for note in found["notes"])


def test_mmd_test_rejects_rows_that_are_thirty_years_older_and_says_so(files):
    found = answer(call("kmeanalyst", "mmd-test", files.release, files.older, "--json"))
    assert found["reject"] is True and found["level"] == 0.05
    shown = call("kmeanalyst", "mmd-test", files.release, files.older).stdout
    assert "populations of both sides differ" in shown and "MMD²" in shown and "privacy noise included" in shown


def test_mmd_test_takes_another_release(files):
    found = answer(call("kmeanalyst", "mmd-test", files.release, files.release, "--json"))
    assert found["pvalue"] > 0.98  # one that says nothing, however many tests
    assert found["reject"] is False


def test_expect_json_has_the_fields_of_the_interface(files):
    questions = ("age", "age > 50", "`hours-per-week` * wage")
    found = answer(call("kmeanalyst", "expect", files.release, *questions, "--level", "0.8", "--json"))
    assert list(found) == ["rehearsal", "estimates"] and found["rehearsal"] is False
    assert [e["expression"] for e in found["estimates"]] == list(questions)
    release = read_release(files.release)
    for estimate, question in zip(found["estimates"], questions, strict=True):
        assert_numbers(estimate, "value standard_error level")
        assert_numbers(estimate["parts"], "privacy sampling resolution")
        assert list(estimate["parts"]) == ["privacy", "sampling", "resolution"]
        assert estimate["view"] == "fitted" and estimate["level"] == 0.8
        low, high = estimate["interval"]
        assert low < estimate["value"] < high
        expected = release.expectation(question)
        assert estimate["value"] == expected.value
        assert [low, high] == list(expected.interval(0.8))


def test_expect_where_by_and_view_ask_what_they_say(files):
    release = read_release(files.signed)
    options = ("--where", "wage > 20", "--view", "probability", "--json")
    found = answer(call("kmeanalyst", "expect", files.signed, "age", *options))["estimates"][0]
    expected = release.expectation("age", where="wage > 20", view="probability").value
    assert (found["value"], found["view"], found["expression"]) == (expected, "probability", "age | wage > 20")
    for view, option in (("signed", ("--view", "signed")), ("fitted", ())):
        found = answer(call("kmeanalyst", "expect", files.signed, "age", *option, "--json"))["estimates"][0]
        assert (found["value"], found["view"]) == (release.expectation("age", view=view).value, view)


def test_an_expression_without_an_answer_does_not_refuse_the_others(files):
    result = call("kmeanalyst", "expect", files.release, "age", "age * agee", "age > 30", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1 and [e["expression"] for e in found["estimates"]] == ["age", "age > 30"]
    (refused,) = found["refused"]
    assert refused["expression"] == "age * agee" and "no column agee" in refused["reason"]
    assert "note: no answer to age * agee: no column agee" in result.stderr
    shown = call("kmeanalyst", "expect", files.release, "age * agee", "age")
    assert shown.exit_code == 1 and "age" in shown.stdout and "agee" not in shown.stdout
    alone = call("kmeanalyst", "expect", files.release, "agee")
    assert (alone.exit_code, alone.stdout) == (1, "")


def test_expect_by_answers_for_each_level_that_has_an_answer(files):
    """Nowhere has no weight, or little: the other levels are answered all the same."""
    result = call("kmeanalyst", "expect", files.release, "age", "--by", "city", "--where", "age < 80", "--json")
    release = read_release(files.release)
    found = {e["expression"]: e["value"] for e in answer(result)["estimates"]}
    conditions = conditions_by(release, "city", "age < 80")
    assert all(level in text for level, text in zip(("Basel", "Genf", "O'Higgins", "Nowhere"), conditions, strict=True))
    for condition in conditions[:2]:
        assert found[f"age | {condition}"] == release.expectation("age", where=condition).value
    frame = release.to_frame("fitted")
    nowhere = frame.loc[(frame["city"] == "Nowhere") & (frame["age"] < 80), "weight"].sum()
    assert (len(found), "no answer where" in result.stderr) == ((3, True) if nowhere == 0 else (4, False))


@pytest.mark.parametrize(("command", "orders"), [("expect", []), ("quantile", [0.5])])
def test_a_level_without_points_is_reported_and_no_level_with_an_answer_is_an_error(command, orders, files, tmp_path):
    release = read_release(files.release)
    frame = release.to_frame()
    frame["weight"] = np.where(frame["city"] == "Genf", 0.0, 1 / len(frame))
    changed = kmeanalyst.from_frame(frame, domain=release.domain)
    changed.write(tmp_path / "f.kme")
    result = call("kmeanalyst", command, tmp_path / "f.kme", "age", *orders, "--by", "city", "--json")
    estimates = answer(result)["estimates"]
    assert estimates and not any("Genf" in e["expression"] for e in estimates)
    assert {e["parts"]["privacy"] for e in estimates} == {None}
    assert re.search(r"note: no answer where `?city`? == 'Genf': the condition has probability 0", result.stderr)
    bad = call("kmeanalyst", command, tmp_path / "f.kme", "agee", *orders, "--by", "city", "--json")
    assert (bad.exit_code, bad.stdout) == (1, "")


def test_unknown_parts_are_null(files, tmp_path):
    """Weighted points from elsewhere have no privacy part, and the JSON says null."""
    frame = read_release(files.release).to_frame()
    kmeanalyst.from_frame(frame, domain=CITIES).write(tmp_path / "f.kme")
    found = answer(call("kmeanalyst", "expect", tmp_path / "f.kme", "age", "--json"))["estimates"][0]
    assert found["parts"]["privacy"] is None and found["parts"]["resolution"] is None
    tested = answer(call("kmeanalyst", "mmd-test", tmp_path / "f.kme", files.sample, "--json"))
    assert tested["noise_aware"] is False
    assert (tested["epsilon"], tested["delta"], tested["n_release_rows"]) == (None, None, None)
    shown = answer(call("kmeanalyst", "info", tmp_path / "f.kme", "--json"))
    assert (shown["statement"], shown["n_rows"], shown["fit_distance"]) == (None, None, None)


def test_info_json_describes_the_release(files):
    found = answer(call("kmeanalyst", "describe", files.signed, "--json"))
    release = read_release(files.signed)
    assert_numbers(found, "n_points n_rows n_features sum_weights sum_absolute_weights share_negative fit_distance")
    shown = [found[name] for name in ("method", "weight_view", "n_points", "n_rows")]
    assert shown == ["subspace", "published", 30, 500]
    assert found["sum_absolute_weights"] == np.abs(release.weights).sum()
    assert found["share_negative"] == (release.weights < 0).mean()
    assert found["statement"]["epsilon"] == 5.0
    assert [column["name"] for column in found["columns"]] == ["age", "wage", "city", "hours-per-week"]
    assert found["kernel"] == release.kernel.to_dict()
    assert call("kmeanalyst", "info", files.signed).stdout == repr(release) + "\n"
    assert answer(call("kmeanalyst", "info", files.signed, "--json"))["mu"] == release.statement.mu


def test_validate_json_is_valid_without_findings(files):
    assert answer(call("kmeanalyst", "validate", files.release, "--json")) == {"valid": True, "findings": []}
    assert "every claim that can be checked holds" in call("kmeanalyst", "validate", files.release).stdout


def test_export_writes_every_format_and_reports_it(files, tmp_path):
    for ending in (".parquet", ".nc", ".csv"):
        path = tmp_path / f"out{ending}"
        result = call("kmeanalyst", "export", files.signed, str(path), "--json")
        assert answer(result) == {
            "output": str(path), "view": "signed", "rows": 30, "defused_cells": 0, "rehearsal": False,
        }  # fmt: skip
        assert f"wrote {path}" in result.stderr and "signed weights; most tools misread" in result.stderr
        export(read_release(files.signed), tmp_path / f"same{ending}")
        assert path.read_bytes() == (tmp_path / f"same{ending}").read_bytes()
    fitted = call("kmeanalyst", "export", files.signed, str(path), "--view", "fitted", "--json")
    rows = read_release(files.signed).to_frame("fitted")
    assert answer(fitted)["rows"] == len(rows) and ("misread" in fitted.stderr) is bool(rows["weight"].min() < 0)
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


def publish_to(output: Path | str, files: Files, *more: str) -> Result:
    return call("release-side", "publish", files.private, "--domain", files.domain, "--output", output, *PUBLISH, *more)


def test_publish_json_has_the_statement(files, tmp_path):
    output = str(tmp_path / "o.kme")
    result = publish_to(output, files, "--json")
    found = answer(result)
    release = read_release(output)
    assert (found["output"], found["fit_distance"]) == (output, release.fit_distance)
    assert found["statement"] == json.loads(json.dumps(release.statement.to_dict()))
    assert_numbers(found["statement"], "epsilon delta sensitivity noise_scale rho n_rows public_points")
    assert "note: columns not in the domain are ignored: extra" in result.stderr


def test_publish_passes_every_choice_on(files, tmp_path, monkeypatch):
    """What publish does with each is tested there; here only that they arrive."""
    seen: dict[str, Any] = {}

    def record(private: str, domain: Domain, **choices: Any) -> None:
        seen.update(choices)
        raise OSError("enough seen")

    monkeypatch.setattr(publishing, "publish", record)
    options = {
        "epsilon": 0.5, "delta": 1e-7, "method": "subspace", "public_points": files.sample, "points": 12, "features": 34,
        "family": "maclaurin", "kernel": "margins", "target": "city", "weights": "signed", "bound": 1.5, "noise": "laplace",
        "calibration": "zcdp", "ledger": str(tmp_path / "ledger"), "table": "people", "unit": "extra", "rehearsal": 7,
        "workers": 3, "workload": files.sample, "like": files.release, "output": str(tmp_path / "o.kme"),
    }  # fmt: skip
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    for flag in ([], ["--float32"], ["--uncounted"], ["--weak"], ["--force"]):
        result = call("release-side", "publish", files.private, "--domain", files.domain, *words, *flag)
        assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, "Error: enough seen")
        assert callable(seen.pop("progress"))
        assert seen == options | {"target": ("city",), "executor": None} | {
            name: f"--{name}" in flag for name in ("float32", "uncounted", "weak", "force")
        }


def test_publish_in_words_shows_the_guarantee(files, tmp_path):
    output = str(tmp_path / "o.kme")
    result = publish_to(output, files)
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


def test_nan_and_infinities_become_null_and_numpy_numbers_numbers():
    values = {"a": float("nan"), "b": [np.inf, -np.inf], "c": np.float64(1.5), "d": np.int64(3), "e": np.bool_(True)}
    out = json_text(values | {"f": ("ü",), 7: None})
    assert out == '{"a": null, "b": [null, null], "c": 1.5, "d": 3, "e": true, "f": ["ü"], "7": null}'


def test_an_older_file_stays_as_it_was_when_a_publication_fails(files, tmp_path, monkeypatch):
    output = tmp_path / "o.kme"
    output.write_bytes(b"older")
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        result = publish_to(output, files, "--force")
    assert result.exit_code == 1
    error = f"Error: {output} was not written: disk full. The noise had been drawn: count this release as spent."
    assert result.stderr.splitlines()[-1] == error
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"older"]


def test_publish_does_not_replace_its_domain(files, tmp_path):
    """Power: before the check, the domain became a zip file. The analyst's commands are in test_sources.py."""
    domain = tmp_path / "d.toml"
    shutil.copy(files.domain, domain)
    before = domain.read_bytes()
    result = publish_to(domain, files._replace(domain=str(domain)))
    assert result.exit_code == 1 and "Name a new file" in result.stderr
    assert domain.read_bytes() == before


SECRET = "the cell said secret 4711"


@pytest.mark.parametrize("function", ["private_mean", "release", "open_private"])
def test_the_text_of_an_unforeseen_error_is_withheld(function, files, tmp_path, monkeypatch):
    homes = {"private_mean": door, "release": Begun, "open_private": opening}
    options = ["--epsilon", "1", "--delta", "1e-6", "--points", "5", "--features", "10", "--uncounted", "--domain"]
    for error in (
        ValueError(SECRET), KeyError(SECRET), RuntimeError(SECRET), TypeError(SECRET),
        UnicodeDecodeError("utf-8", SECRET.encode(), 0, 1, SECRET),
    ):  # fmt: skip

        def fail(*_: Any, error: Exception = error, **__: Any) -> None:
            raise error

        monkeypatch.setattr(homes[function], function, fail)
        result = call("release-side", "publish", files.private, *options, files.domain, "--output", tmp_path / "o.kme")
        assert result.exit_code == 1
        for trace in ("4711", "secret", "Traceback", type(error).__name__):
            assert trace not in result.stdout + result.stderr
        what, why, fix = "an unexpected error happened", "may hold private values", "Try the same on a public sample"
        assert all(part in result.stderr for part in (what, why, f"No release was written. {fix}"))
        partial = tmp_path / "o.kme.partial"  # noisy sums, which are public
        assert list(tmp_path.iterdir()) == ([partial] if function == "release" else [])
        partial.unlink(missing_ok=True)


def test_an_unforeseen_error_is_withheld_in_a_process_too(files, tmp_path):
    """What Python itself would print of an error and its causes does not reach the terminal."""
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
def test_hostile_cells_show_nothing_on_the_terminal(files, tmp_path):
    """The table with and without them prints the same, except for what depends on the noise."""
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
        said = re.sub(f"'?{re.escape(table)}'?", "TABLE", done.stderr)  # which the last line names
        shown.append((said, [line for line in done.stdout.splitlines() if not any(w in line for w in noisy)]))
    assert shown[0] == shown[1]
    assert open_private(tmp_path / "h.csv").count() == 500


@pytest.mark.parametrize("module", ["kmeanalyst", "release_side"])
def test_imports_and_help_load_nothing_heavy_and_packages_run_as_modules(module):
    command = {"kmeanalyst": "expect", "release_side": "publish"}[module]
    code = (
        f"import {module} as package; dir(package); from {module}.cli.main import main\n"
        f"for words in (['--help'], [{command!r}, '--help']): main(words, standalone_mode=False)\n"
        f"import sys; print('loaded', [m for m in {HEAVY} if m in sys.modules])"
    )
    done = process("-c", code)
    assert done.returncode == 0, done.stderr
    assert "Examples:" in done.stdout and done.stdout.splitlines()[-1] == "loaded []"
    done = process("-m", module, "--version")
    assert done.returncode == 0 and kmeanalyst.__version__ in done.stdout


def test_the_heavy_import_check_sees_one():
    """The power of the test above."""
    code = f"import kmeanalyst; kmeanalyst.Domain\nimport sys\nprint([m for m in {HEAVY} if m in sys.modules])"
    done = process("-c", code)
    assert "numpy" in done.stdout and "pandas" in done.stdout


def test_the_public_names_of_the_package_are_there():
    for name in kmeanalyst.__all__:
        assert getattr(kmeanalyst, name) is not None
    assert dir(kmeanalyst) == sorted(kmeanalyst.__all__)
    with pytest.raises(AttributeError, match="no attribute 'magic'"):
        kmeanalyst.magic  # noqa: B018


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


def test_the_demo_replaces_no_file(stage, tmp_path):
    """Power: `--keep .` overwrote a private.csv that was there."""
    for name in ("private.csv", "my_older_sample.csv", "domain.toml", "census.kme", "census.ledger"):
        folder = tmp_path / name.replace(".", "_")
        folder.mkdir()
        (folder / name).write_text("mine", encoding="utf-8")
        result = call("kmeanalyst", "demo", "--keep", str(folder))
        assert result.exit_code == 1 and stage == []
        assert f"has a file {name} already" in result.stderr and "Name a new folder" in result.stderr
        assert [path.read_bytes() for path in folder.iterdir()] == [b"mine"]


def test_the_demo_ends_at_a_step_that_fails(monkeypatch):
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
    pvalues = [float(found) for found in re.findall(r"\(p [=<] ([^,]+), level", done.stdout, re.MULTILINE)]
    assert len(pvalues) == 2 and pvalues[0] > 1e-4 and pvalues[1] < 0.01
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert kept >= {"private.csv", "public_sample.csv", "my_sample.csv", "domain.toml", "census.kme"}
    assert not any(name.endswith(".partial") for name in kept)
    release = read_release(tmp_path / "kept" / "census.kme")
    assert release.statement is not None and release.statement.n_rows == 6000
    assert abs(release.mean("age").value - 38.6) < 2
