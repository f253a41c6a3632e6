"""Findings in the tables that call for action."""
