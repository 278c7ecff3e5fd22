"""What the scripts of this folder share: the options of a command line, what ../shared holds, the memory of a process."""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

SHARED = Path(__file__).resolve().parents[3] / "shared"
DATA, ANCHORS = SHARED / "data", SHARED / "anchors"


def command_line(document: str | None, **defaults: Any) -> argparse.Namespace:
    """The command line: --name VALUE of the default's type, --name for a False, several values for a tuple, names of a mapping."""
    parser = argparse.ArgumentParser(description=document, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, Mapping):
            parser.add_argument(flag, nargs="*", choices=list(default), default=list(default))
        elif isinstance(default, tuple):
            parser.add_argument(flag, nargs="*", type=type(default[0]) if default else str, default=default)
        else:
            parser.add_argument(flag, type=str if default is None else type(default), default=default)
    return parser.parse_args()


def is_there(path: Path) -> bool:
    """Whether ../shared has this; if not that is said."""
    if not path.exists():
        print(f"the data are not at {path}: nothing to measure with. Skipped.")
    return path.exists()


def require(*paths: Path) -> None:
    """Stop with a line where one of these is not there."""
    if not all(map(is_there, paths)):
        sys.exit()


def read_text(*files: str) -> pd.DataFrame:
    """Files of the data folder below each other, as text, cell by cell."""
    parts = [pd.read_csv(DATA / file, dtype=str, keep_default_na=False) for file in files]
    return pd.concat(parts, ignore_index=True).apply(lambda column: column.str.strip())


def peak() -> float:
    """MB of this process at most; where /proc does not say it, of the processes that it was started from, if that is more."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
