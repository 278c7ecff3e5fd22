"""Numbers with their errors: estimates, the population fitted to a measurement, and error models."""
