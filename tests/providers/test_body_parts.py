"""Attachments, other forms of the words, finished messages and options in a JSON body."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from posthouse.address import Address
from posthouse.attachment import Alternative, Attachment
from posthouse.providers.body import DEFAULT_BODY, Body
from posthouse.providers.port import OutgoingMessage
from tests.providers.messages import full_message, message
from tests.providers.test_body import POSTMARK, SENDGRID

BILL = Attachment(b"%PDF-1.7 \x00\xff", "bill.pdf", "application/pdf")
LOGO = Attachment(b"\x89PNG", "logo.png", "image/png", "logo@shop.example")
AMP = Alternative.amp("<html amp4email>")
INVITATION = Alternative.calendar("BEGIN:VCALENDAR")


def in_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def rendered(mapping: Any, sent: OutgoingMessage, **options: Any) -> Any:
    return json.loads(Body(mapping).render(sent, options))


@pytest.mark.parametrize(
    ("mapping", "sent", "before"),
    [
        (
            DEFAULT_BODY,
            full_message(subject="Grüße ✉", metadata={"b": "1", "a": "2"}),
            '{"from":"\\"Shop\\" <orders@shop.example>","to":["\\"Ada\\" <ada@example.com>","bob@example.com"],'
            '"cc":["cc@example.com"],"bcc":["bcc@example.com"],"reply_to":["\\"Help\\" <help@shop.example>"],'
            '"subject":"Grüße ✉","text":"Thank you.","html":"<p>Thank you.</p>","headers":{"X-Order":"42"},'
            '"tags":["receipt"],"metadata":{"a":"2","b":"1","posthouse_id":"ph-7"}}',
        ),
        (
            DEFAULT_BODY,
            message(),
            '{"from":"\\"Shop\\" <orders@shop.example>","to":["\\"Ada\\" <ada@example.com>"],"subject":"Your order",'
            '"text":"Thank you.","metadata":{"posthouse_id":"ph-7"}}',
        ),
        (
            POSTMARK,
            full_message(),
            '{"From":"\\"Shop\\" <orders@shop.example>","To":"\\"Ada\\" <ada@example.com>, bob@example.com",'
            '"Cc":"cc@example.com","Bcc":"bcc@example.com","ReplyTo":"\\"Help\\" <help@shop.example>",'
            '"Subject":"Your order","TextBody":"Thank you.","HtmlBody":"<p>Thank you.</p>","Tag":"receipt",'
            '"Metadata":{"order":"42","posthouse_id":"ph-7"},"Headers":[{"Name":"X-Order","Value":"42"}],'
            '"MessageStream":"outbound"}',
        ),
    ],
    ids=["default, full", "default, plain", "postmark"],
)
def test_an_email_of_words_has_the_bytes_of_the_releases_before_attachments(
    mapping: Any, sent: OutgoingMessage, before: str
) -> None:
    """A call from before an upgrade is repeated after it under the same key, and must not differ."""
    assert Body(mapping).render(sent) == before.encode()


def test_the_default_body_has_the_new_parts_too() -> None:
    sent = message(
        attachments=[BILL, LOGO],
        alternatives=[AMP],
        message_id="<order-42@shop.example>",
        envelope_sender=Address("bounces@shop.example", "Bounces"),
        track_opens=False,
        track_clicks=True,
    )
    made = rendered(DEFAULT_BODY, sent)
    assert made["attachments"] == [
        {"filename": "bill.pdf", "content": in_base64(BILL.content), "content_type": "application/pdf"},
        {
            "filename": "logo.png",
            "content": in_base64(LOGO.content),
            "content_type": "image/png",
            "content_id": "logo@shop.example",
            "disposition": "inline",
        },
    ]
    assert made["alternatives"] == [{"content_type": "text/x-amp-html", "content": "<html amp4email>"}]
    assert (made["message_id"], made["envelope_sender"]) == ("<order-42@shop.example>", "bounces@shop.example")
    assert (made["track_opens"], made["track_clicks"]) == (False, True)


def test_a_finished_message_goes_out_as_it_is() -> None:
    raw = b"Subject: Hi\r\n\r\n\xff\r\n"
    made = rendered(DEFAULT_BODY, message(raw=raw, text=None))
    assert base64.b64decode(made["raw"]) == raw
    assert "text" not in made


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{files|object:Name,Content}", [{"Name": "bill.pdf", "Content": in_base64(BILL.content)}]),
        (
            "{inline|object:-,data,type,name}",
            [{"data": in_base64(LOGO.content), "type": "image/png", "name": "logo@shop.example"}],
        ),
        (
            "{files|object:Filename,Base64Content,ContentType}",
            [{"Filename": "bill.pdf", "Base64Content": in_base64(BILL.content), "ContentType": "application/pdf"}],
        ),
        (
            "{inline|cid|object:Name,Content,ContentType,ContentID}",
            [
                {
                    "Name": "logo.png",
                    "Content": in_base64(LOGO.content),
                    "ContentType": "image/png",
                    "ContentID": "cid:logo@shop.example",
                }
            ],
        ),
        ("{amp|content}", AMP.content),
        ("{amp}", {"content_type": "text/x-amp-html", "content": AMP.content}),
        ("{calendar|object:type,value}", {"type": "text/calendar; method=REQUEST", "value": INVITATION.content}),
        ("{alternatives|content}", [AMP.content, INVITATION.content]),
        ("{track_opens|choose:enabled,disabled}", "disabled"),
        ("opens: {track_opens|choose:yes,no}", "opens: no"),
        ("{track_clicks}", True),
        ("{recipients|email}", ["ada@example.com", "bob@example.com", "cc@example.com", "bcc@example.com"]),
        ("{envelope_sender}", '"Bounces" <bounces@shop.example>'),
    ],
    ids=lambda value: value if isinstance(value, str) and "{" in value else "",
)
def test_a_template_gives(template: str, value: Any) -> None:
    sent = full_message(
        attachments=[BILL, LOGO],
        alternatives=[AMP, INVITATION],
        envelope_sender=Address("bounces@shop.example", "Bounces"),
        track_opens=False,
        track_clicks=True,
    )
    assert rendered({"x": template}, sent) == {"x": value}


def test_what_an_email_does_not_have_is_left_out() -> None:
    mapping = {
        "a": "{attachments}",
        "b": {"amp": "{amp|content}"},
        "c": ["{calendar|object:type,value}", {"type": "text/plain", "value": "{text}"}],
        "d": "{track_opens|choose:yes,no}",
        "e": "{raw}",
        "f": "{envelope_sender|email}",
    }
    assert rendered(mapping, message()) == {"c": [{"type": "text/plain", "value": "Thank you."}]}


@pytest.mark.parametrize(
    ("attachment", "name"),
    [
        (Attachment(b"x", "", "application/pdf"), "attachment.pdf"),
        (Attachment(b"x", "", "image/png", "logo@shop.example"), "logo.png"),
        (Attachment(b"x", "", "x-private/thing"), "attachment"),
    ],
)
def test_a_file_without_a_name_gets_one_as_most_apis_want_it(attachment: Attachment, name: str) -> None:
    assert rendered(DEFAULT_BODY, message(attachments=[attachment]))["attachments"][0]["filename"] == name


def test_an_empty_file_is_a_file() -> None:
    made = rendered(DEFAULT_BODY, message(attachments=[Attachment(b"", "empty.txt", "text/plain")]))
    assert made["attachments"] == [{"filename": "empty.txt", "content": "", "content_type": "text/plain"}]


def test_sendgrids_list_of_contents_takes_other_forms_in_their_order() -> None:
    contents = [SENDGRID["content"][0], "{amp|object:type,value}", SENDGRID["content"][1]]  # type: ignore[index]
    made = rendered({"content": contents}, full_message(alternatives=[AMP]))
    assert [content["type"] for content in made["content"]] == ["text/plain", "text/x-amp-html", "text/html"]


@pytest.mark.parametrize(
    ("mapping", "complaint"),
    [
        ({"a": "{attachments|email}"}, "a: {attachments|email}: 'email' can't be used on attachments"),
        (
            {"a": "{attachments|object:Name}"},
            "a: {attachments|object:Name}: 'object' takes 0 or 2 or 3 or 4 or 5 names",
        ),
        ({"a": "{amp|object:a,b,c}"}, "a: {amp|object:a,b,c}: 'object' takes 0 or 2 names"),
        ({"a": "{track_opens|choose:yes}"}, "a: {track_opens|choose:yes}: 'choose' takes 2 names"),
        ({"a": "see {track_opens}"}, "a: {track_opens} is not text"),
        ({"a": "see {attachments}"}, "a: {attachments} is not text"),
        ({"a": "see {amp}"}, "a: {amp} is not text"),
    ],
    ids=str,
)
def test_a_mapping_that_can_not_work_is_refused_with_its_place(mapping: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(complaint)):
        Body(mapping)


def test_an_object_without_a_content_id_has_no_place_for_what_the_html_shows() -> None:
    nameless = Body({"a": "{attachments|object:name,content,type}"})
    assert (nameless.takes("files"), nameless.takes("inline")) == (float("inf"), 0)
    skipped = Body({"a": "{attachments|object:name,content,type,-,disposition}"})
    assert (skipped.takes("files"), skipped.takes("inline")) == (float("inf"), 0)
    assert Body({"a": "{attachments|object:name,content,type,id}"}).takes("inline") == float("inf")


def test_options_are_laid_over_the_body_table_by_table() -> None:
    mapping = {"subject": "{subject}", "settings": {"track": True, "pool": "a"}, "list": [1]}
    made = rendered(mapping, message(), settings={"pool": "b", "deep": {"x": 1}}, list=[2], stream="bulk")
    assert made == {
        "subject": "Your order",
        "settings": {"track": True, "pool": "b", "deep": {"x": 1}},
        "list": [2],
        "stream": "bulk",
    }


def test_options_never_replace_who_gets_the_message_or_which_one_it_is() -> None:
    mapping = {
        "key": "k",
        "message": {"to": "{to}", "subject": "{subject}", "data": {"id": "{id}", "n": 1}},
        "list": [{"bcc": "{bcc}"}],
        "metadata": "{metadata}",
    }
    body = Body(mapping)
    assert body.taken({"key": "j", "message": {"subject": "x", "important": True, "data": {"n": 2}}, "new": {}}) == []
    asked = {"message": {"to": ["eve@example.com"], "data": {"id": "other"}}, "list": [], "metadata": {"order": "43"}}
    assert body.taken(asked) == ["message.to", "message.data.id", "list", "metadata"]
    assert body.taken({"message": "x"}) == ["message"]
