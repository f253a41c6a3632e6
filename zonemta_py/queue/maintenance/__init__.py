"""What a queue does by the clock: positions, archive, deadlines, expiry."""
