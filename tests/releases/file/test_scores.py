"""Rounds of scores in a .kme file: written and read back, counted in the promise, and refused where they are forged."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from file_tools import (
    SCHEMA_TEST,
    Edit,
    Members,
    all_of,
    array,
    dropping,
    forged,
    members_of,
    npy,
    refused,
    same,
    scaling,
    setting,
)
from kernel_cases import WORKERS, workers

import kmeanalyst as ka
import release_side
from kmeanalyst.kernels import ChosenMargins
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.measurement import GRID, SHRINK, Choice, Scores
from kmeanalyst.representation.redraw import redraw

DOMAIN = Domain((*WORKERS.columns, Categorical(name="car", levels=("none", "one", "more"))))


def published(folder: Path, n_rows: int = 2000, *, kernel: str = "adaptive", target: str | None = None) -> Path:
    """A rehearsal; scores are of six or ten pairs of columns."""
    rng = np.random.default_rng(0)
    frame = workers(n_rows, rng).assign(car=rng.choice(["none", "one", "more"], n_rows))
    path = folder / f"{kernel}-{target}-{n_rows}.kme"
    release_side.publish(
        frame.astype(str).replace("nan", ""), DOMAIN, epsilon=1, delta=1e-6, kernel=kernel, target=target, points=40,
        rehearsal=1, output=path,
    )  # fmt: skip
    return path


def read(path: Path) -> Release:
    return ka.read_release(path, allow_rehearsal=True)


@pytest.fixture(scope="module")
def scored_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("scores"))


EVERY_RELEASE = pytest.mark.parametrize(
    ("n_rows", "target", "rounds", "pairs"), [(2000, None, 2, 10), (2000, "rich", 2, 6)], ids=["without a target", "by target"],
)  # fmt: skip


@EVERY_RELEASE
def test_scores_read_back_are_the_scores_written(
    n_rows: int, target: str | None, rounds: int, pairs: int, tmp_path: Path
):
    path = published(tmp_path, n_rows, target=target)
    release = read(path)
    assert (
        isinstance(release.kernel, ChosenMargins)
        and [s.noisy.shape for s in release.measurement.scores] == [(pairs,)] * rounds
    )
    release.write(tmp_path / "again.kme")
    assert (tmp_path / "again.kme").read_bytes() == path.read_bytes()
    again = read(tmp_path / "again.kme")
    same(release, again)
    for one, other in zip(release.measurement.scores, again.measurement.scores, strict=True):
        assert one.noisy.dtype == np.int64 and one.step == other.step
        np.testing.assert_array_equal(one.noisy, other.noisy)
    assert ka.validate_release(path, allow_rehearsal=True) == []


@EVERY_RELEASE
def test_the_promise_counts_the_scores(n_rows: int, target: str | None, rounds: int, pairs: int, tmp_path: Path):
    """FORMAT.md §4, with nothing but a zip reader: √(D² + Σ over scores of Σ over pairs of (2 · step + cells)²)."""
    path = published(tmp_path, n_rows, target=target)
    members = members_of(path)
    header = json.loads(members["release.json"])
    kernel, steps = header["kernel"], header["measurement"]["scores"]
    sizes = [
        len(edges) + 1 + len(atoms) + missing
        for edges, atoms, missing in zip(kernel["edges"], kernel["atoms"], kernel["missing"], strict=True)
    ]
    crossed = sizes.pop(kernel["target"]) if kernel["target"] >= 0 else 1
    cells = [crossed * a * b for i, a in enumerate(sizes) for b in sizes[i + 1 :]]
    assert len(cells) == pairs and len(steps) == rounds
    for number in range(rounds):
        assert np.load(io.BytesIO(members[f"measurement/scores_{number + 1}.npy"])).shape == (pairs,)
    squares = [2 * GRID**2, *((2 * step + size) ** 2 for step in steps for size in cells)]
    expected = math.sqrt(sum(squares)) / (GRID * SHRINK * n_rows)
    assert header["statement"]["sensitivity"] == pytest.approx(expected, rel=1e-9)
    assert read(path).measurement.sensitivity == pytest.approx(expected, rel=1e-9)
    assert expected > math.sqrt(2) / n_rows * 1.01  # scores cost something: without them the promise would be better


def test_the_header_is_one_of_the_schema(scored_path: Path):
    SCHEMA_TEST.validate(json.loads(members_of(scored_path)["release.json"]))


# ---------------------------------------------------------------------- forged files


def without(name: str) -> Edit:
    return lambda header, members: members.pop(f"measurement/{name}.npy")


def one_more(name: str) -> Edit:
    return lambda header, members: members.update({f"measurement/{name}.npy": members["measurement/scores_1.npy"]})


def left_out(*, members: bool) -> Edit:
    """No scores in the header, nor their members."""
    edits = [without("scores_1"), without("scores_2")] if members else []
    return all_of(dropping("measurement", "scores"), *edits)


def claim(sensitivity: Callable[[dict[str, Any]], float]) -> Edit:
    """A statement whose own arithmetic is right, about another sensitivity."""

    def edit(header: dict[str, Any], members: Members | None = None) -> None:
        by = sensitivity(header) / header["statement"]["sensitivity"]
        scaling("statement", "sensitivity", by=by)(header)
        scaling("statement", "rho", by=by**2)(header)

    return edit


def of_features(header: dict[str, Any]) -> float:
    """Without scores."""
    return math.sqrt(2) / (SHRINK * header["measurement"]["n_rows"])


def of_one_round(header: dict[str, Any]) -> float:
    """Without the last round of scores."""
    step, squared = header["measurement"]["scores"][-1], header["statement"]["sensitivity"] ** 2
    return math.sqrt(squared - 10 * (2 * step / (GRID * SHRINK * header["measurement"]["n_rows"])) ** 2)


def steps(*values: Any) -> Edit:
    return setting("measurement", "scores", to=list(values))


MEMBERS, FIELD = "the members differ from the declared ones", "measurement, field scores"
STEPS = r"a list of 1 to 9 whole numbers, from 1 to 2\^28, got"
CLAIM, NOT_THESE = "the privacy statement claims sensitivity", "the guarantee is not about these numbers"
NO_FIX = "Do not rely on it; ask its maker for a correct file."
FORGED: dict[str, tuple[Edit, str, str]] = {
    "no first scores": (without("scores_1"), MEMBERS, r"needed \[.*scores_1.*present \[.*sum.npy', 'measurement/scores_2"),
    "no scores at all": (
        all_of(without("scores_1"), without("scores_2")), MEMBERS, r"present \[.*noisy_sum.npy', 'points.csv'\]",
    ),
    "third scores": (one_more("scores_3"), MEMBERS, "present .*scores_3"),
    "scores of number 0": (one_more("scores_0"), MEMBERS, "present .*scores_0"),
    "scores that the header forgets": (left_out(members=False), MEMBERS, "present .*scores_1"),
    "a score less": (array("scores_1", lambda a: a[:-1]), r"measurement/scores_1\.npy", r"shape \[10\] and .* \[9\]"),
    "a score more": (array("scores_2", lambda a: np.append(a, 1)), r"measurement/scores_2\.npy", r"shape \[10\] and .* \[11\]"),
    "scores of two axes": (array("scores_1", lambda a: a[:, None]), r"scores_1\.npy", r"shape \[10\] and .* \[10, 1\]"),
    "scores that are floats": (array("scores_1", lambda a: a.astype("<f8")), r"scores_1\.npy", "should hold <i8 .* got <f8"),
    "scores that are no array": (array("scores_2", lambda a: b"1,2"), r"scores_2\.npy", "it is not an npy 1.0 array"),
    "a step of 0": (steps(0, 1000), FIELD, STEPS + r" \[0, 1000\]"),
    "a step of 2^31": (steps(1000, 2**31), FIELD, STEPS + r" \[1000, 2147483648\]"),
    "a step above 2^28": (steps(1000, 2**28 + 1), FIELD, STEPS),
    "a step below 0": (steps(-1000, 1000), FIELD, STEPS),
    "a step that is a text": (steps("1000", 1000), FIELD, STEPS + r" \['1000', 1000\]"),
    "a step that is a float": (steps(1000.0, 1000), FIELD, STEPS),
    "a step that is true": (steps(True, 1000), FIELD, STEPS),
    "a step that is null": (steps(None, 1000), FIELD, STEPS),
    "steps that are a number": (setting("measurement", "scores", to=1000), FIELD, STEPS),
    "steps that are null": (setting("measurement", "scores", to=None), FIELD, STEPS),
    "steps that are a table": (setting("measurement", "scores", to={"1": 1000, "2": 1000}), FIELD, STEPS),
    "an empty list of steps": (all_of(left_out(members=True), steps()), FIELD, STEPS + r" \[\]"),
    "ten rounds": (all_of(steps(*[1000] * 10), *(one_more(f"scores_{i}") for i in range(3, 11))), FIELD, STEPS),
    "Laplace noise": (
        setting("measurement", "noise_law", to="rehearsal of discrete laplace"), FIELD,
        "scores go with margins of chosen pairs, under Gaussian noise",
    ),
    "squares that do not add up": (
        scaling("kernel", "squares", 0, 0, by=1.01), "the kernel", "the squares of a share must add up to it",
    ),
    "a pair that is chosen twice": (
        lambda header, members: header["kernel"]["chosen"].__setitem__(1, header["kernel"]["chosen"][0]), "the kernel",
        "different pairs i < j of columns",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FORGED)
def test_scores_other_than_declared_are_refused(case: str, scored_path: Path, tmp_path: Path):
    edit, what, why = FORGED[case]
    refused(forged(scored_path, edit), tmp_path, what, why)


@pytest.mark.parametrize(
    "edit",
    [
        claim(of_features), claim(of_one_round), left_out(members=True), steps(1000, 1000),
        all_of(dropping("measurement", "scores", 1), without("scores_2")),
    ],
    ids=["no scores", "one round", "scores left out", "smaller steps", "a round left out"],
)  # fmt: skip
def test_a_promise_that_forgets_the_scores_is_refused(edit: Edit, scored_path: Path, tmp_path: Path):
    refused(forged(scored_path, edit), tmp_path, CLAIM, NOT_THESE, NO_FIX)


def scores_added(header: dict[str, Any], members: Members) -> None:
    """A round of scores of all pairs."""
    header["measurement"]["scores"] = [1000]
    n = len(header["columns"])
    members["measurement/scores_1.npy"] = npy(np.zeros(n * (n - 1) // 2, dtype="<i8"))


def test_scores_of_all_margins_or_of_other_features_are_refused(mixed_path: Path, tmp_path: Path):
    for path in (published(tmp_path, kernel="margins"), mixed_path):
        refused(
            forged(path, scores_added), tmp_path, FIELD, "scores go with margins of chosen pairs, under Gaussian noise"
        )


# ---------------------------------------------------------------------- choices


@pytest.fixture(scope="module")
def drawn_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So few rows that three of ten pairs are drawn by the exponential mechanism."""
    return published(tmp_path_factory.mktemp("choices"), 400)


