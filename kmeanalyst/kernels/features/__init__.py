"""Feature maps with a proven bound of their norm: one file for each family."""
