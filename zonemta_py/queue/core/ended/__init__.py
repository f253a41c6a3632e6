"""What is remembered of messages that have ended."""
