"""Fields about a list, whatever is put into them."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.mail.headers import Headers
from zonemta_py.mail.list_fields import feedback_id, list_unsubscribe, unsubscribe_token, unsubscribe_url

SECRET = "0123456789abcdef"
URL = "https://u.example/leave?m={id}&r={recipient}&c={campaign}&t={token}"


@given(st.text(max_size=40), st.text(max_size=100))
def test_feedback_id_is_one_line_of_four_parts(campaign: str, tenant: str) -> None:
    """No value can add a part, a line or a field."""
    field = feedback_id("{campaign}:{tenant}:{zone}:{sender}", campaign=campaign, tenant=tenant, zone="z", sender="d")
    [(name, value)] = Headers.parse(field)
    assert name == "Feedback-ID"
    assert value.count(":") == 3
    assert field.isascii()
    assert len(field) < 200


@given(st.text(max_size=30), st.text(max_size=30))
def test_unsubscribe_carries_what_it_was_given(recipient: str, campaign: str) -> None:
    """Percent-encoded, so that it comes back whole and cannot leave its angle brackets."""
    headers = Headers.parse(list_unsubscribe(unsubscribe_url(URL, SECRET, "0199", recipient, campaign)))
    assert [name for name, _ in headers] == ["List-Unsubscribe", "List-Unsubscribe-Post"]
    assert headers.get("list-unsubscribe-post") == "List-Unsubscribe=One-Click"
    link = headers.get("list-unsubscribe")
    assert (link[0], link[-1], link.count(">")) == ("<", ">", 1)
    query = parse_qs(urlsplit(link[1:-1]).query, keep_blank_values=True)
    assert (query["r"], query["c"], query["m"]) == ([recipient], [campaign], ["0199"])
    assert query["t"] == [unsubscribe_token(SECRET, "0199", recipient)]
    assert query["t"] != [unsubscribe_token(SECRET, "0198", recipient)]
    assert query["t"] != [unsubscribe_token(SECRET, "0199", recipient + "x")]
