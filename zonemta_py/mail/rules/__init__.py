"""Which class a reply is in."""
