"""What came back about the mail of a report: sections of its own, and figures of the headline."""
