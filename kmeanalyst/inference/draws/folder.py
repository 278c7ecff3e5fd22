"""A folder with draws or replicate weights as CSV, and the one rule that they are for: README.txt, and rule.json for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kmeanalyst.releases.domain.column import Column, Columns
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Date
from kmeanalyst.releases.file.archive import atomic_write
from kmeanalyst.releases.file.export import export
from kmeanalyst.releases.release import ReleaseData

_R_DRAWS = """\
read <- function(file) read.csv(file, {reading})
rows <- do.call(rbind, lapply(sprintf("rows_%d.csv", 1:{m}), read))
tables <- split(rows, rep(1:{m}, each = {n}))  # read together, so that all have the same levels
fits <- lapply(tables, function(table) lm(OUTCOME ~ PREDICTOR, data = table))
summary(mice::pool(fits), conf.int = TRUE)
"""
_STATA_DRAWS = """\
forvalues i = 1/{m} {{
    import delimited rows_`i'.csv, clear
    generate imp = `i'
    generate id = _n
    save rows_`i', replace
}}
use rows_1, clear
replace imp = 0
forvalues i = 1/{m} {{
    append using rows_`i'
}}
mi import flong, m(imp) id(id) clear
mi estimate: regress OUTCOME PREDICTOR
"""
_R_REPLICATES = """\
rows <- read.csv("rows.csv", {reading})
design <- survey::svrepdesign(data = rows, weights = ~weight, repweights = "^replicate_[0-9]+$", type = "other",
                              scale = 1/{R}, rscales = rep(1, {R}), combined.weights = TRUE, mse = TRUE)
survey::svymean(~COLUMN, design)
summary(survey::svyglm(OUTCOME ~ PREDICTOR, design = design))
"""
_STATA_REPLICATES = """\
import delimited rows.csv
svyset [pweight = weight], bsrweight(replicate_*) vce(bootstrap) mse
svy: mean COLUMN
"""
_OF_ALL = """\
Right for shares and means of columns and of pairs of columns, and at epsilon = 1 for slopes of a regression on a few columns.
Not right for slopes where epsilon is .1 or tables have tens of columns: rows of all columns cannot have the error of every
relation at once, and intervals are too narrow. Write a folder of the regression's own columns for these (--columns), and for what
rests on three columns, such as an interaction a*b of a regression. Pairs of rare levels are less spread than they should be.
"""
_OF_NAMED = """\
The folder is of the columns {columns} alone, named for an analysis of how they are related: shares, means and slopes of
regressions on them. What was not measured of their relations counts as much as a relation may be where one is expected.
"""
_CODE = """\
{scope}
R (write your columns and model; a level that is rare may be in none of the rows, or have no weight, and then has no
coefficient or a senseless one: join it with another first):
{r}
Stata (these lines were not run; write your columns, as `import delimited` names them):
{stata}"""
_DRAWS = """\
rows_1.csv … rows_{m}.csv are {m} draws of the private table: each is what the table may have been, given the release.

Use them with Rubin's rule and with no other. Analyse each as if it were the table, and combine:
    estimate   the mean of the {m} estimates
    variance   U + (1 + 1/{m}) B, U the mean of the {m} squared standard errors, B the variance of the {m} estimates
U is the error of sampling, B that of the noise for privacy and of what the release leaves open.

Not with rules for synthetic data: pool.syn of mice (U + B/m) and lm.synds of synthpop (U) assume a table without noise.
Their 95 % intervals are too narrow: on a simulated table they held .76 and .68 at epsilon = 1, .67 and .34 at epsilon = 0.1.
Not with one of the tables alone, for the same reason, and not with all rows as one table.
"""
_REPLICATES = """\
rows.csv has rows with a weight and {R} columns of replicate weights.

Use them as replicate weights, and in no other way:
    estimate   under the column weight
    variance   the mean of ({R} estimates under replicate_1 … replicate_{R}, less that estimate) squared