def test_choices_read_back_are_the_choices_written(drawn_path: Path, tmp_path: Path):
    release = read(drawn_path)
    (choice,) = release.measurement.choices
    assert choice.count == 3 == len(release.kernel.chosen) and release.measurement.scores == ()  # type: ignore[attr-defined]
    release.write(tmp_path / "again.kme")
    assert (tmp_path / "again.kme").read_bytes() == drawn_path.read_bytes()
    assert read(tmp_path / "again.kme").measurement.choices == (choice,)
    assert ka.validate_release(drawn_path, allow_rehearsal=True) == []
    assert release.measurement.chosen_by_rows and not release.measurement.decided_beforehand.chosen_by_rows
    SCHEMA_TEST.validate(json.loads(members_of(drawn_path)["release.json"]))


def test_the_promise_counts_a_choice(drawn_path: Path):
    """FORMAT.md §4, with nothing but the header: D² + π/2 · count · ((2 · step + cells) · σ / b)²."""
    header = json.loads(members_of(drawn_path)["release.json"])
    kernel, measured = header["kernel"], header["measurement"]
    sizes = [
        len(edges) + 1 + len(atoms) + missing
        for edges, atoms, missing in zip(kernel["edges"], kernel["atoms"], kernel["missing"], strict=True)
    ]
    largest = max(a * b for i, a in enumerate(sizes) for b in sizes[i + 1 :])
    (own,) = measured["choices"]
    moved = (2 * own["step"] + largest) * measured["grid_noise_scale"] / own["scale"]
    expected = math.sqrt(2 * GRID**2 + math.pi / 2 * own["count"] * moved**2) / (GRID * SHRINK * 400)
    assert header["statement"]["sensitivity"] == pytest.approx(expected, rel=1e-9)
    multiplier = release_side.GaussianNoise(1.0, 1e-6).multiplier()
    assert measured["noise_scale"] / expected == pytest.approx(multiplier, rel=1e-6), "all of the budget, and no more"


