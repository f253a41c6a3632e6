"""Erasure of a person from archive and lake, with a proof."""
