"""Campaigns: commands, monitor, thresholds, history, purge."""
