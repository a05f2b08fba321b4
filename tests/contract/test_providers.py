"""The provider suite for `http`, which stands for any API; each other provider runs it in its own tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import fields
from typing import Any
from urllib.parse import unquote

import pytest

from posthouse.email import Email
from tests.contract.api_harness import ApiCase, ApiHarness, api_harness
from tests.contract.message_parts import PARTS
from tests.contract.provider_suite import SECRET, Behaviour, ProviderSuite
from tests.providers.loopback import Received, Reply, answer

ECHO = f"Authorization: Bearer {SECRET}"


def settings(url: str) -> Mapping[str, Any]:
    return {
        "provider": "http",
        "url": f"{url}/v1/send",
        "idempotency_header": "Idempotency-Key",
        "look_up_url": f"{url}/v1/sends/{{id}}",
        "look_up_message_id": "id",
    }


def look_up(got: Received, known: Mapping[str, str]) -> Reply:
    message_id = known.get(unquote(got.path.rpartition("/")[2]))
    return answer(200, {"id": message_id}) if message_id else answer(404, {"message": "not found"})


HTTP = ApiCase(
    settings=settings,
    replies={
        Behaviour.ACCEPT: answer(200, {"id": "m-1"}),
        Behaviour.ACCEPT_UNREADABLY: answer(200, '{"id": "m-'),
        Behaviour.THROTTLE: answer(429, {"message": f"slow down, {ECHO}"}, Retry_After="30"),
        Behaviour.BE_OUT_OF_SERVICE: answer(503, f"<html><title>Maintenance {SECRET}</title></html>"),
        Behaviour.FAIL_MIDWAY: answer(500, {"error": ECHO}, X_Request_Id=SECRET),
        Behaviour.REFUSE_MESSAGE: answer(422, {"message": f"no subject in {ECHO}"}),
        Behaviour.REFUSE_RECIPIENT: answer(400, {"message": f"invalid recipient, {SECRET}"}),
        Behaviour.REFUSE_CREDENTIAL: answer(401, {"message": f"the key {SECRET} is revoked"}),
    },
    fields=lambda got: got.json,
    key=lambda got: got.headers.get("idempotency-key"),
    look_up=look_up,
    refuses=frozenset({"part headers"}),
)
"""A JSON API with bearer keys, idempotency keys and look-up by key."""


class TestHttp(ProviderSuite):
    """The `http` provider."""

    @pytest.fixture
    async def harness(self) -> AsyncIterator[ApiHarness]:
        async with api_harness(HTTP) as harness:
            yield harness


def test_the_suite_knows_every_field_that_an_email_sends() -> None:
    ours = {"key", "type", "template", "variables", "send_at", "expires", "after", "service", "campaign", "family"}
    assert {field.name for field in fields(Email)} - ours == {name for part in PARTS for name in part.given}
