"""Merged messages: made by the sender for each recipient, and then treated as any other."""

import base64
import email
import email.policy
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dkim as dkimpy
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from zonemta_py.config import Config, Plugins
from zonemta_py.delivery.message import merged
from zonemta_py.delivery.message.merged import Templates
from zonemta_py.delivery.message.outgoing import LinkMaker
from zonemta_py.mail.addresses import verp
from zonemta_py.mail.addresses.link import decode
from zonemta_py.mail.envelope import Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.problems import RenderRefused
from zonemta_py.merge.source import File, TemplateSource, Text
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, Delivery, QueueRefusal, template_name

SECRET = "0123456789abcdef"
GONE = QueueRefusal(Reply(451, "4.3.0", "the campaign's template is missing"))


def template(text: str = "Hello {{ name }}, welcome to {{ city }}", **fields: Any) -> bytes:
    source = TemplateSource("t", Text("For {{ name }}"), Text("News <news@d.example>"), text=Text(text), **fields)
    return prepare(source).pack()


@pytest.fixture
def merge(letter: Callable[..., Delivery]) -> Callable[..., Delivery]:
    """A merged delivery: merge(port, "name", "city", …)."""

    def make(port: int = 25, name: str = "Ann", city: str = "Ulm", **more: Any) -> Delivery:
        given = {"columns": ["name", "city"], "values": [[name, city]], "template": "t1", "campaign": "spring"}
        given |= {"received_ms": 1_700_000_000_000, "size": 100, "chunks": 0}
        given |= {"recipients": [Recipient(f"{name.lower()}@d.example")]} | more
        delivery = letter(port, **given)
        delivery.id, delivery.body = "0199aabbccddeeff", None
        return delivery

    return make


@pytest.fixture
def dispatch(queue_of: Any) -> Callable[..., Any]:
    """A queue that has templates too, by campaign; `asked` counts. `leased` names the present one in a delivery."""

    def make(deliveries: list[Delivery], templates: dict[str, Any]) -> Any:
        queue = queue_of(deliveries, None, 10)
        queue.asked = []

        def leased(delivery: Delivery) -> Delivery:
            found = templates[delivery.campaign]
            delivery.template = template_name(found) if isinstance(found, bytes) else "gone"
            return delivery

        queue.leased = leased
        for delivery in deliveries:
            leased(delivery)

        async def fetch(campaign: str) -> bytes:
            queue.asked.append(campaign)
            found = templates[campaign]
            if isinstance(found, Exception):
                raise found
            return bytes(found)

        queue.template = fetch
        return queue

    return make


@pytest.fixture
def signed(tmp_path: Path) -> tuple[dict[str, Any], bytes]:
    """Sections of a configuration that signs for d.example, and the record in DNS."""
    key = ed25519.Ed25519PrivateKey.generate()
    (tmp_path / "k").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    rows = [{"domain": "d.example", "selector": "s", "key": str(tmp_path / "k")}]
    return {"dkim": rows}, b"v=DKIM1; k=ed25519; p=" + base64.b64encode(public)


async def test_each_recipient_gets_his_own(scripted: Any, merge: Any, dispatch: Any, deliver: Any) -> None:
    """Text, subject and recipient are his, the date is when it came; the template was fetched once."""
    server = await scripted()
    letters = [merge(server.port, name, city) for name, city in (("Ann", "Ulm"), ("Bob", "Bonn"))]
    queue = dispatch(letters, {"spring": template()})
    results = await deliver(*letters, queue=queue, most=2)
    assert [result.outcomes[0].verdict for result in results] == [DELIVERED, DELIVERED]
    found = {one["To"]: one for one in map(parsed, server.bodies)}
    assert found["ann@d.example"].get_content() == "Hello Ann, welcome to Ulm\r\n"
    assert found["bob@d.example"].get_content() == "Hello Bob, welcome to Bonn\r\n"
    assert found["bob@d.example"]["Subject"] == "For Bob"
    assert found["bob@d.example"]["Date"] == "Tue, 14 Nov 2023 22:13:20 +0000"
    assert found["bob@d.example"]["Message-ID"].endswith(f".{letters[1].id}@d.example>")
    assert queue.asked == ["spring"]
    sizes = {int(line.partition("SIZE=")[2].split()[0]) for line in server.commands if line.startswith("MAIL")}
    assert sizes == {len(body) for body in server.bodies}


def parsed(body: bytes) -> Any:
    return email.message_from_bytes(body, policy=email.policy.default)


async def test_a_second_attempt_makes_the_same_bytes(merge: Any, dispatch: Any) -> None:
    """However much later it is made."""
    queue = dispatch([], {"spring": template()})
    first, second = merge(), merge(attempts=[3])
    for delivery in (first, second):
        await Templates(queue).make(queue.leased(delivery))
    assert first.body == second.body


