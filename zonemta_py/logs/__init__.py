"""What is written to standard error while the server runs."""
