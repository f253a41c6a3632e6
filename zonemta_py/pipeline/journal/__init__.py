"""The journal as a Spark source."""
