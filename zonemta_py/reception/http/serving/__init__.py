"""Connections that speak HTTP, for every listener that does."""
