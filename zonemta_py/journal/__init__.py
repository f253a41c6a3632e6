"""The journal: its files, its records, and what they say."""
