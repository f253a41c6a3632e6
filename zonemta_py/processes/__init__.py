"""The processes of the MTA: what each of them does, who starts them, and what keeps them running."""
