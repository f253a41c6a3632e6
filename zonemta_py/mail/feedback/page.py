"""The lines of a text that tells of failures: which name a recipient, which quote a reply, which tell nothing."""

from __future__ import annotations

import re

from zonemta_py.mail.feedback.addresses import addresses
from zonemta_py.mail.feedback.diagnostic import has_code
from zonemta_py.mail.feedback.vocabulary import BOILERPLATE, HELPERS, HELPING, NAMING
from zonemta_py.mail.vocabulary.matcher import says

LINES_MAX = 400
LINE_CHARACTERS_MAX = 1_000
PLACES_MAX = 400
_SAID_CHARACTERS_MAX = 2_000
_PARAGRAPH_LINES_MAX = 12
_HEADING_CHARACTERS_MAX = 500

_TIME = r"(?:\[?[\d:.,/T -]{4,30}\]?\s{1,4})?"
_SPEAKER = r"(?:<<<|>>>|<-|->|[CS]:|=>)"
DIALOGUE = re.compile(
    rf"^[\s>]{{0,9}}(?:<<<|>>>|[245]\d\d[- ]|while talking|\.\.\. while|{_TIME}{_SPEAKER})", re.IGNORECASE
)
"""A line of a conversation between servers."""
_BEGIN = re.compile(
    r"^(?:[\s>*•·◦–—|+-]{0,60}(?:\(?(?:\d{1,3}|[a-z]|[ivx]{1,4})(?:[.)]|\s{0,3}\|)\s{1,8})?(?:<<<|>>>)?\s{0,20}"
    r"(?:[245]\d\d[- ](?:[245]\.\d{1,2}\.\d{1,3} )?)?)"
    r"[\"'<\[(«“]{0,3}(?:mailto:|smtp:|rfc822; ?)?",
    re.IGNORECASE,
)
"""What may stand before an address that begins a line: bullets, numbers, quotes, a reply code."""
_PERSON = re.compile(r"^[\s>*•|+-]{0,20}[\w\"'’.,-]{2,30}(?: [\w\"'’.,()-]{1,30}){1,3} ?<$")
"""What may stand before an address at the beginning of a line, too: a person's name."""
_FIELD = re.compile(
    r"^\W{0,8}(?:from|sender|reply-to|return-path|message-id|x-[\w-]{1,40}|to|cc|subject|von|an|de|para)\s?:",
    re.IGNORECASE,
)
_OF_AUTHOR = re.compile(
    r"^\W{0,8}(?:from|sender|reply-to|return-path|message-id|absender|von|de|da|fra|från|od|от|发件人|寄件者|差出人|보낸"
    r" ?사람)\s{0,9}[:：]",
    re.IGNORECASE,
)
_LED = re.compile(
    r"^(?=[^:@]{11,160}:)(?![^:]{0,80}(?:\bid\b|identif|messag|referen|\bfrom\b|sender|absender))"
    r"[^:@]{8,160}(?<=[^\W\d_]{3}):\s{0,3}[<(\"']?$",
    re.IGNORECASE,
)
"""What may stand before an address at the end of its line: a reason and a colon."""
_LEADING = 6
"""Characters before an address among which such a colon stands."""
_FEW_WORDS = 2
_NEAR = 100
"""Characters before an address that may say whose it is."""
_NEXT = re.compile(r"[>\"')]?\s*[,;]\s*[<\"'(]?")
"""Between two addresses of a list."""
_SALUTATION = re.compile(
    r"^\W{0,4}[^\W\d]{1,20}(?:[ .'’/-]{1,2}[^\W\d]{1,20}){0,5}[,!،，！]\s*$"
    r"|^\W{0,4}(?:estimad|prezad|apreciad|distinguid|querid|liebe|dear)[^:@\n]{0,60}:\s*$",
    re.IGNORECASE,
)
"""How a letter begins: whom it greets is not whom it is about."""
_SENDERS = re.compile(
    r"(?:mail from|original sender|sender address|envelope-from|your message from|from address)\W.{0,40}$",
    re.IGNORECASE,
)
_MESSAGE = re.compile(r"(?:your (?:message|mail|e-?mail)|\b(?:from|sender|von|by))\s{0,4}:?\s{0,4}$", re.IGNORECASE)
"""A line behind which the sender, or the message's id, stands."""

_NOBODY = re.compile(
    r"mailer-daemon@|maildaemon@|majordomo@|listserv@|sympa@|owner-|[^@]{1,64}-(?:owner|request|subscribe|unsubscribe|help)@",
    re.IGNORECASE,
)
"""They report, or run a list, and get no mail."""