async def test_values_that_make_no_message_bounce(scripted: Any, merge: Any, dispatch: Any, deliver: Any) -> None:
    """554 5.6.0 with the reason, and the server is not asked."""
    server = await scripted()
    letters = [merge(server.port, recipients=[Recipient("no address")])]
    (result,) = await deliver(*letters, queue=dispatch(letters, {"spring": template()}))
    (outcome,) = result.outcomes
    assert (outcome.verdict, outcome.stage) == (BOUNCED, "queue")
    assert str(outcome.reply).startswith("554 5.6.0 the message cannot be made: To:")
    assert server.connections == 0


async def test_a_template_that_cannot_be_had_defers(scripted: Any, merge: Any, dispatch: Any, deliver: Any) -> None:
    """The queue may have it again in a moment; what is asked next asks again."""
    server = await scripted()
    letters = [merge(server.port), merge(server.port)]
    queue = dispatch(letters, {"spring": GONE})
    results = await deliver(*letters, queue=queue)
    assert {(one.outcomes[0].verdict, one.outcomes[0].reply.code) for one in results} == {(DEFERRED, 451)}
    assert queue.asked == ["spring", "spring"]


async def test_templates_are_kept_while_there_is_room(merge: Any, dispatch: Any) -> None:
    """Least recently used goes first; one alone stays however large it is."""
    packed = {name: template(f"{name} {{{{ name }}}}") for name in "abc"}
    queue = dispatch([], packed)
    templates = Templates(queue, bytes_max=2 * len(packed["a"]))
    for campaign in ("a", "b", "a", "c", "a", "b"):
        await templates.make(queue.leased(merge(campaign=campaign)))
    assert queue.asked == ["a", "b", "c", "b"]
    small = Templates(queue, bytes_max=1)
    for campaign in ("a", "a"):
        await small.make(queue.leased(merge(campaign=campaign)))
    assert queue.asked == ["a", "b", "c", "b", "a"]


async def test_a_campaign_of_the_same_name_is_not_mistaken(merge: Any, dispatch: Any) -> None:
    """A template is known by its content, not by its campaign's name, which may have another one by then: that is made
    use of for nothing that came for the one before, and the lease that names it finds it."""
    content = {"spring": template("old\n"), "autumn": template("old\n")}
    queue = dispatch([], content)
    early, also, later = queue.leased(merge()), queue.leased(merge(campaign="autumn")), merge()
    content["spring"] = template("new\n")
    templates = Templates(queue)
    with pytest.raises(QueueRefusal, match=r"451 4\.3\.0 the campaign has another template"):
        await templates.make(early)
    for delivery in (also, queue.leased(later)):
        await templates.make(delivery)
    assert b"\r\nold" in also.body
    assert b"\r\nnew" in later.body


async def test_a_large_message_is_sent_in_pieces(
    scripted: Any, merge: Any, dispatch: Any, deliver: Any, signed: Any
) -> None:
    """Attachments are in memory once; size, signature and every byte are as of a small one."""
    sections, answer = signed
    attachment = File("plan.pdf", "application/pdf", random.Random(1).randbytes(1_000_000))
    packed = template(attachments=(attachment,))
    server = await scripted()
    letters = [merge(server.port, "Ann"), merge(server.port, "Bob")]
    queue = dispatch(letters, {"spring": packed})
    results = await deliver(*letters, queue=queue, sections=sections, most=2)
    assert {result.outcomes[0].verdict for result in results} == {DELIVERED}
    assert {letter.body for letter in letters} == {None}
    sizes = {int(line.partition("SIZE=")[2].split()[0]) for line in server.commands if line.startswith("MAIL")}
    assert sizes == {len(body) for body in server.bodies}
    for body in server.bodies:
        assert dkimpy.verify(body, dnsfunc=lambda name, timeout=5: answer)
        text, file = parsed(body).iter_parts()
        assert text.get_content().startswith("Hello ")
        assert file.get_content() == attachment.content


async def test_plugins_see_and_change_the_message(
    scripted: Any, merge: Any, dispatch: Any, deliver: Any, tmp_path: Path
) -> None:
    """`sender_headers` runs over each recipient's own."""
    file = tmp_path / "steer.py"
    file.write_text(
        '"""A plugin."""\nfrom zonemta_py.plugin import *\n'
        "async def sender_headers(delivery, headers):\n"
        "    headers.add('X-Seen', headers.get('To') + ' ' + str(delivery.size == len(delivery.body)))\n"
    )
    server = await scripted()
    letters = [merge(server.port, "Ann"), merge(server.port, "Bob")]
    host = Host.load(Plugins(enabled=[str(file)]))
    await deliver(*letters, queue=dispatch(letters, {"spring": template()}), host=host)
    assert {parsed(body)["X-Seen"] for body in server.bodies} == {"ann@d.example True", "bob@d.example True"}


