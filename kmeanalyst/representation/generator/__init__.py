"""DP-MERF: a network trained on one noisy mean generates rows (Harder, Adamczewski & Park 2021)."""
