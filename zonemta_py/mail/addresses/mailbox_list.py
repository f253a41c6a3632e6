"""The addresses of a list as people, programs and header fields write it: commas, names, comments, groups.

RFC 5322 3.4. Everybody in the list is found, or the list is refused: no text between two commas is passed over.
`mail.address` says whether what was found is an address; names without a domain ("root") are given as they came.
"""

from __future__ import annotations

import re

_PART = re.compile(
    r"""(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<angle><(?:[^<>"]|"(?:[^"\\]|\\.)*")*>)|(?P<literal>\[[^\[\]]*\])"""
    r"""|(?P<mark>[,;:(])|(?P<broken>["<>)\[\]])|(?P<text>[^"<>,;:()\[\]]+)""",
    re.DOTALL,
)
_COMMENT = re.compile(r"\\.|[()]", re.DOTALL)
_SPACES = " \t\r\n"


class NoMailboxList(ValueError):
    """One word or two about what cannot be read."""


def mailboxes(text: str) -> list[str]:
    """The addresses, in their order. Raises NoMailboxList."""
    found: list[str] = []
    one, group = _Mailbox(), False
    at = 0
    while at < len(text):
        part = _PART.match(text, at)
        assert part is not None  # every character is in one of the classes
        at = part.end()
        kind, content = str(part.lastgroup), part[0]
        if kind == "broken":
            raise NoMailboxList(f"{content!r} stands alone")
        if content == "(":
            at = _after_comment(text, at)
            one.add("text", " ")
        elif content == ":" and not group and not one.angle:
            one, group = _Mailbox(), True
        elif content == "," or (content == ";" and group):
            found += one.address()
            one, group = _Mailbox(), group and content == ","
        elif kind == "mark":
            raise NoMailboxList(f"{content!r} separates no addresses; use commas")
        else:
            one.add(kind, content)
    return found + one.address()


class _Mailbox:
    """What stands between two commas. angle: with its brackets, "" if none has come."""

    def __init__(self) -> None:
        self.angle = self._bare = ""

    def add(self, kind: str, content: str) -> None:
        if kind == "angle" and not self.angle:
            if "@" in re.sub(r'"(?:[^"\\]|\\.)*"', "", self._bare):  # an address is no name for another one
                raise NoMailboxList(f"nothing separates {self._bare.strip(_SPACES)!r} and {content!r}")
            self.angle = content
        elif self.angle and content.strip(_SPACES):
            raise NoMailboxList(f"nothing separates {self.angle!r} and {content.strip(_SPACES)!r}")
        else:
            self._bare += content

    def address(self) -> list[str]:
        """[] where there is nothing between the commas."""
        address = (self.angle[1:-1] if self.angle else self._bare).strip(_SPACES)
        if not address and not self.angle:
            return []
        if re.search(r"\s", re.sub(r'"(?:[^"\\]|\\.)*"', "", address)):
            raise NoMailboxList(f"{address!r} has blanks; separate addresses by commas")
        return [address]


def _after_comment(text: str, at: int) -> int:
    """Comments nest. Raises NoMailboxList."""
    depth = 1
    while depth:
        found = _COMMENT.search(text, at)
        if found is None:
            raise NoMailboxList("a comment has no end")
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        at = found.end()
    return at
