"""`release-side quality --spend`: its options, and what it prints. These numbers met noise and can be published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from kmeanalyst.cli.terminal import say, working
from kmeanalyst.releases.texts import one_line
from release_side.cli.publication import COUNTING, RUN, Option, aligned, show_counted
from release_side.errors import PublishError

if TYPE_CHECKING:
    from kmeanalyst.releases.quality.noisy_score import NoisyScore
    from kmeanalyst.releases.quality.scores import PublishedScores

_PARTS = ("k-marginal", "columns", "groups", "questions")

SPEND: tuple[Option, ...] = (
    click.option(
        "--spend",
        type=float,
        metavar="E",
        help="Publish scores with noise, for this ε: they can be shown to anybody. Unit and neighbours are those of FILE.kme.",
    ),
    click.option(
        "--delta", type=float, default=0.0, show_default=True, help="δ of --spend: 0 for Laplace noise, else Gaussian."
    ),
    click.option(
        "--part",
        "parts",
        multiple=True,
        type=click.Choice(_PARTS),
        help="Which scores to publish with --spend, however wide they will be; may be repeated. By default what the other options "
        "ask for.",
    ),
    click.option(
        "--force-wide", is_flag=True, help="Publish scores whose intervals will be so wide that they say nothing."
    ),
    click.option(
        "--dry-run", is_flag=True, help="Print how wide the intervals of --spend will be, and open no private file."
    ),
    click.option(
        "--attach",
        type=click.Path(dir_okay=False),
        metavar="OUT.kme",
        help="Write FILE.kme with the scores of --spend in it, and the guarantee of both together.",
    ),
    click.option("--force", is_flag=True, help="Replace OUT.kme if it exists."),
    *COUNTING,
    *RUN,
)
SPEND_NAMES = (
    "spend", "attach", "ledger", "table", "uncounted", "weak", "force", "force_wide", "dry_run", "parts", "delta", "rehearsal",
    "workers",
)  # fmt: skip


def check_spend(choices: Mapping[str, Any]) -> None:
    """PublishError where an option of `SPEND` is given without --spend."""
    if choices["spend"] is None and (named := [name for name in SPEND_NAMES if choices[name]]):
        option = "part" if named[0] == "parts" else named[0].replace("_", "-")
        raise PublishError(f"--{option} goes with --spend. Add it, or leave this out.")


def spend_scores(release_path: str, private: Any, choices: Mapping[str, Any]) -> None:
    """Publish the scores that the options of `SPEND` ask for, or print how wide they would be; nothing without --spend."""
    from release_side.publishing.scores import plan_quality, publish_quality

    epsilon = choices["spend"]
    if epsilon is None:
        return
    asked = {name: choices[name] for name in ("delta", "group", "workload")} | {"parts": choices["parts"] or None}
    if choices["dry_run"]:
        _show_plan(plan_quality(release_path, epsilon=epsilon, **asked).to_dict("records"))
        return
    if choices["ledger"] is choices["table"] is choices["rehearsal"] is None and not choices["uncounted"]:
        raise PublishError(
            "no ledger is named: releases of one table add up, and nothing would count these scores. Nothing was spent. Name "
            "--ledger LEDGER and --table NAME, those of the release, or say --uncounted."
        )
    counted = {
        name: choices[name] for name in ("ledger", "table", "uncounted", "weak", "force", "rehearsal", "workers")
    }
    with working("scoring") as progress:
        quality = publish_quality(
            release_path, private, epsilon=epsilon, **asked, **counted, force_wide=choices["force_wide"],
            output=choices["attach"], progress=progress,
        )  # fmt: skip
    if choices["attach"]:
        say(f"wrote {choices['attach']}", err=True)
    show_counted(choices)
    _show_scores(quality)


def _show_plan(lines: list[dict[str, Any]]) -> None:
    heads = ("part", "numbers", "±", "limit", "published by default")
    rows = []
    for line in lines:
        width, limit = f"{line['half_width']:.2g}", f"{line['limit']:g}"
        rows.append((line["part"], str(line["numbers"]), width, limit, "yes" if line["published"] else "no"))
    say("\n".join(aligned([heads, *rows], texts=(0,))))
    say(
        "(± is half of a 95 % interval: of a TV, of which 1 is 1000 points of k-marginal; of a question as a share of its range)"
    )


def _show_scores(quality: PublishedScores) -> None:
    """Every score with its interval, and the guarantee."""
    lines: list[tuple[str, ...]] = [("score", "of", "value", "95 % noise interval", "")]
    lines += [_line(score) for score in quality.scores()]
    say("\n".join(aligned(lines, texts=(0, 1, 3, 4))))
    say(f"({quality.guarantee_text()}; values and intervals are clipped to what is possible)")
    say(f"the release and these scores together: ε = {quality.total_epsilon:.4g}, δ = {quality.total_delta:.4g}")


def _line(score: NoisyScore) -> tuple[str, ...]:
    name, held = one_line(score.name), {None: "", True: "held", False: "not held"}[score.held]
    if score.value is None:
        return score.part, name, "", "not given: its noisy size is too small", ""
    if score.part in ("k-marginal", "groups") and score.points is not None:
        value, low, high = score.points
        return score.part, name, f"{value:.0f}", f"{low:.0f} to {high:.0f} of 1000", held
    digits = ".4g" if score.part == "questions" else ".3f"
    return score.part, name, f"{score.value:{digits}}", f"{score.low:{digits}} to {score.high:{digits}}", held
