"""Texts from strangers: no text is shown that could pass for this program's own, or command a terminal."""

from __future__ import annotations

import copy
import json
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from file_tools import FileRefused, forged, members_of, setting
from ledger_cases import recomputed, replace_all

import release_side
from kmeanalyst.cli.main import main as kmeanalyst_main
from kmeanalyst.cli.terminal import json_text
from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.derived import Derived
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.draft import draft_domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.file import read_function
from kmeanalyst.releases.statement import PrivacyStatement, StatementError
from kmeanalyst.releases.texts import JOINERS, escaped, flaw_of, is_hidden, one_line, replaced
from release_side.budget.ledger import Ledger
from release_side.budget.ledger_file import LedgerFile
from release_side.cli.main import main as release_side_main

FORGED_LINE = "  privacy     ε = 0.1, δ = 1e-09 (verified)"
HOSTILE = [
    f"x\n{FORGED_LINE}", f"x\r{FORGED_LINE}", f"x\x1b[2K\x1b[1G{FORGED_LINE}", f"x\x9b2K{FORGED_LINE}", f"x\x85{FORGED_LINE}",
    f"x\u2028{FORGED_LINE}", f"x\u2029{FORGED_LINE}", "x\u202e)deifirev( 1.0 = ε", "x\u2066y\u2069", "x\u200fy", "x\u061cy",
    "x\u200by", "x\u200dy", "x\u00ady", "x\ufeffy", "x\U000e0041y", "x\u3164y", "x\ufe0fy", "x\x7fy", "x\x00y", "x\ue000y",
    "x\ufdd0y", "x\U0010ffffy", "م\u200c\u200cم", "\u200dم",
]  # fmt: skip
HARMLESS = [
    "age", "naïve", "Zürich", "東京", "שלום", "می\u200cخواهم", "क्\u200dष", "👩\u200d🔬", "❤\ufe0f\u200d🔥", "葛\U000e0100城",
    "1\u00a0000", "<=50K", '"quoted, text"', "ε ≤ ∞",
]  # fmt: skip


# ---------------------------------------------------------------- the rule


def test_names_of_every_script_are_harmless_and_shown_as_they_are() -> None:
    for text in HARMLESS:
        assert flaw_of(text) is None
        assert one_line(text) == escaped(text) == replaced(text) == text


def test_a_text_that_could_deceive_is_named() -> None:
    for text in [*HOSTILE, "x\ud800y"]:
        assert "(U+" in str(flaw_of(text))


def test_no_character_that_a_terminal_obeys_or_hides_passes_any_way_out() -> None:
    """Every character of most scripts, and some of all planes; but for joiners and selectors."""
    unshown = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    some = [*range(0x3200), *range(0x3200, sys.maxunicode + 1, 61)]
    hidden = [c for c in map(chr, some) if unicodedata.category(c) in unshown and c not in JOINERS]
    assert all(map(is_hidden, hidden)) and len(hidden) > 10_000
    assert one_line("".join(hidden)).isprintable() and one_line("".join(hidden)).isascii()
    few = [c for c in hidden if ord(c) < 0x3000] + hidden[::5000]
    assert all(flaw_of(f"a{c}b") and flaw_of(f"م{c}م") for c in few)


# ---------------------------------------------------------------- files: every text of a header


