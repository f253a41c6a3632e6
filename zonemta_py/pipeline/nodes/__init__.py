"""The queues that a campaign is handed to, over HTTP."""
