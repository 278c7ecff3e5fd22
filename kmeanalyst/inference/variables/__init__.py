"""Kernel probabilistic programming: random variables of released columns, and functions of them."""
