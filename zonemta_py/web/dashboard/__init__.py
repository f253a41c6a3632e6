"""The dashboard: pages for people about everything the queue says, and the operators' orders with their undo."""
