"""Keys of the store: the seed's families (002, ZoneMTA's queue) and our own ranges beside them. See FORMAT.md.

    message <id> 000001 …      body, in chunks of 64 KB
    message <id> #             existence: creation time, recipients in all, recipients left
    message <id> *             metadata: envelope, chosen header fields
    delivery-zone <zone> <id> <recipient>            waits for its first attempt
    deferred <zone> <due> <id> <recipient>           waits for its next attempt, by due time
    parked <zone> <destination> <id> <recipient>     may go, but its destination cannot take it now
    held <zone> <id> <recipient>                     waits for an operator
    deleted <zone> <task> <id> <recipient>           deleted by that task, which can still be undone
    bounced <zone> <until> <id> <recipient>          has bounced; kept until then, so that it can be queued again
    in-doubt <id> <recipient>                        its final reply was awaited at a crash
    task <number>                                    what an operator does to many recipients, and how far it is
    size <zone> <domain>                             how many recipients are in each state
    size-flow <tenant>~<campaign>                    the same, of mail that has one of them
    at <id> <family> <zone> <middle> <recipient>     where a deferred or parked recipient of that message is
    tracked                                          the keys above are complete
    campaign <name> 000001 …   template, in chunks of 64 KB
    campaign <name> *          settings, and how it has been ended
    campaign <name> #          tally: what became of its recipients
    campaign <name> ~          how many waited and how many were delivered, over time
    campaign <name> -          there is none of that name any more, but mail of it waits
    request <scope> <name>     an idempotency key: how that request was answered
    request-end <until> <scope> <name>               the same keys by expiry time
    plugin <plugin> <kind> <name>                    what a plugin keeps: a value, or a counter
    plugin-done <token>        what a plugin was answered that changed something
    domain <name>              a sender domain: whose it is, its keys, what DNS said of it
    domain -                   how often they were changed, and how many there are
    suppressed <address>       no mail goes to this address, and why
    suppressed-in <scope> <address>                  no mail of that scope goes to this address, and why
    sent <id>                  what is remembered of messages up to that one after their end
    sent-as <name>             its id, by its Message-ID
    sent-to <id> <hash>        its recipient whom our addresses name by a hash only
    sent-about <id> [<address>]                      its metadata, and a recipient's, for what comes back later
    feedback <seq>             what came back about a message, by its journal record
    feedback-of <id> <name>    the record with that, by message ("-": unknown) and what makes it the same
    evidence <address>         what speaks against writing to that person again
    guard <provider> [<source>]                      how many people got mail there while others were refused
    guard-day <provider>                             about how many it has answered within a day
    lesson <number>                                  what the other queues are to learn, of several
    spooled <id>                                     that message was accepted by one node before the queue had it
    taken <id>                                       that message, or part of its state, was taken over from a queue
    moving to/<queue>                                messages that are being given to a queue while both run
    moving from/<queue>                              the last ones that were taken from it so
    moving away/<zone>                               since when that zone's mail waits for a node that can send it
    state                                            how far the journal has been applied
    log                                              how far this and the journal have what other machines keep

Ids are 16 hexadecimal digits that grow with time (44 bits of milliseconds, 10 of sequence, 10 of the number of the
queue that has given it out), so a slice of time is a range of keys. `due` and `until` are milliseconds since 1970 in 12
hexadecimal digits; a task's number has 16 decimal digits.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

STATE = b"state"
LOG = b"log"
"""Of a queue of a cluster."""
ORDERED = b"ordered"
"""The same: the number of the last order that it has carried out."""
SIZES = b"size "
FLOW_SIZES = b"size-flow "
QUOTAS = b"quota "
INDEX = b"at "
PLACED = (b"bounced ", b"deferred ", b"deleted ", b"parked ")
"""The families of which the index has every key: there, those of a message are not next to one another."""
TRACKED = b"tracked"
IN_DOUBTS = b"in-doubt "
TASKS = b"task "
MESSAGES = b"message "
CAMPAIGNS = b"campaign "
REQUESTS = b"request "
REQUEST_ENDS = b"request-end "
SUPPRESSED = b"suppressed "
SUPPRESSED_IN = b"suppressed-in "
SENT = b"sent "
SENT_TO = b"sent-to "
SENT_ABOUT = b"sent-about "
FEEDBACK = b"feedback "
FEEDBACK_OF = b"feedback-of "
EVIDENCE = b"evidence "
GUARDS = b"guard "
GUARD_DAYS = b"guard-day "
LESSONS = b"lesson "
"""What the other queues are to learn, of several; by number."""
TAKEN = b"taken "
"""What was taken over from another queue, until that has noted it."""
SPOOLED = b"spooled "
"""What a node had accepted before the queue had it, until the node has noted that the queue has it."""
MOVING = b"moving "
"""What goes from queue to queue while both run (`queues/transfers.py`)."""
MOVING_TO, MOVING_FROM, MOVING_AWAY = MOVING + b"to/", MOVING + b"from/", MOVING + b"away/"
PLUGINS, PLUGINS_DONE = b"plugin ", b"plugin-done "
DOMAINS = b"domain "
DOMAINS_STATE = DOMAINS + b"-"
STANDING = b"standing "
STANDING_STATE = STANDING + b"*"


class Place(NamedTuple):
    """A recipient key taken apart. due_ms is 0 but for deferred keys; destination "" but for parked ones; task 0 but
    for deleted ones; until_ms 0 but for bounced ones."""

    family: str
    zone: str
    id: str
    recipient: str
    due_ms: int = 0
    destination: str = ""
    task: int = 0
    until_ms: int = 0

    @property
    def middle(self) -> int | str | None:
        """What its key has between zone and id."""
        return self.due_ms or self.destination or self.task or self.until_ms or None


def chunk(message_id: str, number: int) -> bytes:
    return b"message %s %06d" % (message_id.encode(), number)


def existence(message_id: str) -> bytes:
    return b"message %s #" % message_id.encode()


def metadata(message_id: str) -> bytes:
    return b"message %s *" % message_id.encode()


def domain(name: str) -> bytes:
    """Of a sender domain."""
    return DOMAINS + name.encode()


def of_message(message_id: str, chunks: int) -> list[bytes]:
    """All keys of a message: so many chunks, existence, metadata."""
    prefix = b"message %s " % message_id.encode()
    return [*map((prefix + b"%06d").__mod__, range(1, chunks + 1)), prefix + b"#", prefix + b"*"]


FRESH = b"delivery-zone "
"""What keys of recipients begin with that may go at once."""


def fresh_of(zone: str, message_id: str) -> bytes:
    """What such keys of one message's recipients begin with; the address follows."""
    return f"delivery-zone {zone} {message_id} ".encode()


