"""The classes of replies, and the rules that assign them."""
