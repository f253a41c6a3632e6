"""Comparing store and journal, and repairing them."""
