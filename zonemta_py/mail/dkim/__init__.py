"""DKIM signatures and key records (RFC 6376, RFC 8463)."""
