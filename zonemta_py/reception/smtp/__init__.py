"""The server's side of SMTP."""
