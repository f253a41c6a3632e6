"""The API's description is complete and up to date."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from zonemta_py import reference
from zonemta_py.web.documents import models

FILE = Path(__file__).parents[2] / "config" / "openapi.json"


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return dict(json.loads(FILE.read_text()))


def examples(model: type[BaseModel]) -> list[Any]:
    extra: Any = model.model_config["json_schema_extra"]
    return list(extra["examples"])


def test_it_is_up_to_date() -> None:
    """`python -m zonemta_py.reference --openapi > config/openapi.json` makes it."""
    assert FILE.read_text() == reference.openapi()


def test_every_operation_is_described(whole: dict[str, Any]) -> None:
    """What it does, what it takes, what it answers, and each way in which it may fail."""
    operations = [(path, method, one) for path, row in whole["paths"].items() for method, one in row.items()]
    assert len(operations) == 90
    assert len({one["operationId"] for _, _, one in operations}) == len(operations)
    for path, method, one in operations:
        assert one["summary"], path
        takes_none = method in ("get", "delete") or path.endswith(("/pop", "/reserve", "/cancel", "/undo", "/check"))
        assert takes_none or "requestBody" in one, path
        said, streams = (
            one["responses"]["200"],
            ("application/octet-stream", "text/event-stream", "message/rfc822", "text/html"),
        )
        assert "$ref" in json.dumps(said) or any(name in said["content"] for name in streams), path
        for status, response in one["responses"].items():
            assert (status in ("200", "204", "304")) == (
                "application/problem+json" not in response.get("content", {})
            ), path
        for status in ("429", "503"):
            assert status not in one["responses"] or "Retry-After" in one["responses"][status]["headers"]


def test_every_name_in_it_is_there(whole: dict[str, Any]) -> None:
    """No reference leads nowhere."""
    names = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(whole)))
    assert names <= set(whole["components"]["schemas"])
    assert {"Message", "Batch", "Campaign", "ProblemDocument", "Receipt"} <= names
    assert whole["components"]["securitySchemes"]["key"]["scheme"] == "bearer"


@pytest.mark.parametrize("model", [models.MessageDocument, models.ProblemDocument, models.ReceiptDocument])
def test_examples_are_good(model: type[BaseModel]) -> None:
    """What the description shows is taken."""
    for example in examples(model):
        model.model_validate(example)


def test_the_example_of_a_batch_is_good(shared_door: Any) -> None:
    """But for its campaign, which there is not."""
    (example,) = examples(models.BatchDocument)
    answer = shared_door.client.post("/v1/inject", json=example, headers={"idempotency-key": "1"})
    assert (answer.status_code, "no campaign" in answer.json()["detail"]) == (409, True)
