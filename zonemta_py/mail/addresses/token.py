"""Tags that prove that we made something, and when: in return paths and unsubscribe links.

HMAC-SHA256, cut short and written in base32, since mail servers may change the case of a local part on its way. Eight
characters are 40 bits: to guess one takes half a trillion tries, each a whole mail transaction.
"""

from __future__ import annotations

import base64
import hmac

Secrets = str | tuple[str, ...]
"""One, or several of which any may have made a tag: that in force, and those before it."""
TAG_CHARACTERS = 8
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_STAMPS = 1024


def tag(secret: str, purpose: str, *parts: str, characters: int = TAG_CHARACTERS) -> str:
    """Lower-case base32. purpose keeps tags of one use from being accepted in another; `parts` are compared without
    case."""
    message = "\0".join((purpose, *parts)).lower().encode("utf-8", "surrogateescape")
    digest = hmac.digest(secret.encode(), message, "sha256")
    return base64.b32encode(digest)[:characters].decode().lower()


def genuine(given: str, secrets: Secrets, purpose: str, *parts: str, characters: int = TAG_CHARACTERS) -> bool:
    """Whether `given` is that tag, compared in constant time."""
    octets = given.lower().encode("utf-8", "surrogateescape")
    return any(
        hmac.compare_digest(octets, tag(secret, purpose, *parts, characters=characters).encode())
        for secret in ((secrets,) if isinstance(secrets, str) else secrets)
    )


def stamp(day: int) -> str:
    """A day (since 1970) in two characters; the same comes again after 1,024 days."""
    day %= _STAMPS
    return _ALPHABET[day // 32] + _ALPHABET[day % 32]


def age(text: str, today: int) -> int:
    """Days since the stamp, 0…1023; one made tomorrow (clocks differ) is of today. Raises ValueError."""
    if len(text) != 2:
        raise ValueError("a stamp has two characters")
    day = 32 * _ALPHABET.index(text[0].lower()) + _ALPHABET.index(text[1].lower())
    days = (today - day) % _STAMPS
    return 0 if days == _STAMPS - 1 else days


def packed(number: int, characters: int) -> str:
    """A number in base32 digits. Raises ValueError if it needs more of them."""
    digits = [_ALPHABET[number >> 5 * place & 31] for place in reversed(range(characters))]
    if number < 0 or number >> 5 * characters:
        raise ValueError(f"{number} needs more than {characters} digits")
    return "".join(digits)


def unpacked(text: str) -> int:
    """The inverse. Raises ValueError."""
    number = 0
    for character in text.lower():
        number = number << 5 | _ALPHABET.index(character)
    return number
