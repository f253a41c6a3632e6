"""Messages made of parts: whatever the parts are, they come out of the message again."""

from __future__ import annotations

import base64
import email.policy
from email import message_from_bytes
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.web.documents.attachments import AttachedFile
from zonemta_py.web.documents.compose import compose
from zonemta_py.web.documents.models import MessageDocument

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), max_size=200)
LINE = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=120)
FILES = st.lists(st.binary(max_size=200), max_size=3)


@given(TEXT, st.none() | TEXT, FILES, st.booleans())
def test_bodies_and_files_come_out_as_they_went_in(
    text: str, html: str | None, files: list[bytes], shown: bool
) -> None:
    """Byte for byte but for line ends, in lines that every server takes, all of it ASCII."""
    attachments = [
        {"name": f"{n}.bin", "content": base64.b64encode(one).decode(), "content_id": f"i{n}" if shown else None}
        for n, one in enumerate(files)
    ]
    request = {"from": "a@b.test", "to": ["c@d.test"], "text": text, "html": html, "attachments": attachments}
    given = [AttachedFile(f"{n}.bin", "text/x", one, f"i{n}" if shown else None) for n, one in enumerate(files)]
    whole = compose(MessageDocument.model_validate(request), given)
    assert whole.isascii()
    assert whole.endswith(b"\r\n")
    assert max(map(len, whole.split(b"\r\n"))) <= 998
    assert b"\n" not in whole.replace(b"\r\n", b"")
    made: Any = message_from_bytes(whole, policy=email.policy.default)
    texts = {part.get_content_type(): part for part in made.walk() if part.get_content_maintype() == "text"}
    assert _text(texts["text/plain"]) == text.rstrip("\n")
    if html is not None:
        assert _text(texts["text/html"]) == html.rstrip("\n")
    found = [part.get_payload(decode=True) for part in made.walk() if part.get_filename()]
    assert found == files


def _text(part: Any) -> str:
    return str(part.get_payload(decode=True).decode()).replace("\r\n", "\n").rstrip("\n")


@given(LINE, LINE)
def test_no_text_ends_its_field(subject: str, name: str) -> None:
    """The header section has the fields it should have, whatever they say."""
    request = {
        "from": {"address": "a@b.test", "name": name}, "to": [{"address": "c@d.test", "name": name}, "e@f.test"],
        "subject": subject, "text": "x", "headers": {"X-Note": subject},
    }  # fmt: skip
    whole = compose(MessageDocument.model_validate(request), [])
    head = whole.partition(b"\r\n\r\n")[0].replace(b"\r\n ", b" ")
    names = [line.partition(b":")[0].decode() for line in head.split(b"\r\n")]
    assert names == ["From", "To", "Subject", "X-Note", "MIME-Version", "Content-Type", "Content-Transfer-Encoding"]
