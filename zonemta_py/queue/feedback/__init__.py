"""What came back about mail that was sent."""
