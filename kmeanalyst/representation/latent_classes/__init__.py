"""A latent class model fitted to noisy one-way and two-way tables, and values of numbers within their cells."""
