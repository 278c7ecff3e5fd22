"""Where the seconds of a recorded run went: by file and by test.

    python -m pytest --junitxml=run.xml; python tests/support/durations.py run.xml [--most 30] > tests/benchmarks/durations.txt

Seconds are of the clock and include fixtures; with two workers the run takes about half of their sum. No test fails by time.
tests/benchmarks/durations.txt is such a list of the default tier, to be read before tests are made shorter.
"""

from __future__ import annotations

import argparse
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from pathlib import Path


def lines_of(record: Path, most: int) -> Iterator[str]:
    """The whole, the files that took a second, and the tests (all cases of each together) that took most."""
    files: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    n_cases: Counter[str] = Counter()
    root = ElementTree.parse(record).getroot()
    for case in root.iter("testcase"):
        file = case.get("classname", "").removeprefix("tests.").replace(".", "/")
        name = re.sub(r"\[.*", "", case.get("name", ""), flags=re.S)
        test = f"{file}::{name}"
        for counter, name in ((files, file), (tests, test)):
            counter[name] += float(case.get("time", 0))
        n_cases[test] += 1
    suite = next(root.iter("testsuite"))
    yield f"# Made by tests/support/durations.py of a run on {suite.get('timestamp', '')[:10]}; `--help` has the command."
    yield f"{sum(files.values()):9.1f} s in {n_cases.total()} cases of {len(tests)} tests in {len(files)} files"
    yield f"{float(suite.get('time', 0)):9.1f} s by the clock"
    yield ""
    yield from (f"{took:9.1f} s  {file}" for file, took in files.most_common() if took >= 1)
    yield ""
    yield from (f"{took:9.1f} s {n_cases[test]:5}  {test}" for test, took in tests.most_common(most))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--most", type=int, default=30)
    arguments = parser.parse_args()
    print("\n".join(lines_of(arguments.record, arguments.most)))
