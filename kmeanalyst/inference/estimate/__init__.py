"""Numbers that know their error: estimates, the population fitted to a measurement, and the models of its error."""