It is the error of sampling, of the noise for privacy and of what the release leaves open, together. Standard errors that a
program computes from the rows and one weight alone are wrong.
"""


def write_draws(release: ReleaseData, folder: str | Path, tables: Sequence[pd.DataFrame], *, keep_formulas: bool = False) -> int:
    """Write rows_1.csv … rows_m.csv, README.txt and rule.json; how many text cells got an apostrophe (see `export`)."""
    m, first = len(tables), tables[0]
    r = _R_DRAWS.format(m=m, n=len(first), reading=_reading(release.columns, first))
    rule = {"rule": "Rubin", "m": m, "variance": "U + (1 + 1/m) B", "rows": len(first)}
    rule["code"] = {"R": r, "Stata": _STATA_DRAWS.format(m=m)}
    frames = {f"rows_{i + 1}.csv": table for i, table in enumerate(tables)}
    return _write(release, Path(folder), frames, rule, _DRAWS.format(m=m), keep_formulas)


def write_replicates(release: ReleaseData, folder: str | Path, frame: pd.DataFrame, *, keep_formulas: bool = False) -> int:
    """Write rows.csv with its weights, README.txt and rule.json; how many text cells got an apostrophe (see `export`)."""
    R = sum(str(name).startswith("replicate_") for name in frame)
    r = _R_REPLICATES.format(R=R, reading=_reading(release.columns, frame))
    rule = {"rule": "replicate weights", "R": R, "variance": "scale * sum((theta_r - theta)^2)", "scale": 1 / R}
    rule["code"] = {"R": r, "Stata": _STATA_REPLICATES}
    return _write(release, Path(folder), {"rows.csv": frame}, rule, _REPLICATES.format(R=R), keep_formulas)


def _write(
    release: ReleaseData, folder: Path, frames: dict[str, pd.DataFrame], rule: dict[str, Any], text: str, keep_formulas: bool
) -> int:  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ValueError(
            f"{folder} is not empty, and a folder has one rule for all of its files. Name a new folder, or empty this one."
        )
    defused = sum(export(release, folder / name, frame=f, keep_formulas=keep_formulas) for name, f in frames.items())
    names = [name for name in next(iter(frames.values())) if name in release.columns.names]
    scope = _OF_ALL if set(release.columns.names) <= set(names) else _OF_NAMED.format(columns=", ".join(names))
    r, stata = ("".join(f"    {line}\n" for line in rule["code"][name].splitlines()) for name in ("R", "Stata"))
    text += _CODE.format(scope=scope, r=r, stata=stata)
    for name, content in (("README.txt", text), ("rule.json", json.dumps(rule, indent=2, ensure_ascii=False) + "\n")):
        with atomic_write(folder / name) as temporary:
            temporary.write_text(content, encoding="utf-8")
    return defused


_NO_TEXT = re.compile(  # what read.csv reads as a number or a logical value
    r"\s*(?:T|F|TRUE|FALSE|true|false|True|False|NA|NaN|[+-]?(?:inf(?:inity)?|0x[0-9a-f.]+(?:p[+-]?\d+)?|"
    r"(?:\d+\.?\d*|\.\d+)(?:[ed][+-]?\d+)?)L?)\s*",
    re.IGNORECASE,
)


def _reading(columns: Columns, frame: pd.DataFrame) -> str:
    """Arguments of R's read.csv: texts are levels, also those that look like numbers, and only empty cells are missing."""
    chosen = [columns[name] for name in frame if name in columns.names]
    each = ", ".join(f"{_r_text(column.name)} = {_r_text(kind)}" for column in chosen if (kind := _class_of(column)))
    classes = f", colClasses = c({each})" if each else ""
    return f'check.names = FALSE, na.strings = "", stringsAsFactors = TRUE{classes}'


def _r_text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _class_of(column: Column) -> str | None:
    """The class that R must be told; None where it finds the right one."""
    if isinstance(column, Date):
        return "Date"
    if column.is_text:
        return "character"
    if isinstance(column, Boolean):
        return "logical"
    if isinstance(column, Categorical):
        return "factor" if any(_NO_TEXT.fullmatch(level) for level in column.levels) else None
    return None
