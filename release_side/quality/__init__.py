"""How near a release is to its private table, in exact numbers, for the curator's eyes only: the internal page and its JSON.

This room and the door are the two that see exact numbers of private rows. Nothing computed here is covered by an ε, nor is a decision
that is taken from it. It leaves the room in two ways only: in files named .internal that their owner alone can read, and, through the
door with noise, as scores that are bought.
"""
