"""Header lines: what two parsers read back is what was given, and what is ASCII stays as it is."""

from __future__ import annotations

from email import message_from_bytes, policy
from email.header import decode_header, make_header
from email.utils import getaddresses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.address import Address
from posthouse.providers.mime import message_bytes
from posthouse.providers.mime_headers import address_header, ascii_domain, filename_parameters, header_line
from tests.providers.messages import ADA, message
from tests.providers.mime_readers import parsed, read_by_python
from tests.providers.test_mime_properties import LINES, NAMES

unhurried = settings(deadline=None, print_blob=True)

SUBJECTS = [
    "",
    " ",
    "plain",
    " spaces at the edges  ",
    "two  spaces",
    "Grüße ✉",
    "=?utf-8?q?fake?=",
    "a =?utf-8?b?eA==?= b",
    "=?utf-8?q?a b?=",
    "what =? and ?= mean",
    "ü" * 300,
    "✉" * 998,
    "x" * 998,
    "long " * 199,
    "two  spaces " * 83,
    "👩‍👩‍👧 " * 30,
    "é\N{COMBINING ACUTE ACCENT}\N{NO-BREAK SPACE}\N{IDEOGRAPHIC SPACE}",
]


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda text: text[:20])
def test_a_subject_comes_back_exactly_as_it_was(subject: str) -> None:
    content = message_bytes(message(subject=subject))
    assert parsed(content)["Subject"] == subject
    assert max(map(len, content.split(b"\r\n"))) <= 998


@pytest.mark.parametrize("subject", ["Grüße ✉ " * 40, "x" * 998, "ü" * 998])
def test_encoded_words_keep_to_their_length_and_split_no_character(subject: str) -> None:
    lines = header_line("Subject", subject).split("\r\n")
    assert max(map(len, lines)) <= 76
    words = [line.removeprefix("Subject:").strip() for line in lines]
    assert max(map(len, words)) <= 75
    assert "".join(str(make_header(decode_header(word))) for word in words) == subject


@pytest.mark.parametrize(
    ("subject", "encoding"), [("Grüße an Ada Lovelace", "q"), ("日本語のメール", "b"), ("=?utf-8?q?x?=", "b")]
)
def test_the_shorter_encoding_is_taken(subject: str, encoding: str) -> None:
    assert header_line("Subject", subject).startswith(f"Subject: =?utf-8?{encoding}?")


@pytest.mark.parametrize("length", [1, 70, 600, 998 - len("List-Unsubscribe: ")])
def test_a_header_of_printable_ascii_stays_on_one_line_as_it_is(length: int) -> None:
    url = "<https://shop.example/u?a=?&b=" + "x" * length
    value = url[: length - 1] + ">"
    content = message_bytes(message(headers=(("List-Unsubscribe", value),)))
    assert f"\r\nList-Unsubscribe: {value}\r\n".encode() in content


def test_a_longer_one_is_folded_between_its_words_and_nowhere_else() -> None:
    references = " ".join(f"<{number}@shop.example>" for number in range(100))
    line = header_line("References", references)
    assert line.replace("\r\n", "") == f"References: {references}"
    assert max(map(len, line.split("\r\n"))) <= 76


def test_headers_keep_their_order_and_their_number() -> None:
    headers = (("X-One", "1"), ("List-Id", "<l.shop.example>"), ("X-One", "2"), ("x-one", "3"))
    read = parsed(message_bytes(message(headers=headers)))
    assert [(name, value) for name, value in read.items() if name.lower() in ("x-one", "list-id")] == list(headers)


# Names and addresses.

NAMES_TO_SURVIVE = [
    "Ada",
    "Ada Lovelace",
    "Ada  Lovelace",
    " Ada ",
    "Dr. Ada",
    'Doe, Jane "JD"',
    "back\\slash",
    "a@b; <c>",
    "Zoë",
    "Zoë, Jane; <z@x.example>",
    "=?utf-8?q?fake?=",
    "✉ " * 40,
    "ü, " * 70,
    "Doe, " * 50,
    "word " * 50,
]


