"""What the scripts of this folder share: the options of a command line, what ../shared holds, the memory of a process."""

from __future__ import annotations

import argparse
import logging
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SHARED = Path(__file__).resolve().parents[3] / "shared"
DATA, ANCHORS = SHARED / "data", SHARED / "anchors"
SUPPORT = Path(__file__).resolve().parents[1] / "support"
sys.path.append(str(SUPPORT))  # some of whose modules scripts use


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


def show(lines: Iterable[Mapping[str, Any]], digits: int = 4) -> None:
    """Print a table of results, a line for each mapping; numbers to so many digits."""
    table = pd.DataFrame(list(lines))
    print(table.to_string(index=False, float_format=lambda x: f"{x:.{digits}g}", na_rep="-"), flush=True)


def read_text(*files: str) -> pd.DataFrame:
    """Files of the data folder below each other, as text, cell by cell."""
    parts = [pd.read_csv(DATA / file, dtype=str, keep_default_na=False) for file in files]
    return pd.concat(parts, ignore_index=True).apply(lambda column: column.str.strip())


def seconds(work: Callable[[], object]) -> float:
    """The time it takes, once."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def margins_apart(domain: Any, rows: pd.DataFrame, others: pd.DataFrame, group: int | None = None) -> tuple[float, float]:
    """Mean total variation between tables of one column and of two, these within the groups of a column if it is given."""
    from release_side.quality.score_tables import ScoreTables, shares_of, total_variations

    tables = ScoreTables(domain, group)
    shares = (shares_of(tables, tables.counts(domain.encode(part))) for part in (rows, others))
    apart = total_variations(tables, *shares)
    return float(apart[tables.one_way].mean()), float(apart[tables.compared].mean())


def triples_apart(domain: Any, rows: pd.DataFrame, others: pd.DataFrame, most: int = 300) -> float:
    """Mean total variation between tables of three columns; of so many, drawn evenly, where there are more."""
    from release_side.quality.score_tables import ScoreTables

    tables = ScoreTables(domain)
    sizes = [tables.sizes[j] for j in tables.columns]
    both = [tables.cells(domain.encode(part)) for part in (rows, others)]
    triples, apart = list(combinations(range(len(sizes)), 3)), []
    for i in np.random.default_rng(0).permutation(len(triples))[:most]:
        those = [sizes[j] for j in triples[i]]
        numbers = [np.ravel_multi_index(cells[:, triples[i]].T, those) for cells in both]
        first, second = (np.bincount(each, minlength=int(np.prod(those))) / len(each) for each in numbers)
        apart.append(np.abs(first - second).sum() / 2)
    return float(np.mean(apart))


def publish_alone(rows: Any, domain: Any, **options: Any) -> tuple[Any, float, float, float]:
    """A release made in a process of its own; its seconds on the clock and of the processor, and the peak MB of the process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_publish, rows, domain, options).result()


def _publish(rows: Any, domain: Any, options: dict[str, Any]) -> tuple[Any, float, float, float]:
    import release_side

    logging.disable()
    warnings.simplefilter("ignore")
    clock, work = time.perf_counter(), time.process_time()
    release = release_side.publish(rows, domain, **options)
    return release, time.perf_counter() - clock, time.process_time() - work, peak()


def peak() -> float:
    """MB of this process at most; where /proc does not say it, of the processes that it was started from, if that is more."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
