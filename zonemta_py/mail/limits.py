"""Every limit that is not a matter of configuration: name, unit last, and why.

Defaults that an operator may change live in `config.Limits` and start from the numbers here.
"""

CHUNK_BYTES = 65_536
"""Bodies are kept and moved in chunks of this many bytes (seed 002, ZoneMTA's queue)."""

MESSAGE_BYTES_MAX = 100 * 1024 * 1024
"""Largest message accepted, bytes as received (the SIZE keyword, RFC 1870)."""

RECIPIENTS_MAX = 1_000
"""RCPT commands accepted in one transaction (RFC 5321 4.5.3.1.8 asks for at least 100)."""

RECIPIENTS_PER_DELIVERY_MAX = 100
"""Recipients handed to a remote server in one transaction (RFC 5321 4.5.3.1.8)."""

HEADER_BYTES_MAX = 1_048_576
"""Longest header section, bytes."""

HEADER_FIELDS_MAX = 5_000
"""Fields in a header section: each costs a microsecond wherever it is looked at, and a quarter of a million fit in."""

FROM_BYTES_MAX = 8_192
"""A From field in which addresses are looked for; a longer one names nobody."""

HOPS_MAX = 50
"""Received fields before a message is considered to be looping (RFC 5321 6.3)."""

COMMAND_BYTES_MAX = 4_096
"""Longest command line; AUTH and ORCPT make lines longer than RFC 5321's 512."""

LINE_BYTES_MAX = 1_048_576
"""Longest body line accepted (RFC 5321 4.5.3.1.6 says 1,000; real mail does not obey)."""

REPLY_BYTES_MAX = 65_536
"""Longest reply, all lines together, read from a remote server."""

REPLY_TEXT_STORED_MAX = 500
"""Characters of a remote reply that are kept in records and notifications."""

ADDRESS_BYTES_MAX = 320
"""Local part 64 and domain 255 with the @ (RFC 5321 4.5.3.1)."""

FRAME_BYTES_MAX = 96 * 1024 * 1024
"""Largest frame on the unix socket between our own processes: half more than the largest `http.body_bytes`, for a batch
or template travels in one."""
