"""Who may read a private cell: rows from files and frames, and the units that they belong to."""
