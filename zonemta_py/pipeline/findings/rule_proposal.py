"""Rules made of clusters of unknown replies (`unknown`), as a file of the form of config/rules.toml, for an operator to
read, name and accept.

The pattern of a rule is what all replies of the cluster have in common: the longest runs of fixed words, in order. Its
class is a guess from the words and the enhanced code, and so is named in a comment. Promise: the whole file loads, each
rule matches its examples, none shadows another, and none may take very long to match (`mail.rules.check`); a
cluster without such a rule is left as a comment. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from zonemta_py.mail.rules.check import problems
from zonemta_py.mail.rules.classes import CLASSES
from zonemta_py.mail.rules.pattern import FLAGS
from zonemta_py.mail.rules.rule import STAGES, reply_of
from zonemta_py.mail.rules.rules import Rules, RulesError
from zonemta_py.pipeline.findings.unknown import VAGUE, common, shape, since

LITERAL_LEAST = 8
"""Characters of fixed text without which a pattern would match anything."""
RUNS_MAX = 3
_GAP = ".{0,120}"
_MARK = re.compile(r"<(?:url|address|ip|host|id|n)>")
_HEADING = """\
# Proposed by `zonemta lake unknown` from replies that no rule matched. Review each rule, correct its name and class,
# and add it to the file that [rules] extra names. `zonemta rules check FILE` runs the examples.
"""
_GUESSES = (
    ("mailbox-full", r"quota|mailbox (?:is )?full|over ?limit|storage|space"),
    ("user-unknown", r"(?:no such|unknown|invalid) (?:user|recipient|mailbox)|does not exist|user not found"),
    ("suspended", r"suspend|disabled|deactivat|locked"),
    ("inactive", r"inactive|dormant|not (?:been )?used"),
    ("greylisting", r"gr[ea]y ?-?list"),
    ("too-many-connections", r"too many (?:concurrent )?(?:connections|sessions)"),
    ("rate", r"rate|throttl|too (?:many|fast)|slow(?:er)? down|limit"),
    ("blocked-ip", r"block ?list|black ?list|dnsbl|rbl|listed|blocked"),
    ("poor-reputation", r"reputation"),
    ("reverse-dns", r"reverse dns|ptr|rdns|helo|ehlo"),
    ("authentication", r"\bspf\b|dkim|dmarc|authenticat"),
    ("spam-content", r"spam|unsolicited|junk|content"),
    ("virus", r"virus|malware|attachment"),
    ("message-too-big", r"too (?:big|large)|size"),
    ("relay-denied", r"relay"),
    ("tls", r"\btls\b|starttls|certificate"),
    ("system-full", r"disk|queue (?:is )?full"),
    ("policy", r"policy|prohibit|not allowed|denied|reject|refus"),
    ("system-error", r"try (?:again )?later|temporar|internal|error|unavailable|busy"),
)  # fmt: skip
_BY_CODE = {
    "1.1": "user-unknown", "1.2": "host-unknown", "1.6": "moved", "2.1": "suspended", "2.2": "mailbox-full",
    "2.3": "message-too-big", "3.1": "system-full", "3.2": "system-error", "3.4": "message-too-big",
    "4.5": "system-error", "5.3": "too-many-recipients", "7.25": "reverse-dns", "7.26": "authentication",
}  # fmt: skip


def rule_file(clusters: Iterable[dict[str, Any]], existing: Rules | None = None) -> str:
    """The file. clusters: rows of unknown.UNKNOWN. existing: rules in force, which may know some of them by now."""
    parts, taken = [_HEADING], {rule.name for rule in existing.rules} if existing else set()
    for row in clusters:
        if existing and all(_known(existing, line, row) for line in row["examples"]):
            continue
        table = _table(row, taken)
        if table and not _problems("\n".join([*parts, table])):
            parts.append(table)
        else:
            parts.append(_about(row) + f"# no rule could be derived from: {_oneline(row['examples'][0])}\n")
    return "\n".join(parts)


def pattern(lines: Sequence[str]) -> str:
    """What the texts of the replies have in common, as a regular expression that matches each of them; "" if that is
    too little. Raises ValueError for a line that is not a reply."""
    texts = [reply_of(line).text for line in lines]
    words = shape(texts[0]).split()
    for text in texts[1:]:
        words = common(words, shape(text).split())
    runs = [run for run in _runs(words, texts) if len(run) >= LITERAL_LEAST]
    longest = sorted(sorted(runs, key=len, reverse=True)[:RUNS_MAX], key=runs.index)
    asked = _GAP.join(_escaped(run) for run in longest)
    return asked if all(re.search(asked, text, FLAGS) for text in texts) else ""


def guess(lines: Sequence[str]) -> str:
    """A class for them: by a specific enhanced code, else by words, else "undefined"."""
    replies = [reply_of(line) for line in lines]
    codes = {reply.enhanced.partition(".")[2] for reply in replies}
    if len(codes) == 1 and (found := _BY_CODE.get(codes.pop(), "")):
        return found
    text = " ".join(reply.text for reply in replies)
    return next((kind for kind, words in _GUESSES if re.search(words, text, FLAGS)), "undefined")


def _runs(words: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Fixed words that stand beside each other in every text."""
    lowered = [re.sub(r"\s+", " ", text.lower(), flags=re.ASCII) for text in texts]
    runs: list[str] = []
    run = ""
    for piece in (piece for word in words for piece in _pieces(word)):
        longer = f"{run} {piece}" if run and piece else piece
        if piece and all(longer in text for text in lowered):
            run = longer
        else:
            runs += [run] if run else []
            run = piece if all(piece in text for text in lowered) else ""
    return [*runs, run] if run else runs


