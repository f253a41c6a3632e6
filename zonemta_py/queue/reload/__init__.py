"""Another configuration for a queue that runs, and what it had before."""
