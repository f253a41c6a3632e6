"""Suspensions, rests, and what was learned."""
