"""Who may read a private cell: rows from files, frames and Arrow streams, and the units that they belong to."""
