"""A mixture model fitted to a noisy mean of random features; its posterior mean is the denoised embedding."""