def fresh(zone: str, message_id: str, recipient: str) -> bytes:
    return f"delivery-zone {zone} {message_id} {recipient}".encode()


def deferred(zone: str, due_ms: int, message_id: str, recipient: str) -> bytes:
    return f"deferred {zone} {due_ms:012x} {message_id} {recipient}".encode()


def parked(zone: str, destination: str, message_id: str, recipient: str) -> bytes:
    return f"parked {zone} {destination} {message_id} {recipient}".encode()


def held(zone: str, message_id: str, recipient: str) -> bytes:
    return f"held {zone} {message_id} {recipient}".encode()


def deleted(zone: str, task: int, message_id: str, recipient: str) -> bytes:
    return f"deleted {zone} {task:016d} {message_id} {recipient}".encode()


def bounced(zone: str, until_ms: int, message_id: str, recipient: str) -> bytes:
    return f"bounced {zone} {until_ms:012x} {message_id} {recipient}".encode()


def task(number: int) -> bytes:
    return TASKS + b"%016d" % number


def in_doubt(message_id: str, recipient: str) -> bytes:
    return f"in-doubt {message_id} {recipient}".encode()


def size(zone: str, domain: str) -> bytes:
    return f"size {zone} {domain}".encode()


def flow_size(pair: str) -> bytes:
    return FLOW_SIZES + pair.encode()


