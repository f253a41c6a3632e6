"""Sessions, and what makes them start and run quickly."""