_INSTEAD = re.compile(
    r"(?:(?:new|neue|nouvelle|nueva|novo|nuovo|nieuwe|nowy|новый|новая|yeni|noua|új|nov[áaý]|ny|uusi|jetzige|current)"
    r" (?:e-?mail[- ]?|e-?posta )?"
    r"(?:address|anschrift|adresse|adress|dirección|endereço|indirizzo|adresa|adres|adresi|адрес|почта|cím|osoite)"
    r"|alamat baru|địa chỉ mới|新(?:的)?(?:邮箱|邮件)?地址|新しいアドレス|새 ?주소|العنوان الجديد|כתובת חדשה"
    r"|(?:har nå adressen|har nu adressen|uusi osoite on|ny e?-?post(?:adresse|adress)? er|je nyní na|ist jetzt unter"
    r"|est maintenant|ahora es|agora é|ora è|jest teraz|теперь|artık|elsewhere|moved to|reached at|write to|contact at"
    r"|forwarding address|please use|please try|has moved to|instead)(?: now| at)?)"
    r"\s{0,3}:?(?: (?:is|ist|est|es|é|lautet|now))?\s{0,3}[<(\"']?$",
    re.IGNORECASE,
)
"""Before an address: it is where the recipient has gone."""

Place = tuple[int, str, int]
"""Line, address, and how likely it is a failed recipient: 2 it begins the line, 1 it is named as one, 0 it is there,
-1 it is in a header field, -2 in one of who wrote."""


def is_instead(before: str) -> bool:
    """Whether what stands before an address says that it is where the recipient has gone."""
    return _INSTEAD.search(before[-_NEAR:]) is not None


