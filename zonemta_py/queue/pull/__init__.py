"""Pull zones: those who take what waits there, and what they have reserved."""
