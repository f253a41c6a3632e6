"""The page of settings: what somebody gets, leaves, and takes back; in whose dress, and in which language."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.web.links.conftest import ONE_CLICK, path
from zonemta_py.config import Config, ConfigError
from zonemta_py.journal.records import Type
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.suppression.entry import Suppressed
from zonemta_py.web.links import pages

EVERY = ["campaign", "list", "campaigns", "all"]
SETTINGS = path(purpose="preferences")


def entry(door: Any, kind: str, scope: str) -> None:
    async def add(queue: LocalQueue) -> None:
        await queue.ask("suppress", rows=[["ann@example.com", kind, "", "", "", "", 0, scope]])

    door.do(add)


def test_leaving_and_coming_back(open_links: Any) -> None:
    """By the page, by a click, and back, and again: each takes effect, by the same link too."""
    door = open_links(choices=EVERY)
    page = door.client.get(SETTINGS)
    assert page.text.count('name="leave"') == 3
    for _ in range(2):
        assert door.client.post(path(), data=ONE_CLICK).status_code == 200
        assert door.lists({"campaigns:acme": "unsubscribe"})
        page = door.client.get(SETTINGS)
        assert (page.text.count('name="leave"'), page.text.count('name="rejoin"')) == (1, 1)
        page = door.client.post(SETTINGS, data={"rejoin": "campaigns"})
        assert (page.status_code, "saved" in page.text) == (200, True)
        assert door.listed() == {}
    assert door.client.post(SETTINGS, data={"leave": "all"}).status_code == 200
    assert door.lists({"tenant:acme": "unsubscribe"})
    assert 'name="leave"' not in door.client.get(SETTINGS).text, "there is nothing narrower left to leave"


def test_a_list_is_between_its_campaigns_and_all_of_them(open_links: Any) -> None:
    """It has its name, in the language of the page, and is left and joined by itself; who has left it gets none of its
    campaigns, and who has left all campaigns gets none of it. Links of mail without a list do not offer one."""
    door, settings = open_links(choices=EVERY), path(purpose="preferences", list_name="weekly.example")
    page = door.client.get(settings, headers={"accept-language": "de"})
    assert page.text.count('name="leave"') == 4
    assert "E-Mails der Liste „weekly.example“" in page.text
    titled = path(purpose="preferences", list_name="weekly.example", list_title="Weekly <deals>")
    page_of_title = door.client.get(titled, headers={"accept-language": "de"}).text
    assert "E-Mails der Liste „Weekly &lt;deals&gt;“" in page_of_title
    offered = [page.text.index(f'value="{one}"') for one in EVERY]
    assert offered == sorted(offered)
    assert door.client.post(settings, data={"leave": "list"}).status_code == 200
    assert door.lists({"list:acme/weekly.example": "unsubscribe"})
    page = door.client.get(settings)
    assert [f'name="leave" value="{one}"' in page.text for one in EVERY] == [False, False, True, True]
    assert "You have unsubscribed from more than these." in page.text
    assert page.text.count('name="rejoin" value="list"') == 1
    assert door.client.post(settings, data={"rejoin": "list"}).status_code == 200
    assert door.listed() == {}
    assert door.client.post(settings, data={"leave": "campaigns"}).status_code == 200
    assert [f'name="leave" value="{one}"' in door.client.get(settings).text for one in EVERY] == [False] * 3 + [True]
    assert 'value="list"' not in door.client.get(SETTINGS).text
    assert door.client.post(SETTINGS, data={"leave": "list"}).status_code == 400


def test_only_what_is_offered_can_be_chosen(open_links: Any) -> None:
    door = open_links()
    for said in ({"leave": "all"}, {"leave": "campaign"}, {"rejoin": "all"}, {"leave": "tenant:other"}, {"x": "y"}):
        assert door.client.post(SETTINGS, data=said).status_code == 400
    assert door.listed() == {}


@pytest.mark.parametrize("kind", ["complaint", "hard-bounce", "manual", "erased"])
def test_nobody_takes_back_what_he_has_not_done(open_links: Any, kind: str) -> None:
    """Another cause stays, also beside an unsubscribe, and has no button."""
    door = open_links()
    entry(door, kind, "campaigns:acme")
    assert door.client.post(path(), data=ONE_CLICK).status_code == 200
    assert "<button" not in door.client.get(SETTINGS).text
    assert door.client.post(SETTINGS, data={"rejoin": "campaigns"}).status_code == 200
    assert "campaigns:acme" in door.listed()


def test_the_entry_of_all_tenants_is_not_this_ones_to_take_back(open_links: Any) -> None:
    door = open_links()
    entry(door, "unsubscribe", "campaigns")
    assert "<button" not in door.client.get(SETTINGS).text
    door.client.post(SETTINGS, data={"rejoin": "campaigns"})
    assert door.lists({"campaigns": "unsubscribe"})


def test_a_campaigns_entry_of_an_earlier_version_can_be_taken_back(open_links: Any) -> None:
    """It stops this tenant's campaign, too, so it is shown; one of mail without a tenant is not this person's doing
    here, and stays."""
    door, settings = open_links(choices=EVERY), path(purpose="preferences", scope="campaign")
    old = Suppressed("ann@example.com", "unsubscribe", 1, "", "", "", "", "campaign:spring")
    door.do(lambda queue: queue.suppression._change(Type.SUPPRESS, [old.row()]))
    assert 'name="rejoin" value="campaign"' in door.client.get(settings).text
    assert door.client.post(settings, data={"rejoin": "campaign"}).status_code == 200
    assert door.listed() == {}
    entry(door, "unsubscribe", "campaign:spring")
    assert 'name="leave" value="campaign"' in door.client.post(settings, data={"rejoin": "campaign"}).text
    assert door.lists({"campaign:spring": "unsubscribe"})


def test_languages(open_links: Any) -> None:
    """Each has all texts, with the same values in them; the page says which it is."""
    every = pages.languages()
    assert len(every) >= 6
    texts = {language: one._texts for language, one in every.items()}
    for language, found in texts.items():
        assert found.keys() == texts["en"].keys(), language
        for name, text in found.items():
            assert text.count("{") == texts["en"][name].count("{"), (language, name)
    door = open_links()
    for accepted, language in (
        ("", "en"), ("de-AT,de;q=0.9,en;q=0.8", "de"), ("xx, fr-CA;q=0.7, es;q=0.9", "es"), ("tlh", "en"),
        ("en;q=0, it", "it"), (",;q=,q=x" * 99, "en"),
    ):  # fmt: skip
        answer = door.client.get(path(), headers={"accept-language": accepted})
        assert (answer.headers["content-language"], f'lang="{language}"' in answer.text) == (language, True)


DRESS = """<html lang="{{ language }}"><title>{{ title }}</title><h1>{{ tenant | upper }} of {{ campaign }}</h1>
{{ content }}{% if page == "done" %}<p>Bye</p>{% endif %}</html>
"""


def test_a_tenants_dress(open_links: Any, tmp_path: Path) -> None:
    """Its own for its mail, the default one for others; what it says of itself cannot be more than text."""
    (tmp_path / "acme.html.j2").write_text(DRESS)
    (tmp_path / "default.html.j2").write_text("<b>others</b>{{ content }}")
    door = open_links(pages=tmp_path)
    assert "<h1>ACME of spring</h1>" in door.client.get(path()).text
    assert "<p>Bye</p>" in door.client.post(path(), data={**ONE_CLICK, "page": "1"}).text
    assert "<b>others</b>" in door.client.get(path(tenant="other")).text
    assert "&lt;b&gt;" in door.client.get(path(campaign="<b>")).text


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("<p>hello</p>", "does not print the whole content"),
        ("{{ content | upper }}", "does not print the whole content"),
        ("{% if page == 'ask' %}{{ content }}{% endif %}", "does not print the whole content"),
        ("{{ content }}{{ secret }}", "there is no 'secret' here"),
        ("{{ content }}{{ content.__class__ }}", "not allowed"),
        ("{{ content }}{% include 'x' %}", "include is not allowed"),
        ("{{ content }}{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}", "loops shorter"),
        ("{{ content ", "correct the expression"),
    ],
)
def test_a_template_that_cannot_be_used(
    open_links: Any, tmp_path: Path, template: str, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`config check` says so; where it is there all the same, pages look like ours, and the log says why."""
    (tmp_path / "acme.html.j2").write_text(template)
    links = {"enabled": True, "url": "https://x.example", "secrets": ["0123456789abcdef"], "pages": tmp_path}
    with pytest.raises(ConfigError, match=sentence):
        pages.check(Config.model_validate({"links": links}))
    assert "system-ui" in open_links(pages=tmp_path).client.get(path()).text
    assert "pages look like ours" in caplog.text


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    links = {"pages": tmp_path / "nowhere"}
    with pytest.raises(ConfigError, match="there is no folder"):
        pages.check(Config.model_validate({"links": links}))
