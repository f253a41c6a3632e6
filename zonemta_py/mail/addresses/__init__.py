"""Addresses and domains: reading, writing, SRS, VERP."""
