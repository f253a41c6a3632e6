"""What the queue tells of mail besides its records: numbers (`metrics`), log lines, notices to senders."""
