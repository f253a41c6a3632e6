"""Handing in a prepared campaign exactly once."""
