"""What concerns the people who get mail."""
