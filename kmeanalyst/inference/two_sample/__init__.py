"""Are two sides alike? MMD and its tests, for releases (the null distribution includes their noise) and plain samples."""
