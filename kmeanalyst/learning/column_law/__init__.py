"""The distribution of one column given the others, fitted to the noisy measurement."""
