"""Answers with error bars, tests that hold their level, and arithmetic on released distributions.

`estimate/` holds the numbers that know their error, `questions/` what is asked of one release, `variables/` arithmetic on
populations, `two_sample/` whether two sides are alike, `compare/` where they differ.
"""