def choice_with(**fields: Any) -> Edit:
    return lambda header, members: header["measurement"]["choices"][0].update(fields)


CHOICES, CHOICE = "measurement, field choices", "a list of 1 to 9 tables of count, step"
FORGED_CHOICES: dict[str, tuple[Edit, *tuple[str, ...]]] = {
    "no choices": (setting("measurement", "choices", to=[]), CHOICES, CHOICE),
    "a number": (setting("measurement", "choices", to=3), CHOICES, CHOICE),
    "a choice that is a number": (setting("measurement", "choices", to=[3]), CHOICES, CHOICE),
    "another field": (choice_with(more=1), CHOICES, CHOICE),
    "a field less": (lambda header, members: header["measurement"]["choices"][0].pop("step"), CHOICES, CHOICE),
    "a count of 0": (choice_with(count=0), CHOICES, CHOICE),
    "a count that is a float": (choice_with(count=3.0), CHOICES, CHOICE),
    "a count above the pairs": (choice_with(count=4), CHOICES, "more pairs were drawn than there are"),
    "a step of 0": (choice_with(step=0), CHOICES, CHOICE),
    "a step above the grid": (choice_with(step=2**28 + 1), CHOICES, CHOICE),
    "a scale of 0": (choice_with(scale=0), CHOICES, CHOICE),
    "a scale below 0": (choice_with(scale=-1.0), CHOICES, CHOICE),
    "a scale that is a text": (choice_with(scale="1"), CHOICES, CHOICE),
    "fewer draws": (choice_with(count=1), CLAIM, NOT_THESE, NO_FIX),
    "less noise": (
        lambda header, members: scaling("measurement", "choices", 0, "scale", by=0.5)(header), CLAIM, NOT_THESE, NO_FIX,
    ),
    "a choice left out": (dropping("measurement", "choices"), CLAIM, NOT_THESE, NO_FIX),
}  # fmt: skip


