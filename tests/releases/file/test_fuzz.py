"""The properties of fuzz.py on examples that are the same every time; `python tests/fuzz.py --minutes 30` looks further."""

from __future__ import annotations

import pytest
from fuzz import PROPERTIES, run
from hypothesis import HealthCheck, settings

EXAMPLES = {"headers": 250, "members": 150, "private_cells": 600, "domain_files": 300, "expressions": 600}


@pytest.mark.parametrize("name", PROPERTIES)
def test_nothing_but_a_value_or_a_clear_refusal_comes_of_any_input(name: str):
    options = settings(
        max_examples=EXAMPLES[name],
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run(name, options)
