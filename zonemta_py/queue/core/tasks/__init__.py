"""The table of tasks."""
