"""The member `quality.json`: noisy scores of the release against its table, read with the same distrust as the header.

It is JSON in one canonical form. All that it claims is computed again: the sensitivity from the parts, ε and δ from the noise, the
scores from the noisy numbers, and the guarantee of release and scores together.
"""

from __future__ import annotations

import json
from typing import Any

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.file.archive import QUALITY, Members
from kmeanalyst.releases.file.header import parsed, plain
from kmeanalyst.releases.file.limits import refusal, refusing
from kmeanalyst.releases.quality.scores import PublishedScores
from kmeanalyst.releases.statement import PrivacyStatement


def quality_of(members: Members, domain: Domain, statement: PrivacyStatement | None) -> PublishedScores | None:
    """The scores of a file, or None if it has none; FileRefused if they claim more than their numbers give."""
    if QUALITY not in members:
        return None
    if statement is None:
        raise refusal(QUALITY, "the release has no statement, so that its scores are of no table that is known")
    return _parsed(members[QUALITY].data, domain, statement)


def _parsed(data: memoryview, domain: Domain, statement: PrivacyStatement) -> PublishedScores:
    table = parsed(data, QUALITY)
    with refusing(QUALITY):
        quality = PublishedScores.from_dict(table, [column.name for column in domain.columns if not column.is_text])
        quality.check_total(statement)
        return quality


def quality_bytes(quality: PublishedScores) -> bytes:
    """The scores as the member of a file: sorted keys, no spaces."""
    table: dict[str, Any] = plain(quality.to_dict())
    return json.dumps(table, sort_keys=True, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def check_readable(quality: PublishedScores, domain: Domain, statement: PrivacyStatement) -> None:
    """FileRefused if a reader would refuse a file of this release with these scores in it."""
    _parsed(memoryview(quality_bytes(quality)), domain, statement)