@pytest.mark.parametrize("case", FORGED_CHOICES)
def test_choices_other_than_declared_are_refused(case: str, drawn_path: Path, tmp_path: Path):
    edit, *words = FORGED_CHOICES[case]
    refused(forged(drawn_path, edit), tmp_path, *words)


@pytest.fixture(scope="module")
def drawn_in_rounds_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of so many columns that pairs are drawn in six rounds."""
    path = tmp_path_factory.mktemp("many") / "many.kme"
    domain = Domain(tuple(Categorical(name=f"c{k}", levels=tuple("abcd")) for k in range(31)))
    release_side.publish(
        domain.decode(domain.draw(10_000, 0)), domain, epsilon=1, delta=1e-6, points=6, rehearsal=1, output=path
    )
    return path


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize(
    "edit",
    [
        lambda n: dropping("measurement", "choices", n), lambda n: scaling("measurement", "choices", n, "scale", by=2.0),
        lambda n: lambda header, members: header["measurement"]["choices"][n].update(count=1),
        lambda n: lambda header, members: header["measurement"]["choices"][n].update(step=2**20),
    ],
    ids=["left out", "more noise", "fewer draws", "smaller steps"],
)  # fmt: skip
def test_of_several_choices_none_can_be_made_cheaper(
    number: int, edit: Callable[[int], Edit], drawn_in_rounds_path: Path, tmp_path: Path
):
    """Each would leave a smaller sensitivity than the statement's, from which its noise would be more than it needs."""
    assert len(read(drawn_in_rounds_path).measurement.choices) == 6
    refused(forged(drawn_in_rounds_path, edit(number)), tmp_path, CLAIM, NOT_THESE, NO_FIX)


