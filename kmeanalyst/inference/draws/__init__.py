"""Draws of the table, and replicate weights: a release's errors in a form for other programs, and folders with one rule."""
