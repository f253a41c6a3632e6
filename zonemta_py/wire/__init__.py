SOCKET = "socket"
"""Of the queue, in its folder."""
PATH_BYTES_MAX = 107
"""Of a socket's path, by Linux."""
AUTHORITY = "authority"
"""Socket of the authority of several queues, in the folder of the MTA: it answers questions to all of them."""
