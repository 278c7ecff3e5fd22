"""The properties of fuzz.py on examples that are the same every time; `python tests/support/fuzz.py --minutes 30` looks further."""

from __future__ import annotations

import pytest
from fuzz import PROPERTIES, run
from hypothesis import HealthCheck, settings

EXAMPLES = {"headers": 250, "members": 150, "private_cells": 600, "domain_files": 300, "expressions": 600}


@pytest.mark.parametrize("share", [0.25, pytest.param(1, marks=pytest.mark.slow)])
def test_nothing_but_a_value_or_a_clear_refusal_comes_of_any_input(share: float):
    for name in PROPERTIES:
        options = settings(
            max_examples=int(share * EXAMPLES[name]), derandomize=True, deadline=None, database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        run(name, options)
