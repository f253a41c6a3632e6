"""config/openapi.json and the HTTP listener agree: what the document allows is accepted, all else is refused.

schemathesis makes the requests, from the document, and sends them to the running listener. It makes them when the test
runs: made when tests are collected they would be made in each of the processes of `scripts/test`.

More of them take minutes: ZONEMTA_EXAMPLES=150 ZONEMTA_STUCK_S=3600 pytest -n 0 --timeout=0 with this file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import CHECKS

from zonemta_py.web.api.admin.bodies import IDS_MAX
from zonemta_py.web.documents.values import COLUMNS_MAX, VALUE_CHARACTERS_MAX

DOCUMENT = json.loads((Path(__file__).parents[2] / "config" / "openapi.json").read_text())
schema = schemathesis.pytest.from_fixture("document")
BEYOND = (
    "template: ", "hours: ", "there is no zone", "values for", "is the same address", "is not an email address",
    "is not an address; give one such as", "is not a hash", "is a hash of another kind", "is not a pattern",
    "stops everybody", "is too long or has more than", "is not a domain; give", "is not a domain such as",
    "a batch needs the header", "names 0 recipients", "(limits.hold_days)",
    "(pull.reserve_max_s)",
    "there is no provider", "begin again", "is not Name: part", "sizes are counted by domain", "nothing is counted by",
    "is neither a message's id nor an address", "the filter is empty", "is not a cursor", " sets no ", "to be set",
    "comes back when its task", "not of the form that", "which the template asks for", "a template cannot name",
    "several messages need the header", "the template's from is another", "correct the field or the template",
    " no attachment ", "the body is empty", "is not a media type", "is not a domain; write",
    "is not a private key in PEM",
    "needs VERP addresses", "needs the listener for links", "is not a tenant",
)  # fmt: skip
"""What no schema can say: it depends on other parts of the request, or on the configuration."""
LONGEST = (("maxLength", VALUE_CHARACTERS_MAX), ("maxItems", COLUMNS_MAX), ("maxItems", IDS_MAX))
KEYS = ("security", "securitySchemes")
EXAMPLES = int(os.environ.get("ZONEMTA_EXAMPLES", "1"))
"""Good and bad requests for each operation; the more, the longer it takes."""
PLAIN = ("GET", "DELETE", "PUT", "POST", "PATCH", "HEAD", "OPTIONS", "TRACE", "QUERY")


@pytest.fixture
def document(request: pytest.FixtureRequest) -> Any:
    node: Any = request.node
    node._nodeid = node.nodeid  # schemathesis 4.32 wants it there, and pytest 9.2 has it no more
    return schemathesis.openapi.from_dict(_quick(DOCUMENT))


pytestmark = pytest.mark.usefixtures("tried_here")


@pytest.fixture(scope="module")
def kept_open() -> Iterator[requests.Session]:
    """Thousands of requests on one connection, or on a few."""
    with requests.Session() as session:
        session.trust_env = False
        yield session


def _quick(whole: Any) -> Any:
    """Without waiting for messages that nobody will push, without keys, since every request has a good one whatever was
    made of that field (test_keys.py, admin/test_roles.py), and without the greatest lengths of a line and of a list.

    schemathesis makes values of just these lengths, which takes it seconds each time; they are tried below.
    """
    if isinstance(whole, dict):
        kept = ((name, value) for name, value in whole.items() if (name, value) not in LONGEST and name not in KEYS)
        return {name: _quick(value) for name, value in kept}
    if isinstance(whole, list):
        return [_quick(one) for one in whole if not (isinstance(one, dict) and one.get("name") == "wait")]
    return whole


@pytest.mark.timeout(2400)  # seventy seconds by itself; all operations are one test
@pytest.mark.filterwarnings("ignore:Skipped test cases with unsupported payload")
@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True,
    phases=(Phase.explicit, Phase.generate),
)  # fmt: skip
@schema.exclude(path=["/v1/events", "/v1/feedback/report"]).parametrize()
def test_the_door_does_as_its_document_says(case: Any, shared_door: Any, kept_open: requests.Session) -> None:
    """Every operation, with good and bad requests, but the stream of events, which does not end (events/), and what
    takes mail alone, which schemathesis cannot write (test_feedback.py)."""
    headers = {"Authorization": f"Bearer {shared_door.token}"}
    base = f"http://127.0.0.1:{shared_door.port}"
    answer = case.call(base_url=base, headers=headers, session=kept_open)
    excluded = []
    if answer.status_code in (400, 422) and any(one in answer.json()["detail"] for one in BEYOND):
        excluded = [check for check in CHECKS.get_all() if check.__name__ == "positive_data_acceptance"]
    case.validate_response(answer, excluded_checks=excluded, headers=headers)


@pytest.mark.parametrize("field", ["subject", "from.name", "headers.X-Note", "zone"])
def test_a_line_is_as_long_as_the_document_says(field: str, shared_door: Any) -> None:
    """And no longer."""
    for length, longer in ((VALUE_CHARACTERS_MAX, False), (VALUE_CHARACTERS_MAX + 1, True)):
        message: dict[str, Any] = {"from": {"address": "a@b.test"}, "to": ["c@d.test"], "text": "x", "headers": {}}
        into, _, name = field.rpartition(".")
        (message[into] if into else message)[name] = "x" * length
        answer = shared_door.client.post("/v1/inject", json=message)
        assert ("has more than 65,536 characters" in answer.text) is longer, answer.text[:1000]
        assert answer.status_code == (422 if longer or field == "zone" else 200), "there is no such zone"


def test_a_batch_has_as_many_columns_as_the_document_says(shared_door: Any) -> None:
    """And no more: with as many, it is only the campaign that is missing."""
    for count, status in ((COLUMNS_MAX, 409), (COLUMNS_MAX + 1, 422)):
        names = [f"c{number}" for number in range(count)]
        batch = {"campaign": "none", "columns": names, "recipients": [["a@b.test", *names]]}
        answer = shared_door.client.post("/v1/inject", json=batch, headers={"idempotency-key": "1"})
        assert (answer.status_code, '"columns"' in answer.text) == (status, status == 422), answer.text[:500]


def test_options_and_others_are_told_all_methods(shared_door: Any) -> None:
    """Allow names what the document names (RFC 9110 10.2.1), whichever method is asked."""
    for path, operations in DOCUMENT["paths"].items():
        there = {one.upper() for one in operations} & {*PLAIN}
        at = re.sub(r"\{\w+\}", "x", path)
        answer = shared_door.client.request("OPTIONS", at)
        assert (answer.status_code, {*answer.headers["allow"].split(", ")}) == (405, there), path
