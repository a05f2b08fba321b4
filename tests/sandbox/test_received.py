"""What a message that came as it is says, whatever state it is in."""

from __future__ import annotations

from email.message import EmailMessage
from email.policy import SMTP

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.sandbox.received import Summary, read_body, read_summary


@pytest.mark.parametrize(
    ("head", "summary"),
    [
        (b"Subject: Hi\r\nMessage-ID: <order-1@shop.example>\r\n", Summary("Hi", "order-1")),
        (b"subject: Hi\r\nX-Posthouse-Id: 0192\r\nMessage-ID: <order-1@shop.example>\r\n", Summary("Hi", "0192")),
        (b"Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n", Summary("Grüße", None)),
        ("Subject: Grüße\r\n".encode(), Summary("Grüße", None)),
        (b"Subject: a\r\n folded one\r\nMessage-ID:\r\n <long@shop.example>\r\n", Summary("a folded one", "long")),
        (b"Subject: =?nonsense?q?x?=\r\n", Summary("=?nonsense?q?x?=", None)),
        (b"", Summary("", None)),
    ],
)
def test_the_subject_and_the_key_are_read_from_the_headers(head: bytes, summary: Summary) -> None:
    assert read_summary(head + b"\r\nSubject: not this one\r\n") == summary


def test_a_message_of_many_parts_is_taken_apart() -> None:
    message = EmailMessage(policy=SMTP)
    message["From"] = "Grüße & Söhne <shop@shop.example>"
    message["To"] = "ada@example.com"
    message["Subject"] = "Your order"
    message["List-Id"] = "<orders.shop.example>"
    message.set_content("Thank you, Ada. ✓")
    message.add_alternative("<p>Thank you</p>", subtype="html")
    message.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="Überblick.pdf")
    message.add_attachment("a note", filename="note.txt")

    body = read_body(message.as_bytes())

    assert (body["from"], body["to"], body["subject"]) == (
        "Grüße & Söhne <shop@shop.example>",
        "ada@example.com",
        "Your order",
    )
    assert (body["text"].strip(), body["html"].strip()) == ("Thank you, Ada. ✓", "<p>Thank you</p>")
    assert ["List-Id", "<orders.shop.example>"] in body["headers"]
    assert body["attachments"] == [
        {"filename": "Überblick.pdf", "content_type": "application/pdf", "size": 4},
        {"filename": "note.txt", "content_type": "text/plain", "size": len(b"a note\r\n")},
    ]


def test_a_message_within_the_message_is_one_attachment() -> None:
    inner = EmailMessage(policy=SMTP)
    inner.set_content("inner")
    outer = EmailMessage(policy=SMTP)
    outer.set_content("outer")
    outer.add_attachment(inner)

    body = read_body(outer.as_bytes())

    assert body["text"].strip() == "outer"
    assert [one["content_type"] for one in body["attachments"]] == ["message/rfc822"]


def test_an_unknown_charset_hides_nothing() -> None:
    raw = b"Content-Type: text/plain; charset=no-such\r\n\r\ncaf\xe9\r\n"
    assert read_body(raw)["text"] == "café\r\n"


@given(
    st.binary(max_size=200)
    | st.lists(
        st.sampled_from(
            [
                b"Content-Type: multipart/mixed; boundary=x\r\n",
                b"--x\r\n",
                b"--x--\r\n",
                b"\r\n",
                b"Subject: =?",
                b"?q?",
                b"Content-Transfer-Encoding: base64\r\n",
                b"=?=",
                b"\xff",
                b"Content-Type: message/rfc822\r\n",
                b"a\r\n",
            ]
        ),
        max_size=12,
    ).map(b"".join)
)
def test_no_message_is_an_error(raw: bytes) -> None:
    summary = read_summary(raw)
    body = read_body(raw)
    assert summary.subject == body["subject"] or b"\r\n\r\n" not in raw
