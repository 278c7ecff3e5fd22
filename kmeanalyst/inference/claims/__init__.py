"""Findings of a study as claims, such as "mean(wage) > 50", and how probable each is in the population.

`grammar` reads a claim, `claims` answers a list of them, `findings` reads a list from a file.
"""
