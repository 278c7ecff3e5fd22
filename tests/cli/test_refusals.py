"""Wrong calls of both command lines: each ends in one clear error with its exit code, and writes nothing."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import MAINS, Files, call, city_rows

FUNCTION = "--domain {domain} --epsilon 1 --delta 1e-6 --output {out}.kme --uncounted"
GOOD = f"{FUNCTION} --points 20 --method subspace"
DRAFT = "--this-sample-is-public --output {out}.toml"

# The words of a call, with {names} of files and the sound choices above; what its message must say (what, why, how to fix).
ANALYST = [
    ("evaluate {release} {sample}", r"holds weighted points: it is no .*\. Read"),
    ("quantile {release} city 0.5", r"city is a column of levels, and a number is needed here.*\. Compare"),
    ("quantile {release} agee 0.5", r"no column agee: the columns are .*Did you mean age"),
    ("quantile {release} age 0.5 --by wage", r"wage has no levels .*: it is real\. Name"),
    ("table {release} agee", r"no column 'agee'; the columns are .*Did you mean age"),
    ("table {release} age age", r"a table needs different columns"),
    ("table {release} age --where age>99", r"the condition has probability 0"),
    ("plot {release} agee --output {out}.png", r"no column .?agee.*Did you mean age"),
    ("plot {release} age --output {out}.xlsx", r"cannot draw to .*: .* only \.png, \.pdf, \.svg are known\. Name a file"),
    ("plot {release} age --output {nowhere}/b.png", r"no folder .*, so nothing was written\. Create"),
    ("plot {release} city --kind density --output {out}.png", r"city is categorical: .*Draw its histogram"),
    ("plot {release} city --bins 5 --output {out}.png", r"city has no ranges to bin.*Leave bins out"),
    ("plot {release} age age --output {out}.png", r"two columns, got 'age' twice"),
    ("plot {release} age age city --output {out}.png", r"two to 6 different columns.*Name some"),
    ("plot {release} age --where age>99 --output {out}.png", r"probability 0.*Ask a wider condition"),
    ("plot {release} age --sample {nowhere}.csv --output {out}.png", r"no file at .*Check the path"),
    ("report {nowhere}.kme --output {out}.html", r"nowhere\.kme: there is no such file"),
    ("report {release} --output {out}.html --columns agee", r"no column 'agee'; the columns are"),
    ("report {release} --output {out}.html --columns ,", r"shows 1 to 60 columns, got 0: .*\. Name"),
    ("report {release} --output {nowhere}/r.html", r"no folder .*, so nothing was written\. Create"),
    ("compare {release} {release}", r"compare needs rows to compare with, .*\. Use mmd-test for two releases"),
    ("compare {release} {lacks_csv}", r"the sample lacks \"wage\": .*\. Add the column"),
    ("thin {release} 10000 --output {out}.kme", r"from 1 to 40, got 10000: .*\. Pass how many"),
    ("transform {release} age=wage --output {out}.kme", r"column age already, and .*\. Choose"),
    ("train {release} --target agee --output {out}.skops", r"no column agee to learn; .*\. Name"),
    ("train {release} --target city --output {out}.pkl", r"as a \.skops file, got .*\. Name"),
    ("expect {release} agee", r"no column agee: the columns are .*Did you mean age"),
    ("expect {release} age --where agee>3", r"no column agee: .*Did you mean"),
    ("expect {release} age --by agee", r"no column 'agee'; the columns are .*Did you mean age"),
    ("expect {release} age --by wage", r"wage has no levels .*: it is real\. Name"),
    ("expect {release} (age", r"\(age\n"),
    ("expect {release} __import__('os')", r"__import__"),
    ("expect {release} age --where age>99", r"probability 0 .*so nothing can be said.*Ask"),
    ("expect {cut_kme} age", r"cut\.kme: .*: .*\. (Fetch the file again|Check)"),
    ("info {nowhere}.kme", r"nowhere\.kme: there is no such file: nothing could be read\. Check"),
    ("info {corrupt_kme}", r"corrupt\.kme: .*\. (Fetch the file again|Check)"),
    ("info {a_folder}", r"folder: .*\. "),
    ("mmd-test {text_kme} {sample}", r"text\.kme: .*: .*\. (Fetch the file again|Check)"),
    ("mmd-test {release} {nowhere}.csv", r"no file at .*nowhere\.csv\. Check the path"),
    ("mmd-test {release} {empty_csv}", r"empty\.csv is empty: it has no header line\. Name"),
    ("mmd-test {release} {header_csv}", r"has a header and no rows\. Name a table"),
    ("mmd-test {release} {lacks_csv}", r'the sample lacks "wage": .*\. Add the column'),
    ("mmd-test {release} {one_row_csv}", r"needs at least two rows .*, got 1\. Add rows"),
    ("mmd-test {release} {text_xlsx}", r"is a spreadsheet, .*\. Save the sheet as CSV"),
    ("mmd-test {release} {cut_csv_gz}", r"cut\.csv\.gz could not be read as a table: .*\. Write it again"),
    ("mmd-test {release} {damaged_csv_gz}", r"could not be read as a table: .*\. Write it again"),
    ("mmd-test {release} {a_folder}", r"holds no file of a table \(\.csv, .*\. Name the folder"),
    ("glm {release} wage~agee", r"no column agee.*Did you mean age"),
    ("glm {release} wage~age --reference city=Basel", r"names a level for 'city', .*\. Name one of these, or leave it out"),
    ("glm {release} city~age --family binomial", r"city has 4 levels, .*\. Write a condition"),
    ("independence {release} agee city", r"no column 'agee': there are .*\. Name one"),
    ("independence {release} age age", r"never independent of itself: .*\. Name others"),
    ("survival {release} city age", r"time must be a column of numbers, got 'city'\. Name one"),
    ("export {release} {out}.xlsx", r"cannot export to .*: the ending .* are known\. Name"),
    ("export {release} {nowhere}/out.csv", r"no folder .*, so nothing was written\. Create"),
    ("export {release} {out}.csv --rows 9", r"rows goes with view=\"resampled\": the signed"),
]  # fmt: skip
ANALYST_USAGE = [
    ("quantile {release} age 2", r"2\.0 is not in the range 0<=x<=1"),
    ("quantile {release} age", r"Missing argument 'Q\.\.\.'"),
    ("table {release} age wage city", r"one or two columns, got 3\. Name two, and use --by"),
    ("plot {release} age city --sample {sample} --output {out}.png", r"--sample is for the drawing of one column, got 2"),
    ("plot {release} age --kind cdf --bins 5 --output {out}.png", r"--bins is for histograms, and a cdf.*Leave"),
    ("plot {release} age", r"Missing option '--output'"),
    ("plot {release} --output {out}.png", r"Missing argument 'COLUMN"),
    ("report {release}", r"Missing option '--output'"),
    ("report {release} --output {out}.html --view resampled", r"Invalid value for '--view'"),
    ("compare {release} {sample} --level 0", r"Invalid value for '--level'"),
    ("compare {release} {sample} --level 1", r"Invalid value for '--level'"),
    ("compare {release} {sample} --top 0", r"Invalid value for '--top'"),
    ("demo --keep {sample}", r"Directory '.*' is a file"),
    ("validate", r"Missing argument 'FILE\.kme'"),
    ("expect {release} age --level 1.5", r"Invalid value for '--level'"),
    ("expect {release} age --view magic", r"Invalid value for '--view'"),
    ("expect {release}", r"Missing argument 'EXPRESSION"),
    ("mmd-test {release} {sample} --level 0", r"Invalid value for '--level'"),
    ("export {release} {a_folder}", r"is a directory"),
    ("export {release} {out}.csv --view resampled --rows 0", r"Invalid value for '--rows'"),
    ("magic", r"No such command 'magic'"),
]  # fmt: skip
CURATOR = [
    ("check-source {nowhere}.csv --domain {domain}", r"no file at .*Check the path"),
    ("plan --rows 9 --delta 0 --domain {nowhere}", r"no domain file at .*\. Draft one"),
    ("plan --rows 9 --domain {domain} --delta 1e-6 --epsilon 0", r"epsilon must be .*\. Pass e\.g\."),
    ("publish-function {private} --kind density FUNCTION", r"city have levels .*\. Leave"),
    ("publish-function {private} --kind svm FUNCTION", r"no target is named: .*\. Name it"),
    ("ledger show {nowhere}", r"there is no ledger .*\. Check the path, or make one"),
    ("ledger init {nowhere} --table t --epsilon 0 --delta 0", r"epsilon must be .*\. Pass"),
    ("publish {nowhere}.csv GOOD", r"no file at .*nowhere\.csv\. Check the path"),
    ("publish {empty_csv} GOOD", r"empty\.csv is empty: it has no header line\. Name"),
    ("publish {header_csv} GOOD", r"the table has no rows: nothing .*\. Name"),
    ("publish {text_xlsx} GOOD", r"text\.xlsx is a spreadsheet, .* Save the sheet as CSV"),
    ("publish {other_csv} GOOD", r"names no column of the domain, so .*\. Give"),
    ("publish {cr_csv} GOOD", r"carriage returns alone, so .*\. Write it again"),
    ("publish {cut_csv_gz} GOOD", r"cut off, damaged or no \.gz file, so .*\. Write it again"),
    ("publish {lacks_csv} GOOD", r'the private table lacks "wage": .*\. Add the column'),
    ("publish {lacks_csv} GOOD --domain {of_lacks_toml}",
     r"the domain was drafted from the private table itself: .*\. Draft it from a public sample"),
    ("publish {private} GOOD --domain {wider_toml}", r'lacks "height": .*\. Add the column, or write a domain without it'),
    ("publish {private} GOOD --domain {nowhere}.toml", r"no domain file at .*\. Draft one from a public sample"),
    ("publish {private} GOOD --domain {no_toml}", r"no\.toml is not TOML: .*\. Correct that line"),
    ("publish {private} GOOD --domain {unknown_toml}", r"column age: kind must be one of .*, got 'number'"),
    ("publish {private} GOOD --epsilon 0", r"epsilon must be a positive .*, got 0\.0: .*\. Pass"),
    ("publish {private} GOOD --epsilon -1", r"epsilon must be a positive .*, got -1\.0: .*\. Pass"),
    ("publish {private} GOOD --epsilon nan", r"epsilon must be a positive .*, got nan: .*\. Pass"),
    ("publish {private} GOOD --delta 1", r"delta must be in \[0, 1\), got 1\.0: .*\. Pass"),
    ("publish {private} GOOD --delta -0.1", r"delta must be in \[0, 1\), got -0\.1: .*\. Pass"),
    ("publish {private} GOOD --delta 0", r"delta = 0 asks for .*cannot give it\. Pass a small delta"),
    ("publish {private} GOOD --output {nowhere}/o.kme", r"the folder .* does not exist or is not writable, so .*\. Make it first"),
    ("publish {private} GOOD --method random-features --features 9", r"features must be even, got 9: .*\. Add one"),
    ("publish {private} GOOD --bound 1", r"bound goes with bounded or signed weights: .*\. Leave it out"),
    ("publish {private} GOOD --kernel gaussian:lengthscale=1", r"is for numbers, and city have levels.*Use"),
    ("publish {private} GOOD --public-points {lacks_csv}", r'the file of public points lacks "wage": .*\. Add'),
    ("publish {private} GOOD --public-points {private}",
     r"the public points are the private table itself: its rows would be in the release .*\. Name a file"),
    ("publish {private} GOOD --public-points {nowhere}.csv", r"no file at .*\. Check the path"),
    ("quality {release} {private} --output {out}.html", r"will hold exact numbers of private rows, .*\. Name it with \.internal"),
    ("quality {release} {nowhere}.csv --output {out}.internal.html", r"no file at .*nowhere\.csv\. Check the path"),
    ("quality {release} {header_csv} --output {out}.internal.html", r"the table has no rows, so .*\. Name a table"),
    ("quality {release} {lacks_csv} --output {out}.internal.html", r'the private table lacks "wage": .*\. Add the column'),
    ("quality {text_kme} {private} --output {out}.internal.html", r"text\.kme.*no .*\."),
    ("quality {release} {private} --output {out}.internal.html --group height", r"no column 'height'; the columns are .*\. Name"),
    ("draft-domain {nowhere}.csv DRAFT", r"no file at .*\. Check the path"),
    ("draft-domain {empty_csv} DRAFT", r"is empty: it has no header line\. Name"),
    ("draft-domain {names_csv} DRAFT", r"300 different texts .*: it looks like a name .*\. Remove"),
    ("draft-domain {sample} DRAFT --output {nowhere}/d.toml", r"no folder .*, so nothing was written\. Create"),
    ("draft-domain {lacks_csv} DRAFT --output {lacks_csv}",
     r"is a file of the sample, which the domain would replace: .*\. Name another file"),
]  # fmt: skip
CURATOR_USAGE = [
    ("publish {private} GOOD --epsilon one", r"Invalid value for '--epsilon'"),
    ("publish {private} --domain {domain} --epsilon 1 --output {out}.kme", r"Missing option '--delta'"),
    ("publish {private} GOOD --output {a_folder}", r"is a directory"),
    ("publish {private} GOOD --method magic", r"Invalid value for '--method'"),
    ("draft-domain {sample} --output {out}.toml",
     r"from a public sample only: its levels, .* without noise\. .* say --this-sample-is-public"),
]  # fmt: skip
BAD = [
    (program, words, message, code)
    for program, code, table in (
        ("kmeanalyst", 1, ANALYST), ("kmeanalyst", 2, ANALYST_USAGE),
        ("release-side", 1, CURATOR), ("release-side", 2, CURATOR_USAGE),
    )
    for words, message in table
]  # fmt: skip


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
        "wider.toml": Path(files.domain).read_bytes()
        + b'\n[[column]]\nname = "height"\nkind = "real"\nlower = 0\nupper = 3\n',
    }
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "folder").mkdir()
    made = {name.replace(".", "_"): str(tmp_path / name) for name in (*contents, "nowhere", "out")}
    return made | files._asdict() | {"a_folder": str(tmp_path / "folder")}


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize("program", MAINS)
def test_every_command_has_a_wrong_call_in_the_list(program):
    assert set(MAINS[program].commands) <= {words.split(" ")[0] for name, words, _, _ in BAD if name == program}


@pytest.mark.parametrize(("program", "words", "message", "code"), BAD, ids=[words for _, words, _, _ in BAD])
def test_a_wrong_call_ends_in_one_clear_error_and_writes_nothing(program, words, message, code, files, names, tmp_path):
    before = listing(tmp_path)
    result = call(program, *spelled(words, names))
    assert result.exit_code == code, result.stderr
    assert result.stdout == ""
    error = result.stderr[result.stderr.index("Error: ") :]
    assert re.search(message, error, re.DOTALL), error
    assert len(error.splitlines()) == 1 or "^" in error  # an expression is shown below, with its error marked
    assert "Traceback" not in result.stderr
    assert listing(tmp_path) == before  # no output, no temporary file
    assert listing(files.folder).keys() == set(files[1:])


@pytest.mark.parametrize("name", ["corrupt_kme", "cut_kme", "text_kme", "nowhere"])
def test_validate_exits_with_3_where_a_file_cannot_be_trusted_or_read(name, names):
    result = call("kmeanalyst", "validate", names[name])
    assert result.exit_code == 3
    assert result.stdout.startswith("finding: ") and "1 findings" in result.stdout
    answered = call("kmeanalyst", "validate", names[name], "--json")
    assert answered.exit_code == 3
    found = json.loads(answered.stdout)
    assert found["valid"] is False and len(found["findings"]) == 1
    assert names[name] in found["findings"][0]


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
