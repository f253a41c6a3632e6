"""Rules about replies: reading, judging, checking; and that the shipped ones keep what their examples promise."""

from __future__ import annotations

import re
import string
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mail.shipped_rules import SHIPPED
from zonemta_py.config.section import shipped
from zonemta_py.mail import classify
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules.check import contradictions, overridden, problems
from zonemta_py.mail.rules.classes import CLASSES
from zonemta_py.mail.rules.pattern import FLAGS, needed, risk
from zonemta_py.mail.rules.rule import OPINION, STAGES, Action, reply_of
from zonemta_py.mail.rules.rules import REMEMBERED_MAX, TEXT_MAX, UNDEFINED, Rules, RulesError

EXAMPLES = [example for rule in SHIPPED.rules for example in rule.examples]
PATTERNS = [rule.pattern for rule in SHIPPED.rules]


def rules(*texts: str) -> Rules:
    return Rules.parse((f"file{number}", text) for number, text in enumerate(texts, 1))


def rule(name: str = "r", kind: str = "rate", more: str = "", examples: str = "['450 x']") -> str:
    return f"[[rules]]\nname = '{name}'\nclass = '{kind}'\nexamples = {examples}\n{more}\n"


def test_the_shipped_rules_are_sound() -> None:
    """Every example is claimed by its own rule, no name stands twice, no pattern can run away."""
    assert problems(SHIPPED) == []


def test_no_shipped_example_contradicts_another_rule() -> None:
    """At every stage: none suppresses where its rule says nothing of recipients, and no two rules disagree."""
    assert contradictions(SHIPPED) == []


def test_the_shipped_rules_are_many_and_speak_of_every_class() -> None:
    """At least 320, none without an example; every class is given by one of them."""
    assert len(SHIPPED.rules) >= 320
    assert {rule.kind for rule in SHIPPED.rules} == set(CLASSES)


@settings(max_examples=200, deadline=None)
@given(st.integers(400, 599), st.sampled_from(["", "4.9.9", "5.1.1", "5.99.1"]), st.text(), st.sampled_from(STAGES))
def test_every_reply_gets_a_class(code: int, enhanced: str, text: str, stage: str) -> None:
    """Whatever a server says, a shipped rule answers, and says the same when asked again."""
    classified = SHIPPED.judge(Reply(code, enhanced, text), stage, "")
    assert classified.kind in CLASSES
    assert classified.rule
    assert SHIPPED.judge(Reply(code, enhanced, text), stage, "") is classified


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_quick_way_and_the_plain_way_agree(data: st.DataObject) -> None:
    """`judge` looks for literals first; the rule it finds is the first of all that match, whatever the text."""
    words = st.sampled_from([word for example in EXAMPLES for word in example.reply.text.split()])
    text = " ".join(data.draw(st.lists(words, max_size=12)))
    text = data.draw(st.sampled_from([text, text.upper(), text.lower()]))
    reply = Reply(data.draw(st.sampled_from([421, 450, 550, 552, 554])), "", text)
    stage = data.draw(st.sampled_from(["connect", "mail", "rcpt", "dot"]))
    first = SHIPPED.matching(reply, stage, "gmx")[0]
    assert SHIPPED.judge(reply, stage, "gmx").rule.removesuffix(OPINION) == first.name


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([pattern for pattern in PATTERNS if pattern]), st.data())
def test_needed_text_is_in_every_match(pattern: str, data: st.DataObject) -> None:
    """The promise of `needed`, held against `re` on texts made from the pattern itself."""
    text = data.draw(st.from_regex(re.compile(pattern, FLAGS)))
    assert any(literal in text.lower() for literal in needed(pattern))


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        ("", ("",)),
        ("Quota (?:full|exceeded)", ("quota ",)),
        ("foo|barbar", ("foo", "barbar")),
        ("a+b?longer", ("longer",)),
        (r"(?:OFR|LPN)\w{0,4}416", ("416",)),
        ("x(?!y)z", ("xz",)),
        (r"\d+", ("",)),
        ("é", ("",)),
    ],
)
def test_what_a_pattern_cannot_do_without(pattern: str, literals: tuple[str, ...]) -> None:
    """The longest text that is in every match; of alternatives, one of each."""
    assert needed(pattern) == literals


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b", "(?:a|b+)*c", ".*x", "a.*b.*c.*d", r"(?:\w+\s?)*end", "(?:ab|ac|abx)+d", "(?:a.|ab)*d",
        "(a?){60}a{60}", "(?:a{0,50}){0,50}b", r"\s*\s*x", r"a\w+[\w.]*b", "a[^b]*x[^c]*y[^d]*z",
        r"q(?:\d|[0-9a-f]x)*z", "x(?:|a|)+y",
    ],
)  # fmt: skip
def test_patterns_that_may_run_away(pattern: str) -> None:
    """Quantifiers within quantifiers, around what is ambiguous, side by side; many wildcards, one at the beginning."""
    assert risk(pattern)


