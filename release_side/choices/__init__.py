"""What is public and decided before the door: choices, sizes, features, the statement, and files given as public."""
