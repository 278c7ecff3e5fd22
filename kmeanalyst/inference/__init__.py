"""Answers with error bars, tests that hold their level, and arithmetic on released distributions.

`estimate/`: numbers with their errors. `questions/`: questions about one release. `variables/`: arithmetic on populations.
`two_sample/`: tests whether two sides are alike. `compare/`: where they differ.
"""
