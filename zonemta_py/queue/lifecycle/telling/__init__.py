"""What the queue tells of mail besides its records: numbers (`metrics`)."""
