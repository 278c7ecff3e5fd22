"""What a release takes as public, in words for the statement that goes into the file."""

from __future__ import annotations

from kmeanalyst.releases.statement import PopulationSize

NO_PROTECTION = "a person whose row is public gets no protection for it"
KERNEL = "the kernel and its lengthscales, chosen from the domain or by the curator"


def taken_as_public(size: PopulationSize, kernel: str, *others: str) -> tuple[str, ...]:
    """What a release treats as public, in words: what every release does, its kernel, and what its method adds."""
    count = (
        "the number of rows N and the names of the columns"
        if size.unit is None
        else f"the number P of {size.counted} (not that of their rows) and the names of the columns, {size.unit!r} included"
    )
    return (count, "the domain: kinds, bounds, levels, scales, steps, defaults, edges and atoms", kernel, *others)
