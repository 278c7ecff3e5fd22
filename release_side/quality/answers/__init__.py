"""What the release answers and what the table answers: questions with their noise intervals, and slopes."""
