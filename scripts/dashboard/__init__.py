"""The dashboard of a real MTA, looked at with a real browser."""
