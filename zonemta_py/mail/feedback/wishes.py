"""Whether somebody asks to be taken off a list: plainly, or in prose that an operator has to read.

Theory: a plain wish is short, stands first, is addressed to whoever reads it, and is made of nothing else: each of its
words either asks ("remove"), says whom ("me") or from what ("list"), or changes nothing ("please"). A swimming course,
a meter or clause 7 is a word too many. So the words of a clause are given their parts (vocabulary/wishes.toml); one
that has a core and nothing left over is *plain*, one with a core and more is *prose*: it may mean something else.
Denied, asked about, or where somebody says to like it, it is no wish that a program may take. Pure.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from zonemta_py.mail.feedback.vocabulary import UNSUBSCRIBES
from zonemta_py.mail.vocabulary.matcher import Words, lists, says
from zonemta_py.mail.vocabulary.spelling import folded as latin

PLAIN, PROSE = "plain", "prose"
_IN_WORDS = tuple(one for one in UNSUBSCRIBES if " " in one)
_PARAGRAPHS_MAX = 3
_CHARACTERS_MAX = 600
_GREETING_WORDS_MAX, _NAME_WORDS_MAX = 6, 3
_MORE_WORDS = 3
"""So many that nobody knows are about something else; fewer are a name."""
_TELLING_WORDS = 2
"""So many among others are no name: "my appointment on Monday"."""
_TITLE_WORDS = 1
"""In a title, more are about something else."""
_WORDS_MAX = 24
"""Of a clause that is a plain wish."""
_SENTENCE = re.compile(r"(?<=[.!?…。！？؟])\s*|\n+|\s[-–—]\s")
_CLAUSE = re.compile(r"[,;:،、，；：]\s*")
_ADDRESS = re.compile(r"[^\s<>,;()]{1,64}@[^\s<>,;()]{1,255}")
_WORD = re.compile(r"[^\W_]+(?:[-'][^\W\d_]+)*")
_POLITE = re.compile(r"\bpor favor\b")
"""Of which the first word alone asks for a reason."""
_REFLEXIVE = re.compile(r"\bse (?=des)")
""" "Se désabonner": elsewhere it may mean "if"."""
_SEPARATED = re.compile(
    r"\bmeld(?:e|en|et|t|er)?\b([^.!?\n]{0,100}?) (?:ab|af|av)\b|\bbestell(?:e|en|t)\b([^.!?\n]{0,100}?) ab\b"
    r"|\btrag(?:e|en|t)?\b([^.!?\n]{0,100}?) aus\b(?! (?:dem|der|ihre|eure))"
    r"|\bschrij(?:f|ft|ven)\b([^.!?\n]{0,100}?) (?:uit|af)\b"
)
"""Germanic verbs that leave by a word at the end: "melde mich ab"."""
_TO_ME = re.compile(r"(?:[drn]me|[trn]emi|rmi|[rz]moi)$")
"""At a verb's end in Romance languages."""
_DEVICE = re.compile(
    r"\b(?:iphone\w*|ipad\w*|android|outlook|ios|samsung|galaxy|huawei|xiaomi|smartphone|handy|mobil\w*|mail.app|yahoo|gmx"
    r"|proton|web\.de|blackberry|thunderbird)\b",
    re.IGNORECASE,
)
_DEVICE_WORDS_MAX = 9
_SHORT_WORDS = 4
_LIKE_CHARACTERS_MIN = 9
_LIKE = frozenset(("leave", "like"))
"""A word with a typing error: an operator sees whether it is one."""
_GREEK = str.maketrans("άέήίόύώϊϋΐΰς", "αεηιουωιυιυσ")
_QUESTION = ("?", "？", "؟")
_WISH = re.compile(
    r"\b(?:remove|take|delete|strike|drop|cross|unsubscribe)\b(?:\W+\w+)?\W+(?:me|us|this address|these addresses"
    r"|(?:my|our) (?:\w+ )?(?:e-?mails?|name|address(?:es)?|details|office|company|school|library))\b"
    r"|\b(?:stop|cease)\b(?:\W+\w+){0,2}?\W+(?:sending|mailing|e-?mailing|writing|newsletters?|mailings?|e-?mails?)\b"
    r"|\bcancel\b.{0,30}\b(?:subscription|newsletters?|mailings?|e-?mails?)\b"
    r"|\b(?:off|from)\b(?:\W+\w+){0,2}?\W+(?:mailing|e-?mail|distribution|your|the|this)(?: \w+)? lists?\b"
    r"|\b(?:streich|austrag|abmeld|lösch|entfern|kündig|abbestell)\w*.{0,40}\b(?:mich|meine|verteiler|newsletter|liste)\b"
    r"|\b(?:nehmen|tragen|melden) sie mich\b"
    r"|\b(?:retir|supprim|désabonn|désinscri|enlev)\w*.{0,40}\b(?:moi|me|mon|ma|liste)\b"
    r"|\b(?:elimin|bórr|borren|cancel)\w*.{0,40}\b(?:me|mi|lista|suscripción)\b"
    r"|\b(?:remov|retir|exclu|cancel)\w*.{0,40}\b(?:me|meu|minha|lista|inscrição)\b"
    r"|\b(?:rimuov|cancell|togli|disiscri)\w*.{0,40}\b(?:mi|mio|mia|lista)\b"
    r"|\b(?:verwijder|schrap|haal|meld|schrijf)\w*.{0,40}\b(?:mij|me|mijn|lijst|nieuwsbrief)\b"
    r"|\b(?:wypis|usu|skreśl|wykreśl)\w*.{0,40}\b(?:mnie|mój|listy)\b"
    r"|(?:удалите|уберите|отпишите|исключите|вычеркните).{0,40}(?:меня|мой|рассыл|списк)"
    r"|(?:видаліть|приберіть|відпишіть).{0,40}(?:мене|мій|розсил|списк)"
    r"|(?:vyřaď|odstraň|odhlas|smaž)\w*.{0,40}(?:mě|mne|seznam)|\bta bort.{0,40}\b(?:mig|min)\b"
    r"|\b(?:fjern|slett|slet|meld)\w*.{0,40}\b(?:mig|meg|min|listen)\b|\bpoista\w*.{0,40}\bminu"
    r"|(?:解除|停止|削除)(?:して|を希望|をお願い|願います)|(?:해지|제외|삭제)해 ?주"
    r"|(?:退订|退訂|取消订阅|取消訂閱|移除|删除).{0,10}(?:我|邮|郵|名单|名單)"
)
"""In the first sentences of a letter: take me off the list."""

