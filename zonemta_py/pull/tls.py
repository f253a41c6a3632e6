"""TLS for a connection whose client may end its side first, as `ncat --ssl` does at the end of its input.

asyncio's own TLS closes both sides then, and the answer would be lost; so bytes go through a MemoryBIO here. The end of
a client's bytes is a close_notify or the end of TCP, whichever comes first: ncat sends no close_notify.
"""

from __future__ import annotations

import ssl
from contextlib import suppress

_READ_BYTES = 64 * 1024
_PLAIN = frozenset(range(0x20, 0x7F)) | {0x09, 0x0A, 0x0D}


class TlsLayerFailed(Exception):
    """The client does not speak TLS, or not with us. plain: it sent text, so an answer in text will be understood."""

    def __init__(self, reason: str, plain: bool) -> None:
        super().__init__(reason)
        self.plain = plain


class TlsLayer:
    """ended: the client has said that it sends nothing more."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._greeted = self.ended = False
        self._first = b""

    def feed(self, data: bytes) -> bytes:
        """What the client's bytes say. Raises TlsLayerFailed."""
        self._in.write(data)
        self._first = self._first or data[:20]
        found = bytearray()
        try:
            if not self._greeted:
                self._tls.do_handshake()
                self._greeted = True
            while block := self._tls.read(_READ_BYTES):
                found += block
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        except ssl.SSLError as error:
            plain = not self._greeted and _PLAIN.issuperset(self._first)
            raise TlsLayerFailed(error.reason or str(error), plain) from None
        return bytes(found)

    def finish(self) -> None:
        """The end of TCP. Raises TlsLayerFailed if it comes before a handshake was complete."""
        self.ended = True
        if not self._greeted:
            raise TlsLayerFailed("no handshake", _PLAIN.issuperset(self._first))

    def seal(self, data: bytes) -> bytes:
        """The bytes to send for it. Raises TlsLayerFailed."""
        try:
            if data:
                self._tls.write(data)
        except ssl.SSLError as error:
            raise TlsLayerFailed(error.reason or str(error), plain=False) from None
        return self.pending()

    def farewell(self) -> bytes:
        """The bytes that say that nothing more follows."""
        with suppress(ssl.SSLError):  # the client's own farewell is not waited for
            self._tls.unwrap()
        return self.pending()

    def pending(self) -> bytes:
        """What the handshake has to say."""
        return self._out.read()