def quota(account: str, what: str, ms: int) -> bytes:
    return f"quota {account} {what} {ms}".encode()


def plugin(name: str, kind: str, key: str) -> bytes:
    """name: the plugin's; its spaces are quoted. key: may have some."""
    return f"plugin {quote(name, safe='')} {kind} {key}".encode()


def plugin_of(key: bytes) -> tuple[str, str, str]:
    """The plugin, the kind, and the name there."""
    _, name, kind, rest = key.decode().split(" ", 3)
    return unquote(name), kind, rest


def plugin_done(token: str) -> bytes:
    return f"plugin-done {token}".encode()


def template(campaign: str, number: int) -> bytes:
    return b"campaign %s %06d" % (campaign.encode(), number)


def campaign(name: str) -> bytes:
    return b"campaign %s *" % name.encode()


def tally(campaign: str) -> bytes:
    return b"campaign %s #" % campaign.encode()


def course(campaign: str) -> bytes:
    return b"campaign %s ~" % campaign.encode()


def left(campaign: str) -> bytes:
    return b"campaign %s -" % campaign.encode()


def request(scope: str, name: str) -> bytes:
    return f"request {scope} {name}".encode()


def request_end(until_ms: int, request: bytes) -> bytes:
    return b"request-end %012x %s" % (until_ms, request.removeprefix(REQUESTS))


def suppressed_range(scope: str) -> bytes:
    """Of a scope; of all scopes that begin so, if that ends with a slash."""
    if scope == "all":
        return SUPPRESSED
    return f"suppressed-in {scope}".encode() if scope[-1] == "/" else f"suppressed-in {scope} ".encode()


def suppressed(person: str, scope: str = "all") -> bytes:
    return suppressed_range(scope) + person.encode()


def suppressed_from(begins: str, scope: str) -> tuple[bytes, bytes]:
    """From which key, and up to which, the entries of a scope are that begin so."""
    first = suppressed(begins, scope)
    return first, first[:-1] + bytes((first[-1] + 1,))


def suppressed_place(key: bytes) -> tuple[str, str]:
    """Address and scope. Raises ValueError."""
    if key.startswith(SUPPRESSED):
        return key.removeprefix(SUPPRESSED).decode(), "all"
    _, scope, address = key.decode().split(" ", 2)
    return address, scope


def sent(message_id: str) -> bytes:
    return SENT + message_id.encode()


def sent_as(name: bytes) -> bytes:
    """name: of a Message-ID (`queue.core.sent`)."""
    return b"sent-as " + name.hex().encode()


def feedback(seq: int) -> bytes:
    return FEEDBACK + b"%016d" % seq


def feedback_of(message_id: str, name: str) -> bytes:
    """name: hexadecimal digits (`queue.feedback.names`)."""
    return f"feedback-of {message_id or '-'} {name}".encode()


def sent_to(message_id: str, mark: str) -> bytes:
    """mark: of its recipient (`mail.addresses.verp.mark_of`)."""
    return SENT_TO + f"{message_id} {mark}".encode()


def sent_about(message_id: str, person: str = "") -> bytes:
    """person: a recipient (`mail.addresses.person`), "": the message."""
    return SENT_ABOUT + f"{message_id} {person}".encode("utf-8", "surrogateescape")


def evidence(person: str) -> bytes:
    return EVIDENCE + person.encode()


def evidence_of(key: bytes) -> str:
    """The person's address. Raises ValueError."""
    return key.removeprefix(EVIDENCE).decode()


def guard(name: str) -> bytes:
    return GUARDS + name.encode()


def guard_day(place: str) -> bytes:
    return GUARD_DAYS + place.encode()


def guard_day_of(key: bytes) -> str:
    """The place that such a key is of."""
    return key.removeprefix(GUARD_DAYS).decode()


def fresh_range(zone: str) -> bytes:
    return f"delivery-zone {zone} ".encode()


def deferred_range(zone: str) -> bytes:
    return f"deferred {zone} ".encode()


def parked_range(zone: str, destination: str = "") -> bytes:
    return f"parked {zone} {destination} ".encode() if destination else f"parked {zone} ".encode()


