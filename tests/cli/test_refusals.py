"""Wrong calls of both command lines: each ends in one clear error with its exit code, and writes nothing."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import paths
import pytest
import refusals
from command_line import MAINS, Files, call, city_rows

REFUSALS = Path(__file__).parent / "refusals.txt"
COUNTED = paths.TESTS / "golden" / "examples" / "counted.kme"
FUNCTION = "--domain {domain} --epsilon 1 --delta 1e-6 --output {out}.kme --uncounted"
GOOD = f"{FUNCTION} --points 20 --method subspace"
DRAFT = "--this-sample-is-public --output {out}.toml"


class Exit1(Exception):
    """The command ended with exit code 1: something is wrong with what it read or was asked."""


class Exit2(Exception):
    """The command ended with exit code 2: the call is not one of this command line."""


def spelled(words: str, names: dict[str, str]) -> list[str]:
    """The arguments of a call; names of files may have spaces."""
    for short, choices in {"GOOD": GOOD, "FUNCTION": FUNCTION, "DRAFT": DRAFT}.items():
        words = words.replace(short, choices)
    return [word.format(**names) for word in words.split(" ")]


@pytest.fixture
def names(tmp_path: Path, files: Files) -> dict[str, str]:
    """The names of all files that a wrong call can use; those that are no good are made here."""
    whole = Path(files.release).read_bytes()
    middle = len(whole) // 2
    rows = city_rows(3000, 9).to_csv(index=False).encode()
    packed = gzip.compress(rows)
    lacks = b"age,city,hours-per-week\n30,Basel,40\n31,Genf,41\n"
    of_lacks = f'bytes = {len(lacks)}\nsha256 = "{hashlib.sha256(lacks).hexdigest()}"\n'.encode()
    contents: dict[str, bytes] = {
        "empty.csv": b"",
        "header.csv": b"age,wage,city,hours-per-week\n",
        "lacks.csv": lacks,
        "one_row.csv": b"age,wage,city,hours-per-week\n30,20,Basel,40\n",
        "other.csv": b"a,b\n1,2\n",
        "cut.csv.gz": packed[:-500],
        "damaged.csv.gz": packed[:2000] + b"damaged" + packed[2007:],
        "cr.csv": rows.replace(b"\n", b"\r"),
        "text.xlsx": b"PK\x03\x04",
        "names.csv": b"name\n" + b"".join(b"person %d\n" % i for i in range(300)),
        "corrupt.kme": whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :],
        "cut.kme": whole[:middle],
        "text.kme": b"not a release",
        "no.toml": b"[[column]\n",
        "of_lacks.toml": b'[[column]]\nname = "age"\nkind = "integer"\nlower = 0\nupper = 99\n[[sample]]\n' + of_lacks,
        "unknown.toml": b'[[column]]\nname = "age"\nkind = "number"\n',
        "wider.toml": Path(files.domain).read_bytes() + b'\n[[column]]\nname = "height"\nkind = "real"\nlower = 0\nupper = 3\n',
    }
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "folder").mkdir()
    made = {name.replace(".", "_"): str(tmp_path / name) for name in (*contents, "nowhere", "out")}
    return made | files._asdict() | {"a_folder": str(tmp_path / "folder"), "counted": str(COUNTED)}


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


def test_every_command_has_a_wrong_call_in_the_list():
    called = {tuple(refusal.input.split(" ")[:2]) for refusal in refusals.read(REFUSALS)}
    assert {(program, name) for program, group in MAINS.items() for name in group.commands} <= called


def test_a_wrong_call_ends_in_one_clear_error_and_writes_nothing(files, names, tmp_path):
    before = listing(tmp_path)

    def run(line: str) -> None:
        program, _, words = line.partition(" ")
        result = call(program, *spelled(words, names))
        assert result.stdout == "", "standard output is for answers"
        assert listing(tmp_path) == before, "an output or a temporary file was left"
        error = result.stderr[result.stderr.index("Error: ") :]
        assert len(error.splitlines()) == 1 or "^" in error  # an expression is shown below, with its error marked
        assert "Traceback" not in result.stderr
        raise {1: Exit1, 2: Exit2}[result.exit_code](error)

    refusals.check(REFUSALS, run)
    assert listing(files.folder).keys() == set(files[1:])


def test_validate_exits_with_3_where_a_file_cannot_be_trusted_or_read(names):
    for path in (names[name] for name in ("corrupt_kme", "cut_kme", "text_kme", "nowhere")):
        shown = call("kmeanalyst", "validate", path)
        answered = call("kmeanalyst", "validate", path, "--json")
        assert (shown.exit_code, answered.exit_code) == (3, 3)
        assert shown.stdout.startswith("finding: ") and "1 findings" in shown.stdout
        findings = json.loads(answered.stdout)
        assert findings["valid"] is False and len(findings["findings"]) == 1 and path in findings["findings"][0]


@pytest.mark.slow
def test_wrong_calls_look_the_same_from_a_shell(names):
    """No traceback and the same exit codes in processes of their own."""
    for module, words, code in [
        ("kmeanalyst", "expect {release} agee", 1),
        ("kmeanalyst", "validate {corrupt_kme}", 3),
        ("release_side", "publish {lacks_csv} GOOD", 1),
        ("release_side", "publish", 2),
    ]:
        command = [sys.executable, "-W", "error", "-m", module, *spelled(words, names)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr + done.stdout
        assert ("Error: " in done.stderr) == (code != 3)
