"""What if: a stretch of the archive, replayed through the real queue under another configuration, in simulated time."""