@pytest.mark.parametrize("name", NAMES_TO_SURVIVE, ids=lambda text: text[:20])
def test_a_name_never_changes_the_address_and_comes_back_as_it_was(name: str) -> None:
    given = (Address("ada@example.com", name), Address("bob@example.com"), Address("cy@example.com", name))
    read = read_by_python(message_bytes(message(to=given)))
    assert read.addresses["To"] == [(address.name, address.email) for address in given]


@unhurried
@given(
    st.lists(st.builds(Address, st.sampled_from(["ada@example.com", "bob@example.com"]), NAMES), min_size=1, max_size=4)
)
def test_names_survive_a_program_that_writes_the_message_anew(given: list[Address]) -> None:
    first = "".join(address_header("To", given))
    read = [Address(email, str(make_header(decode_header(name)))) for name, email in getaddresses([first[4:]])]
    assert read == given
    assert "".join(address_header("To", read)) == first
    content = f"{first}\r\n\r\n".encode()
    for program in (policy.SMTP, policy.compat32.clone(linesep="\r\n")):
        assert message_from_bytes(content, policy=program).as_bytes() == content


@pytest.mark.parametrize("name", ["Ada", "Dr. Ada", "Zoë"])
def test_only_the_name_is_encoded_never_the_address(name: str) -> None:
    header = address_header("To", [Address("ada@example.com", name)])
    assert header.endswith(" <ada@example.com>")


def test_a_long_list_is_folded_between_addresses() -> None:
    header = address_header("To", [Address(f"person-{number}@example.com", "Doe, Jane") for number in range(50)])
    assert max(map(len, header.split("\r\n"))) <= 78


def test_a_quoted_part_before_the_at_stands_in_angle_brackets() -> None:
    header = address_header("To", [Address('"a, b"@example.com')])
    assert header == 'To: <"a, b"@example.com>'


def test_only_domains_are_turned_into_a_labels() -> None:
    assert ascii_domain(Address("müller@bücher.example")) == "müller@xn--bcher-kva.example"
    assert "ada@xn--bcher-kva.example" in message_bytes(message(to=(Address("ada@bücher.example"),))).decode("ascii")


def test_a_non_ascii_part_before_the_at_is_the_only_thing_that_stays_utf_8() -> None:
    content = message_bytes(message(to=(Address("müller@bücher.example", "Müller"),), subject="Grüße"))
    not_ascii = [line.decode() for line in content.split(b"\r\n") if not line.isascii()]
    assert not_ascii == ["To: =?utf-8?q?M=C3=BCller?= <müller@xn--bcher-kva.example>"]
    assert read_by_python(content).addresses["To"] == [("Müller", "müller@xn--bcher-kva.example")]


def test_a_message_without_visible_recipients_says_so() -> None:
    assert b"\r\nTo: undisclosed-recipients:;\r\n" in message_bytes(message(to=(), bcc=(ADA,)))


# Filenames.


@pytest.mark.parametrize(
    ("filename", "in_type", "in_disposition"),
    [
        ("", "", ""),
        ("invoice 42.pdf", ';\r\n name="invoice 42.pdf"', ';\r\n filename="invoice 42.pdf"'),
        ("lögo.png", ';\r\n name="=?utf-8?b?bMO2Z28ucG5n?="', ";\r\n filename*=utf-8''l%C3%B6go.png"),
        ('a"b\\c;.txt', ';\r\n name="=?utf-8?b?YSJiXGM7LnR4dA==?="', ";\r\n filename*=utf-8''a%22b%5Cc%3B.txt"),
    ],
)
def test_a_filename_goes_out_for_old_and_new_programs(filename: str, in_type: str, in_disposition: str) -> None:
    assert filename_parameters(filename) == (in_type, in_disposition)


def test_a_long_filename_is_split_between_characters() -> None:
    _, parameter = filename_parameters("日本語" * 40)
    lines = parameter.split(";\r\n")[1:]
    assert [line.partition("=")[0] for line in lines[:2]] == [" filename*0*", " filename*1*"]
    assert max(map(len, lines)) <= 76
    for line in lines:
        assert len(line.rpartition("=")[2].rpartition("'")[2]) % len("%E6%97%A5") == 0


@unhurried
@given(LINES)
def test_any_header_comes_back_exactly_as_it_was(value: str) -> None:
    content = f"{header_line('X-Any', value)}\r\n\r\n".encode("ascii")
    assert message_from_bytes(content, policy=policy.default)["X-Any"] == value
