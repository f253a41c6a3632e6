"""A flash-friendly ring of records on disk, and the queue that overflows from memory into it (seed 003)."""
