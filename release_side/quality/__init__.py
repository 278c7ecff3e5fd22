"""A release compared with its private table: scores for the curator's own page, computed from private rows without noise.

This and `release_side/door/` are the only rooms that see exact numbers of private rows. Nothing here is for publication, and no
ε covers what is decided from it. No function here prints, logs, or writes into a release; errors depend on public facts alone.
"""
