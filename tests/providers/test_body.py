"""JSON bodies by configuration: the shapes of real APIs, what is left out, and what is refused."""

from __future__ import annotations

import json
import re
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.address import Address
from posthouse.providers.body import DEFAULT_BODY, Body
from posthouse.providers.placeholders import FILTERS, PLACEHOLDERS
from posthouse.providers.port import OutgoingMessage
from tests.providers.messages import ADA, BOB, full_message, message


def rendered(mapping: Any, sent: OutgoingMessage, address_format: str = "text") -> Any:
    return json.loads(Body(mapping, address_format).render(sent))


def test_the_default_body_has_every_part() -> None:
    assert rendered(DEFAULT_BODY, full_message()) == {
        "from": '"Shop" <orders@shop.example>',
        "to": ['"Ada" <ada@example.com>', "bob@example.com"],
        "cc": ["cc@example.com"],
        "bcc": ["bcc@example.com"],
        "reply_to": ['"Help" <help@shop.example>'],
        "subject": "Your order",
        "text": "Thank you.",
        "html": "<p>Thank you.</p>",
        "headers": {"X-Order": "42"},
        "tags": ["receipt"],
        "metadata": {"order": "42", "posthouse_id": "ph-7"},
    }


def test_the_default_body_leaves_out_what_is_empty() -> None:
    assert rendered(DEFAULT_BODY, message()) == {
        "from": '"Shop" <orders@shop.example>',
        "to": ['"Ada" <ada@example.com>'],
        "subject": "Your order",
        "text": "Thank you.",
        "metadata": {"posthouse_id": "ph-7"},
    }


def test_addresses_can_be_objects() -> None:
    made = rendered(DEFAULT_BODY, full_message(), "object")
    assert made["from"] == {"email": "orders@shop.example", "name": "Shop"}
    assert made["to"] == [{"email": "ada@example.com", "name": "Ada"}, {"email": "bob@example.com"}]


POSTMARK = {
    "From": "{from}",
    "To": "{to|join}",
    "Cc": "{cc|join}",
    "Bcc": "{bcc|join}",
    "ReplyTo": "{reply_to|join}",
    "Subject": "{subject}",
    "TextBody": "{text}",
    "HtmlBody": "{html}",
    "Tag": "{tags|first}",
    "Metadata": "{metadata}",
    "Headers": "{headers|pairs:Name,Value}",
    "MessageStream": "outbound",
}


def test_postmarks_shape() -> None:
    assert rendered(POSTMARK, full_message()) == {
        "From": '"Shop" <orders@shop.example>',
        "To": '"Ada" <ada@example.com>, bob@example.com',
        "Cc": "cc@example.com",
        "Bcc": "bcc@example.com",
        "ReplyTo": '"Help" <help@shop.example>',
        "Subject": "Your order",
        "TextBody": "Thank you.",
        "HtmlBody": "<p>Thank you.</p>",
        "Tag": "receipt",
        "Metadata": {"order": "42", "posthouse_id": "ph-7"},
        "Headers": [{"Name": "X-Order", "Value": "42"}],
        "MessageStream": "outbound",
    }


SENDGRID = {
    "personalizations": [
        {"to": "{to|object}", "cc": "{cc|object}", "bcc": "{bcc|object}", "custom_args": "{metadata}"}
    ],
    "from": "{from|object}",
    "reply_to_list": "{reply_to|object}",
    "subject": "{subject}",
    "content": [{"type": "text/plain", "value": "{text}"}, {"type": "text/html", "value": "{html}"}],
    "headers": "{headers}",
    "categories": "{tags}",
    "tracking_settings": {"click_tracking": {"enable": False}},
}


def test_sendgrids_shape() -> None:
    made = rendered(SENDGRID, full_message(cc=(), bcc=()))
    assert made["personalizations"] == [
        {
            "to": [{"email": "ada@example.com", "name": "Ada"}, {"email": "bob@example.com"}],
            "custom_args": {"order": "42", "posthouse_id": "ph-7"},
        }
    ]
    assert made["reply_to_list"] == [{"email": "help@shop.example", "name": "Help"}]
    assert made["categories"] == ["receipt"]
    assert made["tracking_settings"] == {"click_tracking": {"enable": False}}


