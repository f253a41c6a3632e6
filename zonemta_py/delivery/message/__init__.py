"""The bytes that are sent: rendering, headers, signatures."""