def held_range(zone: str) -> bytes:
    return f"held {zone} ".encode()


def deleted_range(zone: str, task: int) -> bytes:
    return f"deleted {zone} {task:016d} ".encode()


def bounced_range(zone: str) -> bytes:
    return f"bounced {zone} ".encode()


def message_range(message_id: str) -> bytes:
    return b"message %s " % message_id.encode()


def end(prefix: bytes) -> bytes:
    """The first key after every key that starts with `prefix` (which ends in a space or a slash)."""
    return prefix[:-1] + (b"0" if prefix[-1:] == b"/" else b"!")


def place(key: bytes) -> Place:
    """Takes a recipient key apart. Raises ValueError for any other key."""
    family, _, rest = key.decode().partition(" ")
    if family in ("delivery-zone", "held"):
        zone, message_id, recipient = rest.split(" ", 2)
        return Place(family, zone, message_id, recipient)
    zone, middle, message_id, recipient = rest.split(" ", 3)
    if family == "deferred":
        return Place(family, zone, message_id, recipient, due_ms=int(middle, 16))
    if family == "parked":
        return Place(family, zone, message_id, recipient, destination=middle)
    if family == "deleted":
        return Place(family, zone, message_id, recipient, task=int(middle))
    if family == "bounced":
        return Place(family, zone, message_id, recipient, until_ms=int(middle, 16))
    raise ValueError(f"not a recipient key: {key!r}")


def index_range(message_id: str) -> bytes:
    return b"at %s " % message_id.encode()


def index_of(key: bytes) -> bytes:
    """The key of the index that says where a deferred or parked recipient is."""
    family, zone, middle, message_id, recipient = key.split(b" ", 4)
    return b" ".join((b"at", message_id, family, zone, middle, recipient))


def indexed(index: bytes) -> bytes:
    """The recipient's key, of a key of the index."""
    _, message_id, family, zone, middle, recipient = index.split(b" ", 5)
    return b" ".join((family, zone, middle, message_id, recipient))


_QUEUES = 1 << 10


def queue_of(message_id: str) -> int:
    """The number of the queue that has given it out, where it may not be any more. 0 if it is no id."""
    try:
        return int(message_id, 16) % _QUEUES
    except ValueError:
        return 0


class Ids:
    """Gives out ids that never repeat and always grow, even when the clock is set back."""

    def __init__(self, floor: str = "0" * 16, queue: int = 0) -> None:
        self._queue = queue
        self._last = int(floor, 16)

    def next(self, now_ms: int) -> str:
        self._last = max((self._last & -_QUEUES) + _QUEUES, now_ms << 20) + self._queue
        return f"{self._last:016x}"

    def reach(self, message_id: str) -> None:
        """That one is here: those to come are above it."""
        self._last = max(self._last, (int(message_id, 16) & -_QUEUES) + self._queue)

    @property
    def last(self) -> str:
        return f"{self._last:016x}"

    def following(self) -> str:
        """No id to come is below this one."""
        return f"{self._last + 1:016x}"


def lesson(number: int) -> bytes:
    return LESSONS + b"%016d" % number


def taken(what: str) -> bytes:
    """what: a message's id, or "- " and words that name a part of a queue's state."""
    return TAKEN + what.encode()


def spooled(message_id: str) -> bytes:
    return SPOOLED + message_id.encode()


def moving_to(queue: int) -> bytes:
    return MOVING_TO + b"%d" % queue


def moving_from(queue: int) -> bytes:
    return MOVING_FROM + b"%d" % queue


def moving_away(zone: str) -> bytes:
    return MOVING_AWAY + zone.encode()


def standing(seq: int) -> bytes:
    """The second copy of the STANDING record of that number."""
    return STANDING + b"%016d" % seq


def id_at(ms: int) -> str:
    """The smallest id of that millisecond: where a slice of time starts."""
    return f"{max(0, ms) << 20:016x}"


def id_ms(message_id: str) -> int:
    """When the id was given out, ms since 1970."""
    return int(message_id, 16) >> 20
