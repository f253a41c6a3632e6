"""The path of a message: accepted, leased, settled or removed."""
