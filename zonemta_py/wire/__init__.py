SOCKET = "socket"
"""Of the queue, in its folder."""
PATH_BYTES_MAX = 107
"""Of a socket's path, by Linux."""