@pytest.mark.parametrize(
    "pattern", ["a+b+", "(?:a{0,40}b)+", "a.*b.*c", "(a|b)*", r"(?: \w+){0,12} x", r"(?:ab|cd)+", r"\s*a\s*b\s*"]
)
def test_patterns_that_do_not(pattern: str) -> None:
    """Bounded inner quantifiers and a few wildcards are no risk."""
    assert risk(pattern) == ""


@pytest.mark.parametrize(
    ("more", "holds", "fails"),
    [
        ("code = 550", ("550 5.7.1 x", "rcpt", ""), ("551 5.7.1 x", "rcpt", "")),
        ("code = '4xx'", ("421 x", "rcpt", ""), ("521 x", "rcpt", "")),
        ("code = ['55x', 421]", ("557 x", "rcpt", ""), ("541 x", "rcpt", "")),
        ("enhanced = '5.7'", ("550 5.7.26 x", "rcpt", ""), ("450 4.7.26 x", "rcpt", "")),
        ("enhanced = '5.7.1'", ("550 5.7.1 x", "rcpt", ""), ("550 5.7.10 x", "rcpt", "")),
        ("enhanced = 'x.2.2'", ("452 4.2.2 x", "rcpt", ""), ("452 x", "rcpt", "")),
        ("stage = ['connect', 'banner']", ("554 x", "banner", ""), ("554 x", "rcpt", "")),
        ("provider = 'google'", ("554 x", "rcpt", "google"), ("554 x", "rcpt", "yahoo")),
        ("pattern = 'So[Mm]e WORD'", ("554 some word", "rcpt", ""), ("554 someword", "rcpt", "")),
    ],
)
def test_each_condition(more: str, holds: tuple[str, str, str], fails: tuple[str, str, str]) -> None:
    """A rule holds when all it names agrees with the reply, and only then."""
    book = rules(rule(more=more))
    assert book.judge(reply_of(holds[0]), *holds[1:]).rule == "r"
    assert book.judge(reply_of(fails[0]), *fails[1:]) is UNDEFINED


def test_a_refusal_before_mail_is_judged_by_the_servers_words() -> None:
    """`classify` softens a 5xx of the banner to 451; the rules see the 554 that was said."""
    said = Reply(554, "5.7.1", "No SMTP service, IP address is block listed")
    softened = classify.judge(said, "banner").reply
    assert softened.code == 451
    assert SHIPPED.judge(softened, "banner", "").rule == SHIPPED.judge(said, "banner", "").rule == "gmx-blocked"


@pytest.mark.parametrize(
    ("line", "stage", "agreed"),
    [
        ("550 5.1.1 <ann@example.com>: user unknown", "rcpt", True),
        ("550 5.1.1 <ann@example.com>: user unknown", "report", True),
        ("450 4.1.1 <ann@example.com>: user unknown", "rcpt", False),
        ("550 5.1.1 <ann@example.com>: user unknown", "mail", False),
        ("550 5.2.2 <ann@example.com>: mailbox full", "rcpt", False),
    ],
)
def test_one_reply_is_enough_where_code_text_and_stage_agree(line: str, stage: str, agreed: bool) -> None:
    """`agreed` is what suppression after a single reply asks for."""
    assert SHIPPED.judge(reply_of(line), stage, "").agreed is agreed


