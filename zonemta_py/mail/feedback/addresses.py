"""Addresses in running text, found in time that grows with its length alone."""

from __future__ import annotations

import re

_APART = re.compile(r"[\s<>()\[\]{},;|\"«»“”„、，。：；（）＜＞「」]+")
_EDGES = ".:'`!?-…’‘"
_LOCAL_CHARACTERS_MAX = 128
_DOMAIN = re.compile(r"[^\W_](?:[\w.-]{0,253}[^\W_])?")
_IDEOGRAPHS = re.compile(r"^[\u2e80-\uffef]+(?=[!-~]+$)")
_AT = re.compile(
    r"(?<![\w.+-])([\w.+-]{1,64})(?: at |\s?[\[(]at[\])]\s?|\s?\(a\)\s?|\s?@\s?)"
    r"((?:[\w-]{1,63}(?:\.| dot |\s?[\[(]dot[\])]\s?)){1,6}[a-z]{2,24})(?![\w.-]*\w)",
    re.IGNORECASE,
)
_DOT = re.compile(r" dot |\s?[\[(]dot[\])]\s?", re.IGNORECASE)
_NAMED = re.compile(r"^(?:smtp|recipients?|rcpt|to|user|address|e?-?mail|for|original|final)=", re.IGNORECASE)
_SERVICE = re.compile(
    r"(?:post-?master|admin|support|help|it|edv|abuse|info|office|contact|kontakt|noc|root|security|no-?reply|mailer"
    r"|service|servicio|serviço|servizio|client|kunde|customer|care|hotline|jobs|sales|billing)[\w.-]{0,20}@",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"\"[^\"\n@]{1,64}\"@[\w.-]{1,253}")


def addresses(text: str) -> list[str]:
    """Those of the text in their order, each as often as it is there."""
    if "@" not in text:
        return []
    if '"@' in text and (quoted := _QUOTED.findall(text)):
        return [one.rstrip(".") for one in quoted]
    found = (_address(word) for word in _APART.split(text) if "@" in word)
    return [address for address in found if address]


def is_service(address: str) -> bool:
    """Whether it is that of who helps, by its local part."""
    return _SERVICE.match(address) is not None


def spelt_out(text: str) -> list[str]:
    """Those that are hidden from programs: "ann at example.net", "ann(at)example(dot)net"."""
    return [
        f"{found[1]}@{_DOT.sub('.', found[2])}"
        for _, found in zip(range(20), _AT.finditer(text), strict=False)
        if "." in _DOT.sub(".", found[2])
    ]


def address_of(value: str) -> str:
    """The first address in "rfc822; <a@b>", "utf-8; ä@b", "rfc822;a@b (alias)"; "" if there is none."""
    return next(iter(addresses(value)), "")


def _address(word: str) -> str:
    local, _, domain = word.rpartition("@")
    local = local.rpartition(":")[2].lstrip(_EDGES)
    if "=" in local:  # X.400 domain defined attributes, of old Exchange, and logs
        local = _NAMED.sub("", local)
    if domain.isascii() and not local.isascii():
        local = _IDEOGRAPHS.sub("", local) or local  # no space stands before it
    domain = domain.partition(":")[0].strip(_EDGES + "*=_")
    if not local or "@" in local or len(local) > _LOCAL_CHARACTERS_MAX or not _DOMAIN.fullmatch(domain):
        return ""
    return f"{local}@{domain}"
