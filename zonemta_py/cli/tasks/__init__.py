"""Orders about many recipients at once, and the tasks they are."""