def test_a_report_quotes_a_reply_to_rcpt_or_the_message() -> None:
    """So rules for those stages hold for stage "report", and others do not."""
    book = rules(rule("r", more="stage = 'rcpt'") + rule("c", more="stage = 'connect'"))
    assert [r.name for r in book.matching(Reply(450, "", "x"), "report", "")] == ["r"]


def test_qmails_status_behind_the_text_counts() -> None:
    """qmail writes (#5.1.1) where others write 5.1.1."""
    assert rules(rule(more="enhanced = '5.1.1'")).judge(Reply(550, "", "sorry (#5.1.1)"), "rcpt", "").rule == "r"


def test_an_action_is_the_classs_unless_the_rule_says_otherwise() -> None:
    """And of several files the first that speaks of a key of a class has the say."""
    own = "[classes.rate]\nslow = false\n" + rule("mine", more="pattern = 'mine'")
    theirs = rule("theirs", more="delay_s = 5\nrest_s = 10\nabout = 'source'")
    text = "[classes.rate]\nslow = true\ndelay_s = 60\n" + theirs
    book = rules(own, text)
    assert book.judge(Reply(450, "", "mine"), "rcpt", "").action == Action(delay_s=60)
    assert book.judge(Reply(450, "", "x"), "rcpt", "").action == Action(delay_s=5, rest_s=10)
    assert rules(text).rules[0].action.slow is True


def test_the_first_file_is_asked_first() -> None:
    """Rules of one's own come before the shipped ones; that is no problem of theirs, but it is told."""
    book = rules(rule("mine", "policy"), rule("theirs"))
    assert book.judge(Reply(450, "", "x"), "rcpt", "").kind == "policy"
    assert problems(book) == []
    assert [(loser.name, winner.name) for loser, winner in overridden(book)] == [("theirs", "mine")]


def test_addresses_in_a_reply_are_not_its_words() -> None:
    """Mail to spam@ or virus@ is not spam or a virus; and the address makes no difference to what is remembered."""
    book = rules(rule("v", "virus", "pattern = 'virus'", "['550 virus']") + rule("u", "user-unknown", "code = 550"))
    for address in ("virus@example.com", "<virus@example.com>:", "[virus@virus.example]", "<ann@example.com>"):
        assert book.judge(Reply(550, "", f"{address} User unknown"), "rcpt", "").rule == "u"
    assert len(book._answers) == 4
    book.judge(Reply(550, "", "<bob@example.net> User unknown"), "rcpt", "")
    assert len(book._answers) == 4


def test_only_the_beginning_of_a_reply_is_looked_at() -> None:
    """A reply may have 64 KB; neither time nor memory follows it."""
    book = rules(rule(more="pattern = 'end'"))
    assert book.judge(Reply(450, "", "x" * 65_000 + "end"), "rcpt", "") is UNDEFINED
    assert sum(len(key[0]) for key in book._answers) == TEXT_MAX


def test_providers_that_rules_name_are_known() -> None:
    """A rule for a provider that no site has would never hold."""
    known = {table["name"] for table in tomllib.loads(shipped("providers.toml").read_text())["providers"]}
    assert {name for rule in SHIPPED.rules for name in rule.providers or ()} <= known


