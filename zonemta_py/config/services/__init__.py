"""Listeners beside SMTP: what they are configured by."""
