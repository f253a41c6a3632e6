"""The client's side of SMTP."""