async def test_signatures_return_paths_and_list_fields_are_each_recipients_own(
    scripted: Any, merge: Any, dispatch: Any, deliver: Any, signed: Any
) -> None:
    """Every body is signed by its own hash, and verifies; VERP, Feedback-ID and List-Unsubscribe name the recipient."""
    sections, answer = signed
    sections |= {
        "return_path": {
            "secret": SECRET, "verp": "b.example", "feedback_id": "d.example",
            "list_unsubscribe": "https://d.example/u/{token}", "list_unsubscribe_zones": ["default"],
        },
    }  # fmt: skip
    server = await scripted()
    letters = [merge(server.port, name, tenant="shop", unsubscribe=True) for name in ("Ann", "Bob", "Ann2")]
    results = await deliver(*letters, queue=dispatch(letters, {"spring": template()}), sections=sections)
    assert {result.outcomes[0].verdict for result in results} == {DELIVERED}
    for body in server.bodies:
        assert dkimpy.verify(body, dnsfunc=lambda name, timeout=5: answer)
        assert b"Feedback-ID: " in body
        assert b"List-Unsubscribe: " in body
    paths = [line for line in server.commands if line.startswith("MAIL")]
    named = {verp.decode(path.partition("<")[2].partition(">")[0], SECRET, today(), 21)[1] for path in paths}
    assert named == {"ann@d.example", "bob@d.example", "ann2@d.example"}


def today() -> int:
    return int(time.time()) // 86_400


async def test_values_must_fit_the_columns(merge: Any, dispatch: Any) -> None:
    """The queue sees to it; a sender that gets others makes no message of them."""
    with pytest.raises(ValueError, match="zip"):
        await Templates(queue := dispatch([], {"spring": template()})).make(queue.leased(merge(values=[["Ann"]])))


async def test_a_field_that_is_not_there_is_refused(merge: Any, dispatch: Any) -> None:
    """The sentence names it."""
    queue = dispatch([], {"spring": template("{{ street }}\n")})
    with pytest.raises(RenderRefused, match="street"):
        await Templates(queue).make(queue.leased(merge()))
    assert merged.TEMPLATES_BYTES_MAX >= 16 * 1024 * 1024


async def test_links_of_each_recipient(merge: Any, dispatch: Any) -> None:
    """A template prints them where [links] is enabled, signed for the recipient; a column of that name goes before."""
    section = {"enabled": True, "url": "https://mail.example.com", "secrets": [SECRET]}
    config = Config.model_validate({"links": section})
    queue = dispatch([], {"spring": template("{{ unsubscribe_url }} {{ preferences_url }}")})
    maker = LinkMaker(config)
    for name in ("Ann", "Bob"):
        delivery = merge(name=name, tenant="acme")
        await Templates(queue, links=maker).make(queue.leased(delivery))
        urls = parsed(delivery.body).get_content().split()
        found = [decode(url.rpartition("/")[2], [SECRET]) for url in urls]
        assert [one.purpose for one in found] == ["unsubscribe", "preferences"]
        assert {one[1:5] for one in found} == {(delivery.id, f"{name.lower()}@d.example", "spring", "acme")}
        assert [url.rpartition("/")[0] for url in urls] == ["https://mail.example.com/u", "https://mail.example.com/p"]
    own = merge(columns=["name", "unsubscribe_url", "preferences_url"], values=[["A", "https://own.example/1", "x"]])
    await Templates(queue, links=maker).make(queue.leased(own))
    assert parsed(own.body).get_content().split() == ["https://own.example/1", "x"]


@pytest.mark.parametrize(
    ("links", "asked", "opens", "clicks"),
    [
        ({}, "yes", False, False),
        ({"track": "asked"}, "", False, False),
        ({"track": "asked"}, "yes", True, True),
        ({"track": "asked"}, "opens", True, False),
        ({"track": "on"}, "", True, True),
        ({"track": "on"}, "clicks", False, True),
        ({"track": "on"}, "no", False, False),
        ({"track": "on", "track_zones": ["bulk"]}, "", False, False),
        ({"track": "on", "track_tenants": ["acme"]}, "", True, True),
        ({"track": "on", "track_tenants": ["other"]}, "", False, False),
    ],
)
async def test_tracking(merge: Any, dispatch: Any, links: Any, asked: str, opens: bool, clicks: bool) -> None:
    """Off unless the configuration has it, and never where the message says no; unsubscribe links and text stay."""
    section = {"enabled": True, "url": "https://mail.example.com", "secrets": [SECRET], **links}
    config = Config.model_validate({"links": section, "zones": [{"name": "default"}, {"name": "bulk"}]})
    html = "<a href='https://x.example/?n={{ name }}&amp;b'>x</a> <a href='{{ unsubscribe_url }}'>bye</a>"
    queue = dispatch([], {"spring": template("See https://x.example/ or {{ unsubscribe_url }}", html=Text(html))})
    delivery = merge(tenant="acme", track=asked)
    await Templates(queue, links=LinkMaker(config)).make(queue.leased(delivery))
    message = parsed(delivery.body)
    made, text = (message.get_body((kind,)).get_content() for kind in ("html", "plain"))
    assert ("/o/" in made, "/c/" in made) == (opens, clicks)
    assert made.count("https://mail.example.com/u/") == 1
    assert text.startswith("See https://x.example/ or https://mail.example.com/u/")
    if clicks:
        token = made.partition("/c/")[2].partition("'")[0]
        assert decode(token, [SECRET]).target == "https://x.example/?n=Ann&b"
