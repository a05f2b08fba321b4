"""The parts of a send beyond its words: what is taken, and what is refused in so many words."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from posthouse.sandbox.ledger import CallResult, CaughtFile
from posthouse.sandbox.received import shown
from tests.sandbox.conftest import Bench, message


def in_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def test_files_are_entered_with_their_bytes(bench: Bench) -> None:
    bill = {"filename": "bill.pdf", "content": in_base64(b"%PDF\x00\xff"), "content_type": "application/pdf"}
    logo = {"content": in_base64(b""), "content_id": "logo@shop.example", "disposition": "inline", "size_hint": 3}
    body = message(attachments=[bill, logo])
    assert bench.send(body).status == 200
    [accepted] = bench.ledger.acceptances
    assert accepted.files == (
        CaughtFile(b"%PDF\x00\xff", "bill.pdf", "application/pdf"),
        CaughtFile(b"", content_id="logo@shop.example", inline=True),
    )
    assert accepted.body is not None
    assert "attachments" not in accepted.body
    assert accepted.size == len(body)


def test_a_finished_message_is_read_and_the_call_has_the_last_word_on_it(bench: Bench) -> None:
    raw = b"Subject: Hi\r\nFrom: shop@shop.example\r\nX-Order: 42\r\n\r\nThank you\r\n"
    bench.send(message(raw=in_base64(raw), subject="Given", text=None, tags=["receipt"]))
    [accepted] = bench.ledger.acceptances
    assert accepted.raw == raw
    caught = shown(accepted)
    assert caught is not None
    assert (caught.body["subject"], caught.body["tags"]) == ("Given", ["receipt"])
    assert ["X-Order", "42"] in caught.body["headers"]


def test_the_envelope_sender_is_entered(bench: Bench) -> None:
    bench.send(message(envelope_sender="bounces@shop.example", message_id="<a@shop.example>", track_opens=False))
    assert bench.ledger.acceptances[0].envelope_sender == "bounces@shop.example"


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ({"attachments": {}}, "attachments is not a list of objects"),
        ({"attachments": ["bill.pdf"]}, "attachments is not a list of objects"),
        ({"attachments": [{"content": "YQ=="}, {"filename": "x"}]}, "attachments[1].content is not text"),
        ({"attachments": [{"content": "YQ="}]}, "attachments[0].content is not base64"),
        ({"attachments": [{"content": "YQ==\n"}]}, "attachments[0].content is not base64"),
        ({"attachments": [{"content": "grüße"}]}, "attachments[0].content is not base64"),
        ({"attachments": [{"content": "", "filename": 1}]}, "attachments[0].filename is not text"),
        (
            {"attachments": [{"content": "", "disposition": "shown"}]},
            "attachments[0].disposition is neither attachment nor inline",
        ),
        ({"alternatives": "x"}, "alternatives is not a list of objects"),
        ({"alternatives": [{"content": "x"}]}, "alternatives[0].content_type is not text"),
        ({"raw": "%"}, "raw is not base64"),
        ({"raw": None}, "raw is not text"),
        ({"message_id": 5}, "message_id is not text"),
        ({"envelope_sender": {"email": "a@b.example"}}, "envelope_sender is not text"),
        ({"track_opens": "yes"}, "track_opens is neither true nor false"),
    ],
)
def test_a_part_that_makes_no_sense_is_refused_with_its_place(
    bench: Bench, parts: dict[str, Any], complaint: str
) -> None:
    reply = bench.send(message(**parts))
    assert (reply.status, json.loads(reply.body)) == (422, {"error": "invalid_part", "message": complaint})
    assert not bench.ledger.acceptances
    assert bench.ledger.results == {CallResult.INVALID: 1}
