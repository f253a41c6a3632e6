"""Admission: connections, rates, shares."""