@pytest.fixture(scope="module")
def drawn_by_target_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair that a workload names, and three that were drawn, all crossed with a target."""
    path = tmp_path_factory.mktemp("by target") / "by target.kme"
    domain = Domain(tuple(Categorical(name=f"c{k}", levels=tuple("abc")) for k in range(7)))
    release_side.publish(
        domain.decode(domain.draw(400, 0)), domain, epsilon=1, delta=1e-6, kernel="adaptive", target="c3",
        workload=["table(c0, c5)"], points=6, rehearsal=1, output=path,
    )  # fmt: skip
    return path


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (dropping("measurement", "choices"), ("measurement, field beforehand", "it goes with scores or choices")),
        (
            all_of(dropping("measurement", "choices"), dropping("measurement", "beforehand")),
            (CLAIM, NOT_THESE, NO_FIX),
        ),
        (scaling("measurement", "choices", 0, "scale", by=2.0), (CLAIM, NOT_THESE, NO_FIX)),
        (choice_with(count=2), (CLAIM, NOT_THESE, NO_FIX)),
        (
            lambda header, members: header["measurement"].update(beforehand=header["kernel"]["chosen"]),
            (CHOICES, "more pairs were drawn than there are"),
        ),
        (setting("kernel", "target", to=-1), ("the kernel", "shares of margins with the target need one")),
        (claim(of_features), (CLAIM, NOT_THESE, NO_FIX)),
    ],
    ids=["draws", "draws and the workload", "noise", "a draw", "all pairs", "the target", "the promise"],
)  # fmt: skip
def test_a_file_with_draws_by_target_after_a_workload_cannot_be_made_cheaper(
    edit: Edit, words: tuple[str, ...], drawn_by_target_path: Path, tmp_path: Path
):
    measurement = read(drawn_by_target_path).measurement
    assert [own.count for own in measurement.choices] == [3] and len(measurement.beforehand) == 1
    assert measurement.feature_map.kernel.target == 3  # type: ignore[attr-defined]
    refused(forged(drawn_by_target_path, edit), tmp_path, *words)


def test_choices_of_other_features_are_refused(mixed_path: Path, mixed_release: Release, tmp_path: Path):
    added = setting("measurement", "choices", to=[{"count": 1, "step": 1, "scale": 1.0}])
    refused(
        forged(mixed_path, added), tmp_path, CHOICES, "choices go with margins of chosen pairs, under Gaussian noise"
    )
    with pytest.raises(ValueError, match="choices go with margins of chosen pairs"):
        replace(mixed_release.measurement, choices=(Choice(1, 1, 1.0),))


@pytest.mark.parametrize("choice", [Choice(4, 1, 1.0), Choice(0, 1, 1.0), Choice(1, 0, 1.0), Choice(1, 1, math.inf)])
def test_a_choice_that_fits_no_measurement_is_refused(choice: Choice, drawn_path: Path):
    with pytest.raises(ValueError, match="a choice is of chosen pairs"):
        replace(read(drawn_path).measurement, choices=(choice,))


# ---------------------------------------------------------------------- made in memory


@pytest.mark.parametrize(
    ("score", "law", "message"),
    [
        (Scores(np.zeros(9, dtype=int), 1000), None, "a number for each pair of columns, and a step from 1 to 2"),
        (Scores(np.zeros((10, 1), dtype=int), 1000), None, "a number for each pair of columns"),
        (Scores(np.zeros(10, dtype=int), 0), None, "a step from 1 to 2"),
        (Scores(np.zeros(10, dtype=int), 2**28 + 1), None, "a step from 1 to 2"),
        (Scores(np.zeros(10, dtype=int), 1000), "discrete laplace", "under Gaussian noise. Leave them out"),
    ],
)
def test_scores_that_fit_no_measurement_are_refused(score: Scores, law: str | None, message: str, scored_path: Path):
    measurement = read(scored_path).measurement
    with pytest.raises(ValueError, match=message):
        replace(measurement, scores=(score,), noise_law=law or measurement.noise_law)


def test_steps_are_written_in_the_order_of_the_rounds(scored_path: Path):
    scores = tuple(Scores(np.zeros(10, dtype=int), step) for step in (2000, 1000))
    assert replace(read(scored_path).measurement, scores=scores).to_dict()["scores"] == [2000, 1000]


def test_scores_of_other_features_are_refused(mixed_release: Release):
    with pytest.raises(
        ValueError, match=r"scores and choices go with margins of chosen pairs, under Gaussian noise\. Leave them out"
    ):
        replace(mixed_release.measurement, scores=(Scores(np.zeros(10, dtype=int), 1000),))


def of_pairs_alone(header: dict[str, Any], members: Members) -> None:
    """A valid file, though no release is like it: the tables of pairs, scaled to norm 1, without those of single columns."""
    kernel = header["kernel"]
    sizes = [
        len(edges) + 1 + len(atoms) + missing for edges, atoms, missing in zip(*(kernel[f] for f in CELLS), strict=True)
    ]
    first, total = sum(sizes), kernel["shares"][2]
    last = first + sum(sizes[i] * sizes[j] for i, j in kernel["chosen"])
    kernel["squares"] = [
        [square / total for square in each] if k == 2 else [] for k, each in enumerate(kernel["squares"])
    ]
    kernel["shares"] = [float(k == 2) for k in range(6)]
    kernel["fine"] = [[] for _ in sizes]
    header["measurement"]["feature_map"]["dimension"] = last - first
    array("noisy_sum", lambda a: a[first:last])(header, members)


CELLS = ("edges", "atoms", "missing")


def test_a_file_without_tables_of_single_columns_answers_and_says_why_it_has_no_rows(scored_path: Path, tmp_path: Path):
    (path := tmp_path / "pairs.kme").write_bytes(forged(scored_path, of_pairs_alone))
    release = read(path)
    assert 0 < release.probability("car == 'none'").value < 1
    with pytest.raises(
        ValueError, match=r"drawn from one-way tables.*made of other tables.*ask its maker for the tables"
    ):
        redraw(release, rng=0)