_NO_WISH = re.compile(
    r"\b(?:don['’]?t|do not|never|not to|bitte nicht|ne (?:me )?|no me|não me|nicht) ?(?:\w+ )?(?:remove|unsubscribe"
    r"|take|delete|strike|drop|stop|cancel|abmeld|austrag|streich|lösch|désabonn|désinscri|retir|supprim|borr|elimin"
    r"|remov)"
    r"|\b(?:nehm|nimm)\w*\b[^.!?\n]{0,80} (?:auf|rein|hinein|dazu)\b\s*(?:[.!?]|$)"
    r"|\bi(?:'ve| have)? (?:already |just )?(?:deleted|removed|cancell?ed|erased|dropped|stopped|left|took)\b"
    r"|\bwaiting list\b|\bnehmen sie die neue\b"
    r"|\b(?:new|neue|nouvelle|nueva|nova|nuova|nieuwe) (?:one|address|e-?mail|adresse|dirección|morada|indirizzo|adres)"
)
"""Somebody wants to stay, or to be written to at another address."""


class _Clause(NamedTuple):
    parts: list[frozenset[str]]
    """Of each word; empty: of one that nobody knows."""
    asked: bool

    def has(self, *names: str) -> bool:
        return any(name in part for part in self.parts for name in names)

    @property
    def left_over(self) -> int:
        return sum(not part or "like" in part for part in self.parts)


class _Wish(NamedTuple):
    """core: something of it is a wish. plain: it is nothing else. sure: in a word that means nothing else. of_list: a
    list, or mail, is named."""

    core: bool
    plain: bool
    sure: bool
    of_list: bool


_NOTHING = _Wish(False, False, False, False)


