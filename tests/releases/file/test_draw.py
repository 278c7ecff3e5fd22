"""Files of the exponential mechanism made to claim what is not true: each is refused, or found by `validate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from file_tools import (
    CORRECT,
    SCHEMA_TEST,
    Edit,
    Members,
    all_of,
    check_refusals,
    forged,
    refused,
    scaling,
    setting,
    with_verdict_of_schema,
)

from kmeanalyst.release import read_release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer
from kmeanalyst.releases.file import validate_release
from kmeanalyst.releases.statement import PrivacyStatement
from release_side import publish

DOMAIN = Domain((Integer(name="age", lower=0, upper=4), Categorical(name="city", levels=("Basel", "Genf"))))


@pytest.fixture(scope="module")
def drawn_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("drawn") / "a.kme"
    table = DOMAIN.decode(DOMAIN.draw(100, np.random.default_rng(0)))
    publish(table, DOMAIN, epsilon=1.0, delta=0.0, method="exponential", points=3, output=path)
    return path


def as_noise(law: str) -> Edit:
    """The mechanism renamed to one with noise, its fields too."""

    def edit(header: dict[str, Any], members: Members) -> None:
        statement = header["statement"]
        statement.pop("n_databases")
        statement |= {"mechanism": law, "noise_scale": statement.pop("score_scale")}

    return edit


# name → edit, what, why, whether the schema refuses it too
def test_a_forged_statement_of_a_draw_is_refused(drawn_path, tmp_path):
    check_refusals("draw", lambda edit: with_verdict_of_schema(forged(drawn_path, edit), tmp_path, SCHEMA_TEST), **globals())


WRONG_SENSITIVITY: dict[str, Edit] = {
    "a smaller sensitivity": all_of(scaling("statement", "sensitivity", by=0.5), scaling("statement", "score_scale", by=0.5)),
    "a larger sensitivity": all_of(scaling("statement", "sensitivity", by=2), scaling("statement", "score_scale", by=2)),
    "more rows": scaling("statement", "n_rows", by=2),
    "another kernel": setting("kernel", to={"name": "gaussian", "lengthscale": 9.0}),
    "a wider domain": setting("columns", 0, "upper", to=5),
}


def test_a_sensitivity_that_kernel_domain_and_rows_do_not_give_is_refused(drawn_path, tmp_path):
    for case in WRONG_SENSITIVITY:
        data = forged(drawn_path, WRONG_SENSITIVITY[case])
        what = "claims sensitivity|the kernel" if case == "another kernel" else "claims sensitivity"
        refused(data, tmp_path, what, r"the kernel and the domain give 0\.\d+, and the guarantee rests on it", CORRECT)


def test_a_rehearsal_that_hides_is_still_a_rehearsal(drawn_path, tmp_path):
    law = "rehearsal of exponential over multisets"
    data = forged(drawn_path, setting("statement", "mechanism", to=law))
    refused(data, tmp_path, "stamped NOT PRIVATE", "a seed gives back", "--allow-rehearsal")
    assert read_release(tmp_path / "strange.kme", allow_rehearsal=True).is_rehearsal


def test_a_number_of_databases_that_no_size_makes_is_found(drawn_path, tmp_path):
    path = tmp_path / "b.kme"
    path.write_bytes(forged(drawn_path, setting("statement", "n_databases", to=219)))
    assert validate_release(drawn_path) == []
    (finding,) = validate_release(path)
    assert "219 is not the number of databases of any size of the domain's 10 rows" in finding


def test_a_thinned_draw_keeps_its_statement(drawn_path):
    """Thinning and reweighting are post-processing: the guarantee does not depend on the weights."""
    release = read_release(drawn_path)
    assert release.thin(2).statement == release.statement


def test_a_draw_of_a_domain_that_cannot_be_listed_rests_on_the_bound_of_the_kernel(drawn_path, tmp_path):
    """Claimed for every row, and 5,000 of them: not drawn so, but the sensitivity √2/N is right."""

    def edit(header: dict[str, Any], members: Members) -> None:
        header["columns"][0]["upper"] = 5000
        header["kernel"] = {"name": "product", "factors": [
            {"name": "on-columns", "kernel": {"name": "gaussian", "lengthscale": 1.0}, "on": [0]},
            {"name": "on-columns", "kernel": {"name": "indicator", "levels": 2}, "on": [1]},
        ]}  # fmt: skip
        header["statement"] |= {"sensitivity": 2**0.5 / 100, "score_scale": 2 * 2**0.5 / 100}

    path = tmp_path / "c.kme"
    path.write_bytes(forged(drawn_path, edit))
    (finding,) = validate_release(path)
    assert "too many to list" in finding


GOOD = {
    "epsilon": 1.0, "delta": 0.0, "neighbouring": "replace-one", "mechanism": "exponential over multisets",
    "sensitivity": 0.01, "score_scale": 0.02, "n_databases": 6, "calibration": "pure", "rho": 0.125, "n_rows": 9,
}  # fmt: skip


def test_a_statement_has_the_scale_of_its_mechanism_and_no_other():
    PrivacyStatement(**GOOD).check_arithmetic()
    check_refusals("statement", lambda made: made, **globals())
