"""What a message that came as it is says, whatever state it is in."""

from __future__ import annotations

from email.message import EmailMessage
from email.policy import SMTP

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posthouse.sandbox.ledger import CaughtFile
from posthouse.sandbox.received import Summary, read_message, read_summary


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

    read = read_message(message.as_bytes())
    body = read.body

    assert (body["from"], body["to"], body["subject"]) == (
        "Grüße & Söhne <shop@shop.example>",
        "ada@example.com",
        "Your order",
    )
    assert (body["text"].strip(), body["html"].strip()) == ("Thank you, Ada. ✓", "<p>Thank you</p>")
    assert ["List-Id", "<orders.shop.example>"] in body["headers"]
    assert read.files == [
        CaughtFile(b"%PDF", "Überblick.pdf", "application/pdf"),
        CaughtFile(b"a note\r\n", "note.txt", "text/plain; charset=utf-8"),
    ]


def test_what_the_html_shows_and_other_forms_of_the_words_are_told_apart() -> None:
    message = EmailMessage(policy=SMTP)
    message.set_content("Come!")
    message.add_alternative("<html amp4email>", subtype="x-amp-html")
    message.add_alternative('<img src="cid:logo@shop.example">', subtype="html")
    message.get_payload()[2].add_related(  # type: ignore[index, union-attr]
        b"PNG", "image", "png", cid="<logo@shop.example>", filename="logo.png", disposition="inline"
    )
    message.add_alternative("BEGIN:VCALENDAR", subtype="calendar", params={"method": "REQUEST"})
    message.add_attachment(b"1,2", maintype="text", subtype="csv", filename="a.csv", params={"header": "absent; no"})

    read = read_message(message.as_bytes())

    assert read.body["alternatives"] == [
        {"content_type": "text/x-amp-html", "content": "<html amp4email>\r\n"},
        {"content_type": "text/calendar; method=REQUEST", "content": "BEGIN:VCALENDAR\r\n"},
    ]
    assert read.files == [
        CaughtFile(b"PNG", "logo.png", "image/png", "logo@shop.example", inline=True),
        CaughtFile(b"1,2", "a.csv", 'text/csv; header="absent; no"'),
    ]


def test_a_message_within_the_message_is_one_attachment() -> None:
    inner = EmailMessage(policy=SMTP)
    inner["Subject"] = "a subject that is rather long, so that a parser which folds it anew would be found out by it"
    inner.set_content("From here on, inner")
    outer = EmailMessage(policy=SMTP)
    outer.set_content("outer")
    outer.add_attachment(inner)

    read = read_message(outer.as_bytes())

    assert read.body["text"].strip() == "outer"
    assert [(file.content_type, file.content) for file in read.files] == [("message/rfc822", inner.as_bytes())]


def test_an_unknown_charset_hides_nothing() -> None:
    raw = b"Content-Type: text/plain; charset=no-such\r\n\r\ncaf\xe9\r\n"
    assert read_message(raw).body["text"] == "café\r\n"


@example(b"subject:=?\x80?q??=")
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
    body = read_message(raw).body
    assert summary.subject == body["subject"] or b"\r\n\r\n" not in raw