def wish_in(paragraphs: list[str], subject: str = "") -> str:
    """PLAIN, PROSE or "". paragraphs: the writer's own, the first ones count. subject: "" one that repeats ours."""
    body = _without_greeting(_without_device(paragraphs))[:_PARAGRAPHS_MAX]
    texts = [one[:_CHARACTERS_MAX] for one in body]
    of_subject = _of(subject, alone=True)
    first = _of(texts[0], alone=len(body) == 1) if texts else _NOTHING
    titled = _left_over(subject) > _TITLE_WORDS
    for wish, others in ((of_subject, texts), (first, [subject, *texts[1:]])):
        alone = wish.sure or not (_says_more(wish, others) or (titled and wish is first))
        if wish.plain and alone and not declined([subject, *texts]):
            return PLAIN
    said = " ".join(texts).lower()
    core = of_subject.core or first.core or any(_of(one, alone=False).core for one in texts[1:])
    found = core or ((_WISH.search(said) or says(said, _IN_WORDS)) and not declined([subject, *texts]))
    return PROSE if found else ""


def names_it(subject: str) -> bool:
    """Whether a subject that may repeat ours is nothing but the word for it."""
    clauses = _clauses(subject)
    return any(one.has("leave") for one in clauses) and not any(
        one.left_over or one.asked or one.has("stay", "asking", "not") for one in clauses
    )


def _says_more(wish: _Wish, others: list[str]) -> bool:
    """Whether the rest is about something else, from which one may sign off, too. A list that is named is ours."""
    clauses = [clause for one in others for clause in _clauses(one)]
    asks = any(one.asked or one.has("asking") for one in clauses)
    tells = any(one.left_over >= _TELLING_WORDS and len(one.parts) > one.left_over for one in clauses)
    return not wish.of_list and (asks or tells or sum(one.left_over for one in clauses) >= _MORE_WORDS)


def _left_over(text: str) -> int:
    return sum(clause.left_over for clause in _clauses(text))


def declined(texts: list[str]) -> bool:
    """Whether somebody wants to stay, or to be written to elsewhere."""
    if _NO_WISH.search("\n".join(texts).lower()):
        return True
    return any(_refuses(one) or one.has("stay") for text in texts for one in _clauses(text))


def _of(text: str, alone: bool) -> _Wish:
    """alone: it is all that is said, so that a bare word is a wish."""
    best = _NOTHING
    for lines in dict.fromkeys((text, text.replace("\n", " "))):
        clauses = _clauses(lines)
        bare = alone and not any(one.left_over or one.asked for one in clauses)
        before = 0
        for clause in clauses:
            wish = _wish(clause, bare)
            if before and not (wish.sure or clause.has("me", "target")):  # "My son is ill, please sign off"
                wish = wish._replace(plain=False)
            if wish.plain:
                return wish
            before += clause.left_over
            best = wish if wish.core and not best.core else best
    return best


def _wish(clause: _Clause, bare: bool) -> _Wish:
    if not _core(clause, bare):
        return _Wish(_may(clause), False, False, False)
    asked = clause.asked and not (clause.has("leave", "remove") and clause.has("me"))
    vague = not clause.has("leave", "remove", "target", "more")  # "not interested": in an offer, or in all of it
    plain = not (clause.left_over or asked or vague or clause.has("asking")) and len(clause.parts) <= _WORDS_MAX
    return _Wish(True, plain, clause.has("sure"), clause.has("target"))


def _core(clause: _Clause, bare: bool) -> bool:
    if _refuses(clause):
        return False
    if clause.has("leave"):
        return True
    if clause.has("remove") and (clause.has("me", "target") or (bare and not clause.has("carry"))):
        return True
    return clause.has("not") and (clause.has("want") or (clause.has("more") and (bare or clause.has("target"))))


def _may(clause: _Clause) -> bool:
    """ "Stop it.", "Stop writing!", "Send me nothing", "Off with these mails": what is meant has no word; an operator
    knows."""
    if _refuses(clause) or clause.has("stay"):
        return False
    short = len(clause.parts) <= _SHORT_WORDS and not (clause.left_over or clause.asked or clause.has("want", "carry"))
    if clause.has("remove") and (short or clause.has("send")):
        return True
    return (clause.has("off") and clause.has("target")) or (
        clause.has("not") and clause.has("me") and clause.has("send")
    )


def _refuses(clause: _Clause) -> bool:
    """ "Do not remove me": denied, and no "I want no more", which denies too."""
    if not (clause.has("leave", "remove") and clause.has("not")):
        return False
    denied = [part for part in clause.parts if "not" in part]
    does = [part for part in clause.parts if part & {"leave", "remove"}]
    return denied != does and not clause.has("want", "more")


