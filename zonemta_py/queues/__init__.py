"""Several queues that are one MTA: where their folders are, which takes a message, and how they share limits, orders
and an operator's questions.

With one queue nothing here is loaded.
"""
