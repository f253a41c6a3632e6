"""Fixed replies to clients, each with its enhanced status code (RFC 3463), and the formatting of replies."""

from __future__ import annotations

from zonemta_py.mail.limits import COMMAND_BYTES_MAX
from zonemta_py.mail.reply import Reply

BAD_SEQUENCE = "5.5.1"
NO_GREETING = Reply(503, BAD_SEQUENCE, "Say EHLO first")
NESTED = Reply(503, BAD_SEQUENCE, "A transaction is already open; end it with DATA or RSET")
NO_MAIL = Reply(503, BAD_SEQUENCE, "Say MAIL first")
NO_RCPT = Reply(554, BAD_SEQUENCE, "No valid recipients")
NEED_TLS = Reply(530, "5.7.0", "Say STARTTLS first")
NO_RELAY = Reply(550, "5.7.1", "Relaying denied: authenticate first")
LOGIN_GONE = Reply(535, "5.7.8", "This login holds no more; connect again")
NETWORK_GONE = Reply(550, "5.7.1", "This network may relay no more")
RIGHTS_CHANGED = Reply(421, "4.7.0", "Other rights hold for you now; connect again")
TOO_MANY_RECIPIENTS = Reply(452, "4.5.3", "Too many recipients; send the rest in another transaction")
NO_PARAMETERS_HELO = Reply(555, "5.5.4", "Parameters need EHLO")
REQUIRETLS_IN_CLEAR = Reply(555, "5.5.4", "REQUIRETLS needs TLS; say STARTTLS first (RFC 8689 2)")
LINE_TOO_LONG = Reply(500, "5.5.2", f"Command line is longer than {COMMAND_BYTES_MAX} octets")
NOT_UTF8 = Reply(500, "5.5.2", "Command line contains invalid characters")
UNKNOWN = Reply(500, "5.5.1", "Command not recognised")
TOO_MANY_COMMANDS = Reply(421, "4.7.0", "Too many commands on one connection; connect again")
TOO_MANY_ERRORS = Reply(421, "4.7.0", "Too many errors")
TOO_MANY_CONNECTIONS = Reply(421, "4.7.0", "Too many connections, try again later")
STOPPING = Reply(421, "4.3.2", "The server is stopping, try again in a moment")
SILENT = Reply(421, "4.4.2", "Idle for too long")
TOO_SLOW = Reply(421, "4.4.2", "Message arrives too slowly; try again over a faster connection")
NO_LOGIN = Reply(421, "4.7.0", "No authentication in time")
ENDLESS_LINE = Reply(421, "4.7.0", "Command line is endless")
ENDLESS = Reply(421, "4.3.4", "Message exceeds by far the limit announced with SIZE")
OWN_FAULT = Reply(451, "4.3.0", "Local error, try again later")
LOGINS_BUSY = Reply(454, "4.7.0", "Too many logins are being checked, try again in a minute")
LOGIN_CANCELLED = Reply(501, "5.7.0", "Authentication cancelled")
LOGIN_TOO_LONG = Reply(500, "5.5.6", "Authentication line is too long")
NOT_BASE64 = Reply(501, "5.5.2", "That is not base64")
NOT_PLAIN = Reply(501, "5.5.2", "PLAIN takes an authorization identity, a user name and a password, NUL in between")
BAD_LOGIN = Reply(535, "5.7.8", "User name or password is wrong")


def reply_bytes(reply: Reply) -> bytes:
    """One line for the wire, whatever the text came from."""
    text = str(reply)
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else " " for letter in text)
    return text.encode("ascii", "replace") + b"\r\n"