def _folded(text: str) -> str:
    plain = _POLITE.sub("porfavor", latin(text).translate(_GREEK))
    return _SEPARATED.sub(r"abmelden\1\2\3\4", _REFLEXIVE.sub("", plain))


def _clauses(text: str) -> list[_Clause]:
    found = list[_Clause]()
    for sentence in _SENTENCE.split(_folded(text)):
        asked = sentence.rstrip(" !.)").endswith(_QUESTION)
        for clause in _CLAUSE.split(_ADDRESS.sub(" \0 ", sentence)):
            parts = _parts(clause)
            if parts:
                found.append(_Clause(parts, asked))
    return found


def _parts(clause: str) -> list[frozenset[str]]:
    addressed = [frozenset(("me", "target"))] * clause.count("\0")
    return addressed + [part for word in _WORD.findall(clause) for part in _of_word(word)]


def _of_word(word: str) -> list[frozenset[str]]:
    if (found := _words().of(word)) is not None:
        return [_to_me(word, part) for part in found]
    pieces = re.split(r"[-']", word)
    if len(pieces) > 1:
        return [part for piece in pieces for part in _of_word(piece)]
    return [_LIKE if _like(word) else frozenset()]


def _to_me(word: str, part: frozenset[str]) -> frozenset[str]:
    return part | {"me"} if "remove" in part and _TO_ME.search(word) else part


def _like(word: str) -> bool:
    """Whether it is one that leaves, but for a slip."""
    least = _LIKE_CHARACTERS_MIN - 1
    if len(word) < least:
        return False
    beginnings = {word[:length] for length in range(least, len(word))}
    return not (_shortened(word).isdisjoint(_misspelt()) and beginnings.isdisjoint(_misspelt_stems()))


def _shortened(word: str) -> set[str]:
    """Itself, and without one of its letters but the first three: two words that share one differ by a slip."""
    return {word, *(word[:at] + word[at + 1 :] for at in range(3, len(word)))}


@cache
def _misspelt() -> frozenset[str]:
    return frozenset(one for word in _leaving() for one in _shortened(word.removesuffix("*")))


@cache
def _misspelt_stems() -> frozenset[str]:
    return frozenset(one for word in _leaving() if word.endswith("*") for one in _shortened(word.removesuffix("*")))


def _leaving() -> list[str]:
    words = _lists()["leave"] + _lists()["sure"]
    return [word for word in words if len(word.removesuffix("*")) >= _LIKE_CHARACTERS_MIN]


def _without_device(paragraphs: list[str]) -> list[str]:
    """ "Sent from my telephone" stands behind what is said."""
    last = paragraphs[-1] if len(paragraphs) > 1 else ""
    named = "\n" not in last and len(last.split()) <= _DEVICE_WORDS_MAX and _DEVICE.search(last)
    return paragraphs[:-1] if named else paragraphs


def _without_greeting(paragraphs: list[str]) -> list[str]:
    """ "Hello Bob," and such stand before what is said."""
    if not paragraphs:
        return []
    line, _, rest = paragraphs[0].partition("\n")
    words = _WORD.findall(_folded(line))
    addressed = line.rstrip().endswith((",", "，", "、")) and len(words) <= _NAME_WORDS_MAX
    begins = bool(words) and (words[0] in _greetings() or _folded(line).startswith(_joined_greetings()))
    if not (addressed or begins) or len(words) > _GREETING_WORDS_MAX or _of(line, alone=False).core:
        return paragraphs
    return [rest, *paragraphs[1:]] if rest.strip() else paragraphs[1:]


@cache
def _greetings() -> frozenset[str]:
    return frozenset(_lists()["greetings"])


@cache
def _joined_greetings() -> tuple[str, ...]:
    return tuple(one for one in _greetings() if one[0] >= "\u2e80")


@cache
def _words() -> Words:
    """The parts that each word may have in a wish."""
    those = _lists()
    sure = those.pop("sure")
    del those["greetings"]
    return Words([*those.items(), ("sure", sure), ("leave", sure)])


def _lists() -> dict[str, list[str]]:
    return dict(lists("wishes.toml"))
