"""The queue's periodic work: positions, archive, deadlines, expiry."""