def test_what_is_remembered_is_bounded() -> None:
    """Servers put ids into their replies; memory must not grow with them."""
    book = rules(rule(more="pattern = 'busy'"))
    for number in range(REMEMBERED_MAX + 10):
        book.judge(Reply(450, "", f"busy {number}"), "rcpt", str(number % 2000))
    assert len(book._answers) <= REMEMBERED_MAX
    assert len(book._left_over) <= REMEMBERED_MAX // 8


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (rule("a", more="pattern = 'x'", examples="['450 y']"), "'a' does not match its example '450 y'"),
        (rule("a") + rule("b"), "'b' never matches, 'a' before it claims all its examples"),
        (rule("a", more="pattern='q'", examples="['450 q']") + rule("b", examples="['450 q', '450 z']"), "is shadowed"),
        (rule("a", more="code = 450") + rule("a", examples="['550 x']"), "is also in file1"),
        (rule("a", examples="[]"), "has no example"),
        (rule("a", more="pattern = '(x+)+'", examples="['450 x']"), "may take very long"),
        (rule("a", more="provider = ['gogle', 'google']"), "there is no provider 'gogle'; did you mean 'google'?"),
        (rule("a", more="rest_s = 60"), "rest_s has no effect, since no example names our address"),
        (rule("a", more="code = '2xx'", examples="['250 x']"), "never matches"),
    ],
)
def test_what_the_check_finds(text: str, words: str) -> None:
    """One sentence each, with the file and the rule in it."""
    (problem,) = problems(rules(text), ["google", "yahoo"])
    assert problem.startswith("file1: rule ")
    assert words in problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rules = 1", "write [[rules]] before each"),
        ("x = 1", "there is no key 'x'"),
        ("[[rules]", "is not TOML"),
        ("[[rules]]\nclass = 'rate'", "rule 1 has no name"),
        (rule(kind="rates"), "did you mean 'rate'?"),
        (rule(more="patern = 'x'"), "did you mean 'pattern'?"),
        (rule(more="pattern = '('"), "is not a regular expression"),
        (rule(more="code = 650"), "write 550 or 55x or 5xx"),
        (rule(more="enhanced = '5'"), "write 5.7.1 or 5.7 or x.7.1"),
        (rule(more="stage = 'rctp'"), "there is no stage 'rctp'"),
        (rule(more="stage = 'plugin'"), "there is no stage 'plugin'"),
        (rule(more="provider = []"), "give one value or a list"),
        (rule(more="slow = 1"), "it must be true or false"),
        (rule(more="rest_s = -1"), "it must be a number of seconds"),
        (rule(more="verdict = 'drop'"), "it must be one of '', 'retry', 'bounce'"),
        (rule(more="suspend = 'tenant'"), "suspend and suspend_s need each other"),
        (rule(more="after = 3"), "after and within_s need each other"),
        (rule(examples="['hello']"), "is not a reply"),
        (rule(examples="[{stage = 'rcpt'}]"), "an example is a reply"),
        ("[classes.rate]\nname = 'x'", "classes.rate: there is no key 'name'"),
        ("[classes.rates]\nslow = true", "there is no such class"),
    ],
)
def test_mistakes_are_one_sentence(text: str, words: str) -> None:
    """With the file, the rule and the remedy."""
    with pytest.raises(RulesError) as raised:
        rules(text)
    sentence = str(raised.value)
    assert sentence.startswith("file1: ")
    assert words in sentence
    assert "\n" not in sentence


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """Is named, with the remedy."""
    with pytest.raises(RulesError, match="cannot be read"):
        Rules.load([tmp_path / "none.toml"])


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("550 5.1.1 No", Reply(550, "5.1.1", "No")),
        ("550-5.1.1 No such 550 5.1.1 user", Reply(550, "5.1.1", "No such user")),
        ("554-No service\n554 Go away", Reply(554, "", "No service Go away")),
        ("421", Reply(421)),
        ("550 room 550 is full", Reply(550, "", "room 550 is full")),
    ],
)
def test_replies_as_logs_show_them(line: str, reply: Reply) -> None:
    """Lines of one reply may have been joined by whoever logged them."""
    assert reply_of(line) == reply


@given(st.text(alphabet=string.printable))
def test_no_text_breaks_the_reading_of_a_reply(text: str) -> None:
    """What is not a reply is a ValueError with a remedy, nothing else."""
    if re.match(r"\s*[245]\d\d(?:[ -]|\s*$)", text):
        assert 200 <= reply_of(text).code < 600
    else:
        with pytest.raises(ValueError, match="is not a reply"):
            reply_of(text)


