"""Scores of a release against its own table, bought with noise: what was measured, what follows from it, and its guarantee."""