class TextPage:
    """A text by lines, of which each is looked at once."""

    def __init__(self, text: str) -> None:
        self.lines = [line[:LINE_CHARACTERS_MAX] for line in text.split("\n", LINES_MAX)[:LINES_MAX]]
        self._coded: dict[int, bool] = {}
        self._useful: dict[int, bool] = {}
        self._first = next((number for number, line in enumerate(self.lines) if line.strip()), 0)
        self._fields: dict[int, bool] = {}
        self._alone: dict[int, bool] = {}
        self._headings: dict[int, str] = {}

    def coded(self, number: int) -> bool:
        """Whether a reply is quoted in the line."""
        if number not in self._coded:
            self._coded[number] = has_code(self.lines[number])
        return self._coded[number]

    def places(self, sender: frozenset[str]) -> list[Place]:
        """Addresses, in their order, but for those of the sender (lower-case) and of who helps."""
        found = list[Place]()
        for number, line in enumerate(self.lines):
            if "@" in line and len(found) < PLACES_MAX:
                found += self._places(number, line, sender)
        return found

    def through_code(self, start: int, end: int) -> str:
        """The lines that tell something; if a reply is among them, only to the end of its paragraph."""
        taken, coded, blank, length = list[str](), False, False, 0
        for number in range(start, end):
            line = self.lines[number]
            if length > _SAID_CHARACTERS_MAX or (coded and blank and line.strip() and not DIALOGUE.match(line)):
                break
            blank = not line.strip()
            if not blank and self._tells(number):
                taken.append(line)
                length += len(line)
                coded = coded or self.coded(number)
        return "\n".join(taken)[:_SAID_CHARACTERS_MAX]

    def beside(self, number: int, address: str) -> str:
        """Of a line that names several, what is said of one of them: up to the next; or what stands before the only
        one, at its end."""
        line = self.lines[number]
        before, _, after = line.partition(address)
        others = [one for one in addresses(line) if one.lower() != address.lower()]
        if not others:
            return "" if any(map(str.isalpha, after)) else before.strip(" <:-\t")
        following = [after.partition(one)[0] for one in others if one in after]
        return min(following, key=len, default=after).strip(" ,;<>")

    def heading(self, start: int) -> str:
        """What stands over the list that a line is in: "They are not known:", blank, address, address."""
        number = self._over(start)
        if number not in self._headings:
            self._headings[number] = self._paragraph_over(number)[:_HEADING_CHARACTERS_MAX]
        return self._headings[number]

    def _over(self, start: int) -> int:
        """The last line before a list, -1 if there is none."""
        number = start - 1
        while number >= 0 and (not self.lines[number].strip() or self._only_address(number)):
            number -= 1
        return number

    def _paragraph_over(self, number: int) -> str:
        taken = list[str]()
        while number >= 0 and self.lines[number].strip() and len(taken) < _PARAGRAPH_LINES_MAX:
            if addresses(self.lines[number]):
                break
            if self._tells(number):
                taken.insert(0, self.lines[number])
            number -= 1
        return "\n".join(taken)

    def _only_address(self, number: int) -> bool:
        if number not in self._alone:
            line = self.lines[number]
            begin = _BEGIN.match(line)
            rest = line[begin.end() :] if begin else line
            left = (rest.replace(one, "").strip(" <>()[]|;,.:\"'") for one in addresses(rest)[:1])
            self._alone[number] = not all(left)
        return self._alone[number]

    def led(self, start: int, end: int) -> int:
        """Where the paragraph begins that leads over to the address in line `end`; `end` if none does, as where a
        blank line stands between or it begins with what is before."""
        number = end
        while number - 1 > start and self.lines[number - 1].strip():
            number -= 1
        return number if number - 1 > start and number < end else end

    def paragraph(self, start: int) -> str:
        """A line of a conversation, and what continues it."""
        taken = [self.lines[start]]
        for line in self.lines[start + 1 : start + _PARAGRAPH_LINES_MAX]:
            if not line.strip() or DIALOGUE.match(line) or ((begin := _BEGIN.match(line)) and self._named(line, begin)):
                break
            taken.append(line)
        return "\n".join(taken)

    def _places(self, number: int, line: str, sender: frozenset[str]) -> list[Place]:
        begin, named_here = _BEGIN.match(line), addresses(line)[:PLACES_MAX]
        rest = line[begin.end() :] if begin else line
        found = list[Place]()
        words = line.lower()
        for address in named_here:
            words = words.replace(address.lower(), "@")
        for address in named_here:
            helping = says(words, HELPERS) or address.lower().startswith(HELPING)
            if address.lower() in sender or _NOBODY.match(address):
                continue
            before = line.partition(address)[0]
            led = before if before.strip(" <>\"'(") else self._before(number)
            if is_instead(led) or _SENDERS.search(before[-_NEAR:]):
                continue
            if rest.startswith(address) and not (self._only_address(number) and self._behind_message(number)):
                found.append((number, address, 2))
            elif not helping:
                leads = ":" in before[-_LEADING:] and _LED.match(before)
                named = bool(_PERSON.match(before) or leads) or says(led.lower(), NAMING)
                between = before.rpartition(found[-1][1])[2] if found and found[-1][2] == 2 else ""
                listed = bool(between) and _NEXT.fullmatch(between) is not None
                likely = 2 if listed else int(named)
                if self._in_field(number):
                    likely = -2 if _OF_AUTHOR.match(line) else -1
                found.append((number, address, likely))
        return found

    def _in_field(self, number: int) -> bool:
        """Whether it is a header field's line, or continues one that lists addresses."""
        if number not in self._fields:
            line, before = self.lines[number], self.lines[number - 1] if number else ""
            continues = before.rstrip().endswith((";", ",")) and line[:1] in (" ", "\t")
            self._fields[number] = self._in_field(number - 1) if continues else self._is_field(line)
        return self._fields[number]

    @staticmethod
    def _is_field(line: str) -> bool:
        """And not "To: ann@example.net -> unknown", which goes on behind the address."""
        if not _FIELD.match(line):
            return False
        named = addresses(line)
        return not named or len(re.findall(r"[^\W\d_]{2,}", line.rpartition(named[-1])[2])) < _FEW_WORDS

    def _behind_message(self, number: int) -> bool:
        before = self._before(number)
        return bool(_MESSAGE.search(before)) and "recipient" not in before.lower() and not _FIELD.match(before)

    def _before(self, number: int) -> str:
        """The line before that has words; "" if there is none."""
        return next((line for line in reversed(self.lines[max(0, number - 3) : number]) if line.strip()), "")

    def _tells(self, number: int) -> bool:
        if number not in self._useful:
            line = self.lines[number]
            words = line.strip(" -=*_#\t>|")
            if number == self._first and _SALUTATION.match(line):
                words = ""
            self._useful[number] = bool(words) and (self.coded(number) or not says(line.lower(), BOILERPLATE))
        return self._useful[number]

    @staticmethod
    def _named(line: str, begin: re.Match[str]) -> bool:
        rest = line[begin.end() :]
        return any(rest.startswith(address) for address in addresses(rest)[:1])
