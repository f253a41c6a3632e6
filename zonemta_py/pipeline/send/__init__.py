"""A prepared campaign handed in exactly once."""
