"""Which points: optimised for a measurement, thinned from a release, or searched in a pool of candidates."""
