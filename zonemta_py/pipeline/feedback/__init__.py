"""What came back, in the lake."""
