"""Spellings of what is on the suppression list, and the index of its patterns against trying each."""

import random
import re
from hashlib import sha256

import pytest

from zonemta_py.mail.addresses.entries import PATTERN, checked, domain_entries, hash_of, is_covering, literal
from zonemta_py.mail.addresses.patterns import PatternIndex, fits

DIGITS = sha256(b"ann@x.test").hexdigest()


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("Ann <Ann@X.test>", "ann@x.test"),
        ("@Example.COM", "@example.com"),
        (" @*.Example.com. ", "@*.example.com"),
        ("@b\u00fccher.test", "@xn--bcher-kva.test"),
        ("*@x.test", "@x.test"),
        ("*@*.x.test", "@*.x.test"),
        ("NoReply@*", "pattern:noreply@*"),
        ("**+Test@example.com", "pattern:*+test@example.com"),
        ("pattern:A*@b\u00fccher.test", "pattern:a*@xn--bcher-kva.test"),
        ("@mail*.x.test", "pattern:*@mail*.x.test"),
        ("Ann * <ann@x.test>", "ann@x.test"),
        ('"a*b"@x.test', "a*b@x.test"),
        (f"SHA256:{DIGITS.upper()}", f"sha256:{DIGITS}"),
        (DIGITS.upper(), f"sha256:{DIGITS}"),
    ],
)
def test_one_spelling_for_each(given: str, stored: str) -> None:
    """Case, Unicode form and needless stars make no other entry; as it is shown, it is the same again."""
    assert checked(given) == stored
    assert checked(literal(stored)) == stored
    assert is_covering(stored) == (stored not in ("ann@x.test", "a*b@x.test"))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("example.com", "write @example.com for all of a domain, @*.example.com for all below it"),
        ("@", "'@' is not a domain; give one such as @example.com"),
        ("@*.", "is not a domain"),
        ("@a b", "is not a domain"),
        ("@a.test:b@c.test", "is not a domain"),
        ("*@*", "stops everybody"),
        ("@*", "stops everybody"),
        ("*@*.*", "stops everybody"),
        ("*", "is not a pattern; write local part, @ and domain with * in them"),
        ("a*@", "is not a pattern"),
        ("a@b@*", "is not a pattern"),
        ("a*b*c*d*e*@x.test", "has more than 4 *"),
        ("a*" + "b" * 400 + "@x.test", "is too long"),
        ("pattern:ann@x.test", "has no *, so it is no pattern"),
        ("sha256:12", "is not a hash; give sha256: and 64 hexadecimal digits"),
        ("0" * 32, "the list takes SHA-256 only"),
        (f"sha1:{'0' * 40}", "the list takes SHA-256 only"),
        ("a\n@x.test", "is not an address; give an address, @example.com"),
        ("ann", "'ann' is not an address; give one such as ann@example.com"),
    ],
)
def test_what_is_none_is_said(given: str, sentence: str) -> None:
    """In one sentence, with what to write instead."""
    with pytest.raises(ValueError, match=re.escape(sentence)):
        checked(given)


def test_entries_of_a_domain() -> None:
    """Itself, and each above it; a hash is of the canonical address."""
    assert list(domain_entries("a.b.test")) == ["@a.b.test", "@*.b.test", "@*.test"]
    assert hash_of("ann@x.test") == f"sha256:{DIGITS}"


@pytest.mark.parametrize("seed", range(8))
def test_the_index_finds_what_trying_each_finds(seed: int) -> None:
    """Whatever is added and taken out, and wherever the stars are."""
    die = random.Random(seed)

    def part(stars: int) -> str:
        text = [die.choice("ab.") for _ in range(die.randint(1, 5))]
        for _ in range(stars):
            text.insert(die.randint(0, len(text)), "*")
        return "".join(text).strip(".") or "a"

    index, every = PatternIndex(), set[str]()
    for _ in range(300):
        pattern = f"{part(die.randint(0, 2))}@{die.choice([part(die.randint(0, 2)), '*', 'a.b'])}"
        if die.random() < 0.7:
            index.add(pattern)
            every.add(pattern)
        elif every:
            gone = die.choice(sorted(every))
            index.discard(gone)
            every.discard(gone)
        who = f"{part(0)}@{part(0)}"
        tried = {one for one in every if re.fullmatch(re.escape(one).replace(r"\*", "[^@]*"), who)}
        assert index.fitting(who) == sorted(tried)
        assert index.count == len(every)
    for one in sorted(every):
        index.discard(one)
    assert (index.count, index.fitting("a@a"), index._by_domain) == (0, [], {})


def test_a_star_is_for_nothing_too() -> None:
    """But what stands around it never overlaps."""
    assert fits("a*b", "ab")
    assert fits("a*b*", "axxb")
    assert not fits("ab*ba", "aba")
    assert not fits("*aa*aa*", "aaa")
    assert not fits("a", "b")


def test_ten_thousand_patterns_are_not_tried() -> None:
    """Of those that are found by something else, none is compared."""
    index = PatternIndex(f"u{number}+*@d{number % 100}.test" for number in range(10_000))
    for number in range(5_000):
        index.add(f"bot{number}@*")
    globs = index._by_domain["d7.test"]
    assert len(list(globs.found_by("u107+spam"))) == 1
    assert index.fitting("u107+spam@d7.test") == ["u107+*@d7.test"]
    assert index.fitting("bot77@d7.test") == ["bot77@*"]
    assert PATTERN not in "".join(index.fitting("ann@x.test"))
