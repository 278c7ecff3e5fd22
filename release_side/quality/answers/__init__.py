"""What the release answers beside what the table answers: questions with their noise intervals, and slopes."""