def test_a_part_of_a_list_whose_placeholders_are_empty_is_left_out() -> None:
    made = rendered(SENDGRID, message())
    assert made["content"] == [{"type": "text/plain", "value": "Thank you."}]
    assert "headers" not in made
    assert "categories" not in made


def test_mailjets_shape() -> None:
    mailjet = {
        "Messages": [
            {
                "From": "{from|object:Email,Name}",
                "To": "{to|object:Email,Name}",
                "Cc": "{cc|object:Email,Name}",
                "Bcc": "{bcc|object:Email,Name}",
                "ReplyTo": "{reply_to|first|object:Email,Name}",
                "Subject": "{subject}",
                "TextPart": "{text}",
                "HTMLPart": "{html}",
                "Headers": "{headers}",
                "CustomID": "{id}",
                "EventPayload": "{metadata|json}",
            }
        ]
    }
    assert rendered(mailjet, full_message()) == {
        "Messages": [
            {
                "From": {"Email": "orders@shop.example", "Name": "Shop"},
                "To": [{"Email": "ada@example.com", "Name": "Ada"}, {"Email": "bob@example.com"}],
                "Cc": [{"Email": "cc@example.com"}],
                "Bcc": [{"Email": "bcc@example.com"}],
                "ReplyTo": {"Email": "help@shop.example", "Name": "Help"},
                "Subject": "Your order",
                "TextPart": "Thank you.",
                "HTMLPart": "<p>Thank you.</p>",
                "Headers": {"X-Order": "42"},
                "CustomID": "ph-7",
                "EventPayload": '{"order":"42","posthouse_id":"ph-7"}',
            }
        ]
    }


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{to|email}", ["ada@example.com", "bob@example.com"]),
        ("{to|email|join}", "ada@example.com, bob@example.com"),
        ("{to|email|wrap:address}", [{"address": "ada@example.com"}, {"address": "bob@example.com"}]),
        (
            "{to|object:address,name|wrap:emailAddress}",
            [
                {"emailAddress": {"address": "ada@example.com", "name": "Ada"}},
                {"emailAddress": {"address": "bob@example.com"}},
            ],
        ),
        ("{to|first}", '"Ada" <ada@example.com>'),
        ("{to|first|email}", "ada@example.com"),
        ("{to|name}", ["Ada"]),
        ("{from|email}", "orders@shop.example"),
        ("{from|name}", "Shop"),
        ("{ from | text }", '"Shop" <orders@shop.example>'),
        ("{metadata|pairs}", [{"name": "order", "value": "42"}, {"name": "posthouse_id", "value": "ph-7"}]),
        ("{headers|pairs:key,value}", [{"key": "X-Order", "value": "42"}]),
        ("{headers|json}", '{"X-Order":"42"}'),
        ("{tags|join}", "receipt"),
        ("{tags|first|wrap:name}", {"name": "receipt"}),
        ("Re: {subject}", "Re: Your order"),
        ("{from|name} via {id}", "Shop via ph-7"),
        ("by {from} for {to|join}", 'by "Shop" <orders@shop.example> for "Ada" <ada@example.com>, bob@example.com'),
        ("{{{id}}}", "{ph-7}"),
        ("{{id}}", "{id}"),
        (3, 3),
        (True, True),
        (None, None),
        ([1, "two"], [1, "two"]),
    ],
    ids=str,
)
def test_a_template_gives(template: Any, value: Any) -> None:
    assert rendered({"x": template}, full_message()) == {"x": value}


def test_words_whose_placeholders_are_all_empty_are_left_out() -> None:
    bare = message(sender=Address("a@shop.example"), text=None)
    mapping = {"name": "{from|name} (shop)", "both": "{from|name}{id}", "text": "{text}!", "to": "{to|first|name}"}
    assert rendered(mapping, bare) == {"both": "ph-7", "to": "Ada"}


def test_an_empty_subject_or_text_is_sent_as_it_is() -> None:
    made = rendered({"subject": "{subject}", "text": "{text}"}, message(subject="", text=""))
    assert made == {"subject": "", "text": ""}


