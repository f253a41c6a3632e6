"""How well replies and reports are understood, measured by collections in tests/mail.

replies: collections of SMTP replies against the rules. reports: mails that come back, against `mail.feedback` and the
rules. Nothing in them was written from the rules or the readers: `seen` may be read by who writes those, the others are
there to be measured only.
"""