def _pieces(word: str) -> list[str]:
    """The fixed parts of a word, "" where a mark stands: "(<ip>)" is no fixed text at all."""
    return [""] if _MARK.search(word) else [word]


def _escaped(run: str) -> str:
    """Rules ignore case of ASCII letters only, so other letters are asked for in both."""
    return "".join(map(_character, run)).replace(r"\ ", " ").replace(r"\-", "-")


def _character(c: str) -> str:
    both = c.lower() + c.upper()
    return re.escape(c) if c.isascii() else f"[{both}]" if len(both) == 2 and both[0] != both[1] else c


def _table(row: dict[str, Any], taken: set[str]) -> str:
    """The rule; "" if no pattern can be made."""
    lines = [line for line in row["examples"] if _is_reply(line)]
    asked = pattern(lines) if lines else ""
    if lines and not asked:  # too different: the commonest alone
        lines = lines[:1]
        asked = pattern(lines)
    if not asked:
        return ""
    kind = guess(lines)
    codes = sorted({f"{code // 100}xx" for code in row["codes"]})
    table = [
        _about(row) + "[[rules]]",
        f'name = "{_name(asked, row, taken)}"',
        f'class = "{kind}"  # a guess: {CLASSES[kind].meaning}',
        f"pattern = {_literal(asked)}",
        f"code = {json.dumps(codes if len(codes) > 1 else codes[0])}",
        "examples = [",
        *(f"  {_example(line, _stages(row)[0])}," for line in lines),
        "]",
        "",
    ]
    return "\n".join(table)


def _about(row: dict[str, Any]) -> str:
    where = f" at {', '.join(row['providers'])}" if len(row["providers"]) else ""
    stages = ", ".join(row["stages"]) or "?"
    return f"# {row['replies']} replies of {row['shapes']} shapes, {since(row)}{where}, in {stages}\n"


def _name(asked: str, row: dict[str, Any], taken: set[str]) -> str:
    words = re.findall(r"[a-z]{3,}", asked.replace(_GAP, " ").lower())[:5]
    provider = row["providers"][0] if len(row["providers"]) == 1 else "any"
    base = re.sub(r"[^a-z0-9.-]+", "-", "-".join(["new", provider.lower(), *words]))[:56].strip("-.")
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    taken.add(name)
    return name


def _example(line: str, stage: str) -> str:
    return _quoted(line) if stage == "rcpt" else f"{{ reply = {_quoted(line)}, stage = {_quoted(stage)} }}"


def _stages(row: dict[str, Any]) -> list[str]:
    """Those that rules know, "rcpt" if there is none."""
    return [stage for stage in row["stages"] if stage in STAGES] or ["rcpt"]


def _known(rules: Rules, line: str, row: dict[str, Any]) -> bool:
    stage = _stages(row)[0]
    provider = row["providers"][0] if len(row["providers"]) == 1 else ""
    holds = rules.matching(reply_of(line), stage, provider)[:1] if _is_reply(line) else []
    return any(not re.search(VAGUE, rule.name) for rule in holds)


def _is_reply(line: str) -> bool:
    try:
        reply_of(line)
    except ValueError:
        return False
    return True


def _problems(text: str) -> list[str]:
    try:
        return problems(Rules.parse([("proposed", text)]))
    except RulesError as error:
        return [str(error)]


def _literal(asked: str) -> str:
    return _quoted(asked) if "'" in asked or not asked.isprintable() else f"'{asked}'"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _oneline(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
