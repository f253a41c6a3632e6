"""Reading on after damage, and repairing the journal."""
