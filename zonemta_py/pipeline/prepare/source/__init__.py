"""Recipient lists as they come: files, dialects, damage."""
