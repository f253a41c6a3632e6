SOCKET = "socket"
"""Of the queue, in its folder."""
