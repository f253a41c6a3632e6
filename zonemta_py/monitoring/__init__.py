"""Metrics in the formats that monitoring systems read."""
