"""Where the seconds of a recorded run went: by file and by test.

    python -m pytest --junitxml=run.xml && python tests/support/durations.py run.xml [--most 30]

Seconds are of the clock and include fixtures; with two workers the run takes about half of their sum. No test fails by time.
"""

from __future__ import annotations

import argparse
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path


def seconds_of(record: Path) -> dict[tuple[str, str], float]:
    """(file, test without its parameters) → seconds of all its cases."""
    seconds: Counter[tuple[str, str]] = Counter()
    for case in ElementTree.parse(record).getroot().iter("testcase"):
        file = case.get("classname", "").removeprefix("tests.").replace(".", "/")
        seconds[file, re.sub(r"\[.*", "", case.get("name", ""), flags=re.S)] += float(case.get("time", 0))
    return dict(seconds)


def main(record: Path, most: int) -> None:
    seconds = seconds_of(record)
    files: Counter[str] = Counter()
    for (file, _), took in seconds.items():
        files[file] += took
    print(f"{sum(files.values()):9.1f} s in {len(seconds)} tests of {len(files)} files")
    for file, took in files.most_common(most):
        print(f"{took:9.1f} s  {file}")
    print()
    for (file, test), took in sorted(seconds.items(), key=lambda item: -item[1])[:most]:
        print(f"{took:9.1f} s  {file}::{test}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--most", type=int, default=30)
    arguments = parser.parse_args()
    main(arguments.record, arguments.most)
