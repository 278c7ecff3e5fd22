"""The cases of FORMAT.md §9, which other languages implement: each has the value that the table states."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import paths
import pytest
from contracts import every

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer
from kmeanalyst.releases.expressions import ExpressionError, parse

FORMAT = (paths.TESTS.parent / "kmeanalyst/releases/FORMAT.md").read_text(encoding="utf-8")
CASES = re.findall(r"^\| (`` .+ ``|`[^`]*`|``) \| (.+) \|$", FORMAT.partition("## 9.")[2], re.M)
DOMAIN = Domain((
    Integer(name="x", lower=-9, upper=9), Integer(name="y", lower=-9, upper=9), Integer(name="gap", lower=0, upper=9, missing=True),
    Categorical(name="city", levels=("Basel", "Genf")), Date(name="day", lower="2000-01-01", upper="2009-12-31"),
    Categorical(name="zone", levels=("4", "-0.5", "all")), Boolean(name="ill"),
))  # fmt: skip
CELLS = {"x": [7], "y": [-2], "gap": [None], "city": ["Genf"], "zone": ["-0.5"], "day": ["2001-03-05"], "ill": [True]}
ROW = DOMAIN.decode(DOMAIN.encode(pd.DataFrame(CELLS)))


def test_the_table_has_its_cases():
    assert len(CASES) >= 46 and {"true", "false", "—", "refused"} < {value for _, value in CASES}


@every(CASES, of="written, value")
def test_an_expression_has_the_value_that_the_format_states(written: str, value: str):
    text = written[3:-3] if written.startswith("`` ") else written.strip("`")
    if value == "refused":
        with pytest.raises(ExpressionError):
            parse(text).check(DOMAIN)
        return
    expression = parse(text)
    expression.check(DOMAIN)
    (found,) = expression.evaluate(ROW, DOMAIN)
    if value in ("true", "false"):
        assert found.dtype == bool and found == (value == "true")
    else:
        np.testing.assert_equal(float(found), np.nan if value == "—" else float(value))
