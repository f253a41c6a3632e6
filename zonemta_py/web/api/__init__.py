"""The operations of the HTTP interface: mail in, named queues, campaigns, feedback, events, administration."""
