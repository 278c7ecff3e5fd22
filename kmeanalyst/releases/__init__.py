"""The published object: its columns, its guarantee, the noisy measurement, and the file.

A release is a value. The questions are answered by higher packages; `kmeanalyst/release.py` has one line for each.
"""
