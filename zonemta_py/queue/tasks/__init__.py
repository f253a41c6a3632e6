"""Tasks: what an operator does to many recipients at once, and the filter that says to which."""
