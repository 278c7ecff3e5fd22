"""What is public and decided before the door: kernel, features, points, the statement, and files given as public."""
