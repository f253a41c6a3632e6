"""The live event feed: what happened to mail, derived from the journal, and the sinks it goes to."""
