"""What is asked of one release: expectations, moments, quantiles, tables, regressions, conditional distributions."""
