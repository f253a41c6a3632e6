"""Operators' queries and orders."""
