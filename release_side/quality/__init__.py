"""A release beside its private table: scores for the curator's own page, computed from private rows without noise.

This is the one room besides `release_side/door/` that sees exact numbers of private rows. Nothing here is for publication, and no ε
covers what is decided from it. No function here prints, logs, or writes into a release; errors depend on public facts alone.
"""