def test_constants_stay_even_when_they_are_empty() -> None:
    assert rendered({"a": [], "b": {}, "c": "", "d": {"e": [{"f": 1}]}}, message()) == {
        "a": [],
        "b": {},
        "c": "",
        "d": {"e": [{"f": 1}]},
    }


def test_names_with_commas_and_quotes_stay_one_recipient() -> None:
    sent = message(to=(Address("j@x.example", 'Doe, Jane "JD"'), BOB))
    assert rendered({"to": "{to|join}"}, sent) == {"to": '"Doe, Jane \\"JD\\"" <j@x.example>, bob@example.com'}


def test_a_domain_goes_out_in_ascii() -> None:
    sent = message(to=(Address("müller@bücher.example", "Müller"),))
    assert rendered({"a": "{to}", "b": "{to|object}"}, sent) == {
        "a": ['"Müller" <müller@xn--bcher-kva.example>'],
        "b": [{"email": "müller@xn--bcher-kva.example", "name": "Müller"}],
    }


def test_the_bytes_are_compact_utf8() -> None:
    assert Body({"s": "{subject}", "n": 1}).render(message(subject="Grüße ✉")) == '{"s":"Grüße ✉","n":1}'.encode()


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=6), st.randoms(use_true_random=False))
def test_the_same_send_gives_the_same_bytes_in_whatever_order_its_metadata_came(
    metadata: dict[str, str], chance: Any
) -> None:
    shuffled = list(metadata.items())
    chance.shuffle(shuffled)
    body = Body(DEFAULT_BODY)
    assert body.render(message(metadata=metadata)) == Body(DEFAULT_BODY).render(message(metadata=dict(shuffled)))


@pytest.mark.parametrize(
    ("mapping", "complaint"),
    [
        ({"a": {"b": ["{sujbect}"]}}, "a.b.0: there is no placeholder {sujbect}; did you mean 'subject'?"),
        ({"a": "{zzz}"}, "a: there is no placeholder {zzz} (there are: from, to,"),
        ({"a": "{to|frist}"}, "a: {to|frist}: there is no filter 'frist'; did you mean 'first'?"),
        ({"a": "{subject|email}"}, "a: {subject|email}: 'email' can't be used on text"),
        ({"a": "{from|first}"}, "a: {from|first}: 'first' is for lists"),
        ({"a": "{to|pairs}"}, "a: {to|pairs}: 'pairs' can't be used on addresses"),
        ({"a": "{to|object:Email}"}, "a: {to|object:Email}: 'object' takes 0 or 2 names after a colon"),
        ({"a": "{to|email|wrap}"}, "a: {to|email|wrap}: 'wrap' takes 1 names after a colon"),
        ({"a": "{to|object:Email,}"}, "a: {to|object:Email,}: 'object' takes 0 or 2 names after a colon"),
        ({"a": "for {to}"}, "a: {to} is not text; within other words"),
        ({"a": "with {metadata}"}, "a: {metadata} is not text; within other words"),
        ({"a": "{subject"}, "a: a single brace; a literal one is written twice"),
        ({"a": "{}"}, "a: there is no placeholder {}"),
        ({"a": date(2026, 1, 1)}, "a: a date has no form in JSON"),
    ],
    ids=str,
)
def test_a_mapping_that_can_not_work_is_refused_with_its_place(mapping: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(complaint)):
        Body(mapping)


def test_a_body_knows_how_many_of_each_part_it_takes() -> None:
    body = Body({"to": "{to|first}", "tag": "{tags|first}", "all": "{tags}", "s": "{subject}"})
    assert (body.takes("to"), body.takes("tags"), body.takes("cc")) == (1, float("inf"), 0)


def test_the_documentation_names_every_placeholder_and_filter(docs_page: str) -> None:
    for name in PLACEHOLDERS:
        assert f"`{{{name}}}`" in docs_page, name
    for name in FILTERS:
        assert f"`{name}" in docs_page, name


def test_one_address_and_a_list_of_one_are_told_apart() -> None:
    assert rendered({"a": "{from}", "b": "{to}"}, message(to=(ADA,))) == {
        "a": '"Shop" <orders@shop.example>',
        "b": ['"Ada" <ada@example.com>'],
    }
