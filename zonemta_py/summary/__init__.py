"""Summaries of the archive: of each closed segment a small file with its numbers, from which questions are answered."""
