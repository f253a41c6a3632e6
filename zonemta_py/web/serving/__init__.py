"""Connections that speak HTTP, for every listener that does, and a response that knows whether it has arrived."""
