"""The way of a message: accepted, leased, settled or removed."""
