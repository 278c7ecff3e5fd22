"""The published object: its columns, its guarantee, the noisy measurement, and the file.

A release is a value. What is asked of one lives on higher floors; `kmeanalyst/release.py` names every question.
"""