@pytest.mark.parametrize(
    ("line", "stage", "provider", "kind"),
    [
        ("550 Requested action not taken: mailbox unavailable", "rcpt", "", "user-unknown"),
        ("550 Requested action not taken: mailbox unavailable", "dot", "gmx", "user-unknown"),
        ("554 5.7.1 <x@y>: Recipient address rejected: your IP is blacklisted", "rcpt", "", "blocked-ip"),
        ("452 4.2.2 user@example.com: mailbox full", "rcpt", "", "mailbox-full"),
        ("454 4.7.0 TLS not available", "tls", "", "tls"),
        ("554 mx.example.com", "banner", "", "policy"),
        ("550 5.7.509 sending domain X does not pass DMARC verification", "dot", "microsoft", "authentication"),
        ("550 rejected by server", "dot", "", "policy"),
        ("550 5.7.1 the mail server has blocked this message", "dot", "", "policy"),
    ],
)
def test_the_shipped_rules_on_other_replies(line: str, stage: str, provider: str, kind: str) -> None:
    """Replies that are not examples are understood too."""
    assert SHIPPED.judge(reply_of(line), stage, provider).kind == kind


def test_blocks_of_our_address_never_bounce_mail() -> None:
    """A block says something about our IP address, not about the message: that address rests there, the mail waits."""
    blocks = [rule for rule in SHIPPED.rules if rule.kind in ("blocked-ip", "reverse-dns")]
    assert {rule.kind for rule in blocks} == {"blocked-ip", "reverse-dns"}
    for rule in blocks:
        assert rule.action.verdict == "retry", rule.name
        assert rule.action.rest_s > 0, rule.name


def test_a_rule_does_not_hold_for_its_counter_examples() -> None:
    """`not_examples` are replies that a pattern must leave alone; `rules check` says if it does not."""
    book = rules(rule("a", more="pattern = 'x'\nnot_examples = ['450 xy']"))
    assert ["holds for its counter-example" in sentence for sentence in problems(book)] == [True]
    assert problems(rules(rule("a", more="pattern = 'x$'\nnot_examples = ['450 xy']"))) == []


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("unavailable", "unavailable"),
        (r"gone fishing|\bquota\b", "quota"),
        ("(?:length|very long)", "length"),
        ("^blocked$", "blocked"),
    ],
)
def test_an_alternative_that_is_one_generic_word_is_refused(pattern: str, said: str) -> None:
    """It would take replies of other classes; the provider, a status or the words beside it tell which are meant."""
    rule = f"[[rules]]\nname = 'x'\nclass = 'rate'\npattern = '{pattern}'\nexamples = ['450 {said}']\n"
    (found,) = problems(Rules.parse([("own.toml", rule)]))
    assert "is one word that many replies have" in found
    assert problems(Rules.parse([("own.toml", f"{rule}provider = 'gmail'")])) == []


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("550 5.1.1 Account unavailable", "user-unknown"),
        ("450 4.3.2 Connection quota exceeded", "rate"),
        ("452 4.5.3 recipient quota exceeded for this hour", "rate"),
        ("552 5.2.2 user quota exceeded", "mailbox-full"),
        ("550 verification failed for <bob@example.net>", "user-unknown"),
        ("553 5.7.1 sorry, this recipient is not in my validrcptto list (#5.7.1)", "user-unknown"),
        ("451 4.3.0 Service unavailable", "system-error"),
        ("554 5.6.0 Line length exceeds 998", "syntax"),
    ],
)
def test_what_is_meant_is_told_by_the_words_beside_a_generic_one(line: str, kind: str) -> None:
    assert SHIPPED.judge(reply_of(line), "rcpt", "").kind == kind


def test_a_providers_own_form_for_a_dead_address_is_enough_once() -> None:
    """At RCPT; whoever else says it must agree by code and words."""
    for line, provider in (
        ("550 5.1.1 Adresse d au moins un destinataire invalide. Invalid recipient. LPN007_416 [416]", "laposte"),
        ("550 5.7.1 No such user!", "yandex"),
    ):
        reply = reply_of(line)
        assert SHIPPED.judge(reply, "rcpt", provider).agreed
        assert not SHIPPED.judge(reply, "dot", provider).agreed
    assert not SHIPPED.judge(reply, "rcpt", "").agreed
    wrong = (
        "[[rules]]\nname = 'x'\nclass = 'rate'\nsignature = true\npattern = 'slow down'\nexamples = ['450 slow down']"
    )
    with pytest.raises(RulesError, match="signature is for classes"):
        Rules.parse([("own.toml", wrong)])
