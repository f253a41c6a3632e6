"""An SMTP reply: code, enhanced status code, text (RFC 5321 4.2, RFC 2034, RFC 3463)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENHANCED = re.compile(r"([245]\.\d{1,3}\.\d{1,3})(?:[ \t]+|$)")


def decoded(line: bytes) -> str:
    """UTF-8 (RFC 6531 3.7.4), or what servers send instead: then a letter for each byte, of which the charset can
    still be found (`rules.repair`)."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        text = line.decode("utf-8", "replace")
        lost = text.count("\ufffd")
        return text if sum(letter > "\x7f" for letter in text) > 2 * lost else line.decode("latin-1")


@dataclass(slots=True, frozen=True)
class Reply:
    """code: 200…599. enhanced: "5.1.1" or "". text: the reply's lines joined by one space, without the codes."""

    code: int
    enhanced: str = ""
    text: str = ""

    @property
    def positive(self) -> bool:
        """2xx or 3xx."""
        return 200 <= self.code < 400

    @property
    def permanent(self) -> bool:
        """5xx. Anything that is neither positive nor 5xx counts as temporary: unknown means temporary."""
        return 500 <= self.code < 600

    def __str__(self) -> str:
        if self.enhanced and self.text:
            return f"{self.code} {self.enhanced} {self.text}"
        return " ".join([part for part in (str(self.code), self.enhanced, self.text) if part])

    @classmethod
    def from_lines(cls, code: int, lines: list[str]) -> Reply:
        """Takes the texts after the code of each line of one reply; the enhanced code is the first line's."""
        enhanced, texts = "", []
        for line in lines:
            found = _ENHANCED.match(line)
            if found and found[1][0] == str(code)[0]:
                enhanced = enhanced or found[1]
                line = line[found.end() :]
            if line.strip():
                texts.append(line.strip())
        return cls(code, enhanced, " ".join(texts))
