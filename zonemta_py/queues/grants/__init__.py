"""Limits that several queues share, exactly as if one queue had them: an authority grants shares to their holders."""
