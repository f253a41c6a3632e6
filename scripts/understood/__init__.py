"""How well replies and reports are understood, measured by collections in tests/mail.

replies: one collection of SMTP replies against the rules. Nothing in the collections was written from the rules: `seen`
may be read by who writes rules, the others are there to be measured only.
"""
