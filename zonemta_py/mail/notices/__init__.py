"""What notices to senders say: texts in several languages, and what they are about."""
