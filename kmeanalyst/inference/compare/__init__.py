"""Where do two sides differ? Columns and pairs that account for the distance, and independence."""
