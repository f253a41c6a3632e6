"""Clocks, and the hours at which mail may go."""