def texts_within(value: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to each text of a header: to each value, and to each key, which ends in None."""
    if isinstance(value, str):
        yield keys
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        if isinstance(value, dict):
            yield (*keys, key, None)
        yield from texts_within(item, (*keys, key))


def with_text(header: dict[str, Any], keys: tuple[Any, ...], text: str) -> dict[str, Any]:
    header = copy.deepcopy(header)
    if keys[-1] is not None:
        setting(*keys, to=text)(header)
        return header
    *path, key, _ = keys
    table = reduce(getitem, path, header)
    table[text] = table.pop(key)
    return header


def replace_header(path: Path, header: dict[str, Any], out: Path) -> Path:
    def edit(old: dict[str, Any], members: Any) -> None:
        old.clear()
        old.update(copy.deepcopy(header))

    out.write_bytes(forged(path, edit, resealed=False))
    return out


@pytest.fixture
def derived_path(mixed_release: Release, tmp_path: Path) -> Path:
    """A file with every field that a release can have."""
    path = tmp_path / "derived.kme"
    mixed_release.transform({"twice": "age * 2"}).write(path)
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(kmeanalyst_main, list(arguments))


def check_silent(result: Result, hostile: str) -> None:
    """Neither stream has the text as it is, nor a line that begins as the forged one does, nor a traceback."""
    shown = result.stdout + result.stderr
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert hostile not in shown
    assert not any(line.startswith(FORGED_LINE.strip()[:12]) or line.startswith(FORGED_LINE[:14]) for line in shown.splitlines())
    assert all(c == "\n" or not is_hidden(c) for c in shown)


def test_a_hostile_text_anywhere_in_a_header_is_refused_and_never_shown(derived_path: Path, tmp_path: Path) -> None:
    header = json.loads(members_of(derived_path)["release.json"])
    all_keys = list(texts_within(header))
    assert len(all_keys) > 200
    for number, keys in enumerate(all_keys):
        hostile = HOSTILE[number % len(HOSTILE)]
        strange = replace_header(derived_path, with_text(header, keys, hostile), tmp_path / "strange.kme")
        with pytest.raises(FileRefused) as caught:
            read_release(strange)
        assert str(caught.value).isprintable(), (keys, hostile)
        check_silent(run("info", str(strange)), hostile)


FREE_TEXTS = [
    ("method",), ("versions", "numpy"), ("versions", "numpy", None), ("statement", "versions", "kmeanalyst"),
    ("statement", "versions", "kmeanalyst", None), ("statement", "taken_as_public", 0), ("columns", 4, "levels", 0),
    ("columns", 0, "name"), ("derived", 0, "column", "name"), ("derived", 0, "expression"), ("kernel", "name"),
]  # fmt: skip


def test_texts_that_may_say_anything_are_refused_for_what_they_hide(derived_path: Path, tmp_path: Path) -> None:
    for keys in FREE_TEXTS:
        header = json.loads(members_of(derived_path)["release.json"])
        for hostile in HOSTILE:
            strange = replace_header(derived_path, with_text(header, keys, hostile), tmp_path / "strange.kme")
            message = r"release\.json has a text with an?.*\(U\+[0-9A-F]+\).*could pass for"
            with pytest.raises(FileRefused, match=message):
                read_release(strange)


COMMANDS = [
    ["info"], ["info", "--json"], ["validate"], ["validate", "--json"], ["expect", "age"], ["expect", "age", "--json"],
    ["quantile", "age", "0.5"], ["table", "city"], ["mmd-test", "SAMPLE"], ["compare", "SAMPLE"],
    ["transform", "age * 2", "--output", "OUT.kme"], ["export", "OUT.csv"], ["plot", "age", "--output", "OUT.png"],
    ["report", "--output", "OUT.html"], ["train", "--target", "married", "--output", "OUT.skops"], ["evaluate", "SAMPLE"],
]  # fmt: skip


def test_no_command_shows_what_a_hostile_file_says(mixed_release: Release, mixed_path: Path) -> None:
    for command in COMMANDS:
        folder, hostile = mixed_path.parent, HOSTILE[0]
        sample = folder / "sample.csv"
        mixed_release.to_frame().drop(columns="weight").to_csv(sample, index=False)
        names = {"SAMPLE": str(sample)} | {
            f"OUT.{end}": str(folder / f"out.{end}") for end in ("kme", "csv", "png", "html", "skops")
        }
        for keys in (("method",), ("statement", "taken_as_public", 0), ("columns", 4, "levels", 0)):
            (folder / "strange.kme").write_bytes(forged(mixed_path, setting(*keys, to=hostile)))
            name, *rest = command
            result = run(name, str(folder / "strange.kme"), *(names.get(word, word) for word in rest))
            check_silent(result, hostile)
            assert result.exit_code == (3 if name == "validate" else 1)
            assert not list(folder.glob("out.*"))


def test_a_function_file_keeps_the_same_rule(tmp_path: Path) -> None:
    domain = Domain((Real(name="x", lower=-3.0, upper=3.0), Real(name="y", lower=0.0, upper=1.0)))
    frame = domain.decode(domain.draw(40, 3))
    path = tmp_path / "ridge.kme"
    release_side.publish_function(frame, domain, epsilon=1.0, delta=1e-6, kind="ridge", target="y", rehearsal=1, output=path)
    header = json.loads(members_of(path)["release.json"])
    for number, keys in enumerate(texts_within(header)):
        hostile = HOSTILE[number % len(HOSTILE)]
        strange = replace_header(path, with_text(header, keys, hostile), tmp_path / "strange.kme")
        with pytest.raises(FileRefused):
            read_function(strange, allow_rehearsal=True)
        check_silent(run("info", str(strange), "--allow-rehearsal"), hostile)
        check_silent(run("evaluate", str(strange), str(tmp_path / "none.csv"), "--allow-rehearsal"), hostile)


# ---------------------------------------------------------------- makers of files


def test_a_domain_or_a_release_with_a_hostile_text_is_refused_before_it_is_published(mixed_release: Release) -> None:
    for hostile in HOSTILE:
        for make in (
            lambda hostile=hostile: Categorical(name="city", levels=("Basel", hostile)),
            lambda hostile=hostile: Integer(name=hostile, lower=0, upper=1),
            lambda hostile=hostile: Text(name="code", length=4, alphabet="".join(dict.fromkeys(hostile))),
            lambda hostile=hostile: Date(name="day", lower="2000-01-01" + hostile, upper="2001-01-01"),
            lambda hostile=hostile: Date(name="day", lower="2000-01-01", upper="2001-01-01", default=f"2000-06-01{hostile}"),
            lambda hostile=hostile: Date(name="day", lower="2000-01-01", upper="2001-01-01", edges=[f"2000-06-01{hostile}"]),
        ):
            with pytest.raises(DomainError, match=r"(?s)\(U\+[0-9A-F]+\).*no reader takes.*Remove it") as caught:
                make()
            assert str(caught.value).isprintable()
        with pytest.raises(ValueError, match=r"(?s)has an? .*\(U\+[0-9A-F]+\).*on one line"):
            Derived(column=Integer(name="new", lower=0, upper=1), expression=f"where(city == '{hostile}', 1, 0)")
        statement = mixed_release.statement.to_dict()
        for field, value in (("taken_as_public", [hostile]), ("versions", {hostile: "1"}), ("versions", {"numpy": hostile})):
            with pytest.raises(StatementError, match=f"^{field} (has a text with|must map)") as refused:
                PrivacyStatement.from_dict(statement | {field: value})
            assert str(refused.value).isprintable()


def test_a_method_is_a_word_which_cannot_pass_for_a_sentence(foreign_release: Release) -> None:
    for method in ["", "Random Features", "random-features, ε = 0.1 (verified)", "x" * 61, *HOSTILE[:3]]:
        message = r"method must be 1 to 60 lower-case letters.*could deceive.*Name it in a word"
        with pytest.raises(ValueError, match=message):
            foreign_release.replaced(method=method)


# ---------------------------------------------------------------- ways out, of texts that no rule has seen


def test_json_has_no_character_that_a_terminal_obeys_or_hides_and_says_the_same() -> None:
    value = {text: [text] for text in [*HOSTILE, *HARMLESS, "\ud800"]}
    printed = json_text(value)
    assert json.loads(printed) == value
    assert "Zürich" in printed and "東京" in printed
    assert not any(flaw_of(c) for c in printed)


def test_a_column_of_a_sample_cannot_forge_a_line(mixed_release: Release, mixed_path: Path) -> None:
    hostile = dict.fromkeys([*HOSTILE[:4], "x\u202ey", "x\u200dy"], 1)
    sample = mixed_release.to_frame().drop(columns="weight")
    path = mixed_path.parent / "sample.csv"
    sample.assign(**hostile).to_csv(path, index=False)
    plotted = run("plot", str(mixed_path), "age", "--sample", str(path), "--output", str(path.with_suffix(".png")))
    assert plotted.exit_code == 0 and "ignored columns" in plotted.stderr
    sample.drop(columns="age").assign(**hostile).to_csv(path, index=False)
    tested = run("mmd-test", str(mixed_path), str(path))
    assert tested.exit_code == 1 and "lacks" in tested.stderr
    for name in hostile:
        check_silent(plotted, name)
        check_silent(tested, name)


def test_the_name_of_a_file_cannot_forge_a_line(mixed_path: Path) -> None:
    for hostile in [text for text in HOSTILE if "\x00" not in text]:
        strange = mixed_path.with_name(f"{hostile.replace('/', '')}.kme")
        strange.write_bytes(mixed_path.read_bytes()[:-1])
        for name in ("info", "validate"):
            check_silent(run(name, str(strange)), hostile)


def release_side_run(*arguments: str) -> Result:
    return CliRunner().invoke(release_side_main, list(arguments))


def test_the_curators_commands_show_no_hostile_text(tmp_path: Path) -> None:
    for hostile in HOSTILE:
        domain, private = tmp_path / "domain.toml", tmp_path / "private.csv"
        pd.DataFrame({"city": ["Basel"] * 20, hostile: 1}).to_csv(private, index=False)
        output = str(tmp_path / "no_folder" / "o.kme")
        publish = ["publish", str(private), "--epsilon", "1", "--rehearsal", "1", "--output", output]
        common = ["--domain", str(domain), "--delta", "1e-6"]
        level = json.dumps(hostile).replace("\x7f", "\\u007f").replace("\\udbff\\udfff", "\\U0010ffff")
        level = level.replace("\\udb40\\udc41", "\\U000e0041")
        domain.write_text(f'[[column]]\nname = "city"\nkind = "categorical"\nlevels = ["Basel", {level}]\n', encoding="utf-8")
        for command in (publish, ["plan", "--rows", "20"]):
            result = release_side_run(*command, *common)
            assert result.exit_code == 1 and "column city: a level has" in result.stderr
            check_silent(result, hostile)
        domain.write_text('[[column]]\nname = "city"\nkind = "categorical"\nlevels = ["Basel", "Bern"]\n')
        result = release_side_run(*publish, *common)
        assert result.exit_code == 1
        check_silent(result, hostile)


def test_a_ledger_shows_no_hostile_text(tmp_path: Path) -> None:
    budget = ["--epsilon", "1", "--delta", "1e-6"]
    for number, hostile in enumerate(text for text in HOSTILE if "\x00" not in text):
        path = tmp_path / f"{number}.ledger"
        check_silent(release_side_run("ledger", "init", str(path), "--table", hostile, *budget), hostile)
        assert not path.exists()  # a name that looks like another's would have a budget of its own
        assert release_side_run("ledger", "init", str(path), "--table", "census", *budget).exit_code == 0
        changed = [
            replace(entry, facts=entry.facts.replace('"census"', json.dumps(hostile))) for entry in LedgerFile(path).unverified()
        ]
        assert any(json.dumps(hostile) in entry.facts for entry in changed)
        # a chain that fits, with a name that no ledger of ours would have
        replace_all(Ledger(path), recomputed(changed))
        check_silent(release_side_run("ledger", "show", str(path)), hostile)


SPACED = ("age ", " age", "age  privacy", "age" + 75 * " " + "privacy", "age\u00a0 x", "age\u2003x", "age\u3000")


def test_names_and_levels_that_spaces_could_disguise_are_refused():
    """A run of spaces moves the rest of a name to the next line of a terminal, where it looks like a line of ours."""
    for name in [*SPACED, "age\U0001d159", "a\U00016fe4ge"]:
        for kind, fields in (
            (Integer, {"name": name, "lower": 0, "upper": 2}),
            (Categorical, {"name": "c", "levels": (name, "b")}),
        ):
            with pytest.raises(DomainError, match=r"(a space at an end, two spaces in a row|an invisible character)"):
                kind(**fields)


def test_single_spaces_between_words_are_fine():
    for name in ["hours per week", "10\u202f000", "東京\u3000都", "naïve"]:
        assert Integer(name=name, lower=0, upper=2).name == name


def test_a_draft_of_levels_leaves_out_the_spaces_at_their_ends():
    """Cells match levels whatever spaces are at their ends, as in tables written with a space after each comma."""
    drafted = draft_domain(pd.DataFrame({"work": [" Private", "Private", " Self "] * 20, "n": range(60)})).domain
    assert drafted["work"].levels == ("Private", "Self")
