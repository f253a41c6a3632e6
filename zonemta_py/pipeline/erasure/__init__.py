"""A person forgotten in archive and lake, and the proof of it."""
