"""Who reads the parts of a large table: processes of this machine, or the workers of a cluster.

An executor is given tasks and gives back what the project's own function returned for each. It never meets noise: sums of parts
are added, counted and checked by the door.
"""
