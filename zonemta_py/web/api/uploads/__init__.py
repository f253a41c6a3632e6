"""Attachments that are uploaded once, and what requests make of references to them."""
