"""The bytes of a message: what the standard library's parser reads back is what was given."""

from __future__ import annotations

from email import message_from_bytes, policy
from email.header import decode_header, make_header
from email.message import EmailMessage
from email.utils import getaddresses, parsedate_to_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.address import Address
from posthouse.providers.smtp_message import ascii_domain, message_bytes, message_id_of, needs_smtputf8
from tests.providers.messages import ADA, full_message, message

DATE = 1_800_000_000.0


def built(**changes: Any) -> bytes:
    return message_bytes(message(**changes), "<ph-7@shop.example>", DATE)


def parsed(**changes: Any) -> EmailMessage:
    read = message_from_bytes(built(**changes), policy=policy.default)
    assert isinstance(read, EmailMessage)
    assert not read.defects
    return read


def words(part: EmailMessage) -> str:
    content: str = part.get_content()
    return content


def test_every_part_has_its_place_and_bcc_has_none() -> None:
    content = message_bytes(full_message(), "<ph-7@shop.example>", DATE)
    read = message_from_bytes(content, policy=policy.default)
    assert str(read["From"]) == "Shop <orders@shop.example>"
    assert str(read["To"]) == "Ada <ada@example.com>, bob@example.com"
    assert str(read["Cc"]) == "cc@example.com"
    assert str(read["Reply-To"]) == "Help <help@shop.example>"
    assert read["Message-ID"] == "<ph-7@shop.example>"
    assert parsedate_to_datetime(read["Date"]).timestamp() == DATE
    assert read["X-Order"] == "42"
    assert read.get_content_type() == "multipart/alternative"
    assert [part.get_content_type() for part in read.walk()][1:] == ["text/plain", "text/html"]
    assert b"bcc" not in content.lower()
    assert len(read.keys()) == len(set(read.keys()))


def test_the_same_send_gives_the_same_bytes_and_its_key_is_in_the_message_id() -> None:
    assert built(html="<p>x</p>") == built(html="<p>x</p>")
    assert message_id_of(message()) == "<ph-7@shop.example>"
    assert message_id_of(message(sender=Address("a@bücher.example"))) == "<ph-7@xn--bcher-kva.example>"


@pytest.mark.parametrize(
    "name",
    [
        "Ada",
        "Dr. Ada",
        'Doe, Jane "JD"',
        "back\\slash",
        "a@b; <c>",
        "Zoë",
        "Grüße, " * 10,
        "=?utf-8?q?fake?=",
        "✉ " * 40,
        "Ada  Lovelace",
    ],
)
def test_a_name_never_changes_the_address_and_comes_back_as_it_was(name: str) -> None:
    content = built(to=(Address("ada@example.com", name.strip()), Address("bob@example.com")))
    [(shown, first), (_, second)] = getaddresses([message_from_bytes(content)["To"]])
    assert (first, second) == ("ada@example.com", "bob@example.com")
    # Not by the parser of addresses: it keeps the white space between encoded words, against RFC 2047 section 6.2.
    assert str(make_header(decode_header(" ".join(shown.split())))).split() == name.split()


@pytest.mark.parametrize(
    "subject", ["", "plain", "Grüße ✉", "=?utf-8?q?x?=", "ü" * 300, "long " * 300, " lead", "a  b"]
)
def test_a_subject_comes_back_as_it_was(subject: str) -> None:
    assert parsed(subject=subject)["Subject"].strip() == subject.strip()


def test_a_long_header_of_printable_ascii_stays_literally_as_it_is() -> None:
    url = f"<https://shop.example/u/{'x' * 600}>"
    assert f"\r\nList-Unsubscribe: {url}\r\n".encode() in built(headers=(("List-Unsubscribe", url),))


def test_a_message_without_visible_recipients_says_so() -> None:
    assert b"\r\nTo: undisclosed-recipients:;\r\n" in built(to=(), bcc=(ADA,))


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("plain\n", "7bit"),
        ("a\r\nb\rc\nd", "7bit"),
        ("Grüße\n" + "plain words " * 20, "quoted-printable"),
        ("x" * 5000, "quoted-printable"),
        ("日本語のメール\n" * 20, "base64"),
        ("trailing space \n=\n.\nFrom me\n", "7bit"),
        ("Grüße \n=\n.\nFrom me\n" + "plain words " * 20, "quoted-printable"),
    ],
)
def test_a_text_comes_back_whatever_it_needs(text: str, encoding: str) -> None:
    read = parsed(text=text)
    assert read["Content-Transfer-Encoding"] == encoding
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    assert words(read).replace("\r\n", "\n").rstrip("\n") == lines.rstrip("\n")


def test_a_text_can_not_forge_the_boundary() -> None:
    boundary = parsed(html="<p>x</p>").get_boundary()
    forged = parsed(text=f"--{boundary}--\n", html="<p>x</p>")
    assert forged.get_boundary() != boundary
    assert len(list(forged.iter_parts())) == 2


def test_only_domains_are_turned_into_a_labels() -> None:
    assert ascii_domain(Address("müller@bücher.example")) == "müller@xn--bcher-kva.example"
    assert not needs_smtputf8([Address("ada@bücher.example")])
    assert needs_smtputf8([Address("müller@example.com")])
    assert "ada@xn--bcher-kva.example" in built(to=(Address("ada@bücher.example"),)).decode("ascii")
    assert "müller@example.com".encode() in built(to=(Address("müller@example.com"),))


LINES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=200)


@given(subject=LINES, name=LINES, text=st.text(st.characters(exclude_categories=["Cs"]), max_size=400), html=LINES)
def test_whatever_the_words_the_bytes_keep_to_the_wires_rules(subject: str, name: str, text: str, html: str) -> None:
    content = built(subject=subject, to=(Address("ada@example.com", name), ADA), text=text, html=html)
    assert content.isascii()
    assert content.endswith(b"\r\n")
    lines = content.split(b"\r\n")
    assert max(map(len, lines)) <= 998
    assert not any(b"\r" in line or b"\n" in line or b"\0" in line for line in lines)
    read = message_from_bytes(content, policy=policy.default)
    assert [address.addr_spec for address in read["To"].addresses] == ["ada@example.com"] * 2
    assert [part.get_content_type() for part in read.walk()][1:] == ["text/plain", "text/html"]
