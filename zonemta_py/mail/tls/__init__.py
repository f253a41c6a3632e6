"""MTA-STS policies and TLS reports (RFC 8461, RFC 8460)."""
