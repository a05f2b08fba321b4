"""The bytes of a message: what stands in what, and how each part travels."""

from __future__ import annotations

from base64 import b64decode
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from posthouse.address import Address
from posthouse.attachment import Alternative, Attachment
from posthouse.providers.mime import message_bytes, message_id_of
from tests.providers.messages import full_message, message
from tests.providers.mime_readers import Leaf, Tree, leaves, parsed, read_by_python, read_by_rust

LOGO = Attachment(b"\x89PNG", "logo.png", "image/png", "logo")
PDF = Attachment(b"%PDF", "invoice.pdf", "application/pdf")
INVITATION = Alternative.calendar("BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n")


def kinds(tree: Tree) -> Any:
    """The tree without what is in its leaves."""
    kind, inside = tree
    return kind if isinstance(inside, Leaf) else {kind: [kinds(part) for part in inside]}


def shape(**changes: Any) -> Any:
    return kinds(read_by_python(message_bytes(message(**changes))).tree)


def first(**changes: Any) -> Leaf:
    return leaves(read_by_python(message_bytes(message(**changes))).tree)[0][1]


# What stands in what.


def test_words_alone_need_no_multipart() -> None:
    assert shape(text="a", html=None) == "text/plain"
    assert shape(text=None, html="a") == "text/html"
    assert shape(text=None, html=None) == "text/plain"


def test_the_forms_of_the_words_stand_in_order_the_best_one_last() -> None:
    others = [INVITATION, Alternative("# a", "text/markdown"), Alternative.amp("<html amp4email>")]
    assert shape(text="a", html="b", alternatives=others) == {
        "multipart/alternative": ["text/plain", "text/x-amp-html", "text/html", "text/markdown", "text/calendar"]
    }


def test_images_stand_with_the_html_and_files_beside_the_words() -> None:
    assert shape(text="a", html="b", attachments=[PDF, LOGO], alternatives=[INVITATION]) == {
        "multipart/mixed": [
            {
                "multipart/alternative": [
                    "text/plain",
                    {"multipart/related": ["text/html", "image/png"]},
                    "text/calendar",
                ]
            },
            "application/pdf",
        ]
    }


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"text": "a", "attachments": [PDF]}, {"multipart/mixed": ["text/plain", "application/pdf"]}),
        ({"html": "b", "attachments": [LOGO]}, {"multipart/related": ["text/html", "image/png"]}),
        (
            {"html": "b", "attachments": [LOGO, PDF]},
            {"multipart/mixed": [{"multipart/related": ["text/html", "image/png"]}, "application/pdf"]},
        ),
        ({"attachments": [PDF]}, "application/pdf"),
        ({"attachments": [PDF, PDF]}, {"multipart/mixed": ["application/pdf", "application/pdf"]}),
        ({"alternatives": [INVITATION]}, "text/calendar"),
    ],
)
def test_there_is_no_multipart_of_one(given: dict[str, Any], wanted: Any) -> None:
    assert shape(**({"text": None, "html": None} | given)) == wanted


def test_an_image_that_no_html_shows_is_a_file_and_stays_inline() -> None:
    read = read_by_python(message_bytes(message(text="a", attachments=[LOGO])))
    assert kinds(read.tree) == {"multipart/mixed": ["text/plain", "image/png"]}
    assert leaves(read.tree)[1][1] == Leaf(b"\x89PNG", "inline", "logo.png", "logo")


def test_a_related_names_the_type_of_its_first_part() -> None:
    assert parsed(message_bytes(message(text=None, html="b", attachments=[LOGO]))).get_param("type") == "text/html"


def test_a_text_can_not_forge_the_boundary() -> None:
    boundary = parsed(message_bytes(message(html="b"))).get_boundary()
    forged = parsed(message_bytes(message(text=f"--{boundary}--\n", html="b")))
    assert forged.get_boundary() != boundary
    assert len(list(forged.iter_parts())) == 2


# The head.


def test_every_part_has_its_place_and_bcc_has_none() -> None:
    content = message_bytes(full_message(date=1_800_000_000.0))
    read = parsed(content)
    names = ["Date", "From", "To", "Cc", "Reply-To", "Subject", "Message-ID", "X-Order", "MIME-Version", "Content-Type"]
    assert read.keys() == names
    assert str(read["From"]) == "Shop <orders@shop.example>"
    assert str(read["To"]) == "Ada <ada@example.com>, bob@example.com"
    assert str(read["Cc"]) == "cc@example.com"
    assert str(read["Reply-To"]) == "Help <help@shop.example>"
    assert read["Message-ID"] == "<ph-7@shop.example>"
    assert parsedate_to_datetime(read["Date"]).timestamp() == 1_800_000_000.0
    assert read["X-Order"] == "42"
    assert b"bcc" not in content.lower()


def test_the_same_send_gives_the_same_bytes() -> None:
    parts = {"html": "b", "attachments": [PDF, LOGO]}
    assert message_bytes(full_message(**parts)) == message_bytes(full_message(**parts))


def test_the_message_id_is_the_given_one_or_made_of_the_key() -> None:
    assert message_id_of(message()) == "<ph-7@shop.example>"
    assert message_id_of(message(sender=Address("a@bücher.example"))) == "<ph-7@xn--bcher-kva.example>"
    assert (
        parsed(message_bytes(message(message_id="<order-42@shop.example>")))["Message-ID"] == "<order-42@shop.example>"
    )


def test_a_finished_message_goes_out_as_it_is() -> None:
    raw = b"Subject: H\xc3\xa4\r\n\r\n\xff\r\n"
    assert message_bytes(message(raw=raw)) == raw


