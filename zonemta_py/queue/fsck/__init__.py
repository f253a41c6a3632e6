"""Comparing store and journal, and putting them right."""
