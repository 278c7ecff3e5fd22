"""Tables and views of PostgreSQL and DuckDB, by name."""