# How the words travel.


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("plain\n", "7bit"),
        ("a\r\nb\rc\nd", "7bit"),
        ("x" * 998, "7bit"),
        ("trailing space \n=\n.\nFrom me\n", "7bit"),
        ("Grüße\n" + "plain words " * 20, "quoted-printable"),
        ("x" * 999, "quoted-printable"),
        ("Grüße \n=\n.\nFrom me\n" + "plain words " * 20, "quoted-printable"),
        ("trailing tab\t\nü" + "plain words " * 20, "quoted-printable"),
        ("日本語のメール\n" * 20, "base64"),
    ],
)
def test_a_text_comes_back_whatever_it_needs(text: str, encoding: str) -> None:
    content = message_bytes(message(text=text))
    assert parsed(content)["Content-Transfer-Encoding"] == encoding
    lines = text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")
    for read in (read_by_python, read_by_rust):
        assert leaves(read(content).tree)[0][1].content.removesuffix(b"\r\n") == lines.removesuffix("\r\n").encode()


def test_in_a_multipart_the_last_line_of_a_text_ends_as_it_was_given() -> None:
    for text in ("a", "a\n", "a\n\n", "ü", "ü\n"):
        content = message_bytes(message(text=text, html="b"))
        assert leaves(read_by_rust(content).tree)[0][1].content == text.replace("\n", "\r\n").encode()


def test_a_text_of_templates_may_hold_anything() -> None:
    assert first(text="a\0b\x0bc\x1b", html="b").content == b"a\0b\x0bc\x1b"
    assert b"\0" not in message_bytes(message(text="a\0b"))


def test_an_alternative_keeps_its_parameters() -> None:
    _, part = parsed(message_bytes(message(alternatives=[INVITATION]))).iter_parts()
    assert part["Content-Type"] == 'text/calendar; method="REQUEST"; charset="us-ascii"'


# How files travel.


def test_a_file_of_text_keeps_its_bytes_its_line_ends_too() -> None:
    content = b"a\r\nb\nc\rd \n\n\xff"
    file = Attachment(content, "odd.txt", "text/plain; charset=iso-8859-1")
    read = leaves(read_by_python(message_bytes(message(attachments=[file]))).tree)[1][1]
    assert read == Leaf(content, "attachment", "odd.txt")


@pytest.mark.parametrize("size", [1, 56, 57, 58, 57 * 256 - 1, 57 * 256, 57 * 256 + 1, 57 * 512, 100_000])
def test_a_file_of_any_size_has_lines_of_76_characters(size: int) -> None:
    given = bytes(number % 251 for number in range(size))
    content = message_bytes(message(text=None, attachments=[Attachment(given, "numbers")]))
    body = content.partition(b"\r\n\r\n")[2]
    *whole, last = body.removesuffix(b"\r\n").split(b"\r\n")
    assert {len(line) for line in whole} <= {76}
    assert 0 < len(last) <= 76
    assert b64decode(body) == given


def test_a_file_may_be_empty_nameless_or_named_like_another() -> None:
    files = [Attachment(b""), Attachment(b"1", "a.txt"), Attachment(b"2", "a.txt"), Attachment(b"", "empty.bin")]
    read = leaves(read_by_rust(message_bytes(message(attachments=files))).tree)[1:]
    assert [(leaf.content, leaf.filename) for _, leaf in read] == [(f.content, f.filename) for f in files]
    assert {kind for kind, _ in read} == {"application/octet-stream"}


def test_a_part_keeps_its_own_headers_and_parameters() -> None:
    file = Attachment(b"a,b", "a.csv", "text/csv; header=present", headers=(("Content-Language", "de"), ("X-A", "ü")))
    part = next(parsed(message_bytes(message(attachments=[file]))).iter_attachments())
    assert part["Content-Type"].params["header"] == "present"
    assert (part["Content-Language"], part["X-A"]) == ("de", "ü")


# A message within the message.


def attached(inner: bytes) -> bytes:
    return message_bytes(message(attachments=[Attachment(inner, "mail.eml", "message/rfc822")]))


def test_an_attached_message_is_never_encoded() -> None:
    inner = message_bytes(full_message(subject="Grüße", attachments=[PDF])).removesuffix(b"\r\n")
    content = attached(inner)
    assert inner in content
    assert content.isascii()
    assert leaves(read_by_rust(content).tree)[1] == ("message/rfc822", Leaf(inner, "attachment", "mail.eml"))


def test_the_line_ends_of_an_attached_message_become_those_of_mail() -> None:
    assert b"\r\n\r\nSubject: a\r\n\r\nb\r\nc\r\n--" in attached(b"Subject: a\n\nb\rc")


def test_an_attached_message_with_8_bit_bytes_stays_as_it_is_and_says_so() -> None:
    content = attached("Subject: a\r\n\r\nGrüße".encode())
    assert "Grüße".encode() in content
    outer = parsed(content)
    assert outer["Content-Transfer-Encoding"] == "8bit"
    assert [part["Content-Transfer-Encoding"] for part in outer.iter_parts()] == ["7bit", "8bit"]


@pytest.mark.parametrize("inner", [b"Subject: a\r\n\r\n" + b"x" * 999, b"Subject: a\r\n\r\n\0"])
def test_an_attached_message_that_no_server_takes_goes_out_as_a_file_of_bytes(inner: bytes) -> None:
    content = attached(inner)
    assert content.isascii()
    for read in (read_by_python, read_by_rust):
        assert leaves(read(content).tree)[1] == ("application/octet-stream", Leaf(inner, "attachment", "mail.eml"))
