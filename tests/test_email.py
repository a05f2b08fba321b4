"""The message model: everything bad is refused with its field and its reason; everything good survives storage."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from email_validator import validate_email
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.address import _PLAIN, Address
from posthouse.content import Content
from posthouse.email import (
    CONTENT_BYTES_MAX,
    HEADERS_MAX,
    RECIPIENTS_MAX,
    RESERVED_HEADERS,
    CheckedEmail,
    Email,
)
from posthouse.errors import CallerError, InvalidEmail
from posthouse.fields import METADATA_MAX, TAGS_MAX

unhurried = settings(deadline=None, print_blob=True)


def written(**changes: Any) -> Email:
    fields: dict[str, Any] = {"key": "order-1042-receipt", "to": "ada@example.com", "subject": "Hi", "text": "Hello."}
    return Email(**(fields | changes))


def templated(**changes: Any) -> Email:
    fields: dict[str, Any] = {"key": "order-1042-receipt", "to": "ada@example.com", "template": "receipt"}
    return Email(**(fields | changes))


def refusal(email: Email) -> InvalidEmail:
    with pytest.raises(InvalidEmail) as caught:
        email.checked()
    return caught.value


class Lazy(str):
    """Text that makes up its words when they are asked for, as translations do."""

    def __str__(self) -> str:
        return "made up now"


class Echo(str):
    """A subclass that stays one through str()."""

    def __str__(self) -> str:
        return self


class Kind(str, Enum):  # noqa: UP042  (the form that is still everywhere)
    RECEIPT = "receipt"


class NewKind(StrEnum):
    RECEIPT = "receipt"


class NoOffset(tzinfo):
    def utcoffset(self, _when: datetime | None) -> timedelta | None:
        return None

    dst = utcoffset

    def tzname(self, _when: datetime | None) -> str | None:
        return None


INJECTIONS = ["x\r\nBcc: eve@example.com", "x\nBcc: eve@example.com", "x\ry", "x\x00y", "x\x1fy", "x\x85y", "x\u2028y"]


# What goes into a header.


@pytest.mark.parametrize("text", INJECTIONS)
@pytest.mark.parametrize(
    ("field", "put"),
    [
        ("subject", lambda text: written(subject=text)),
        ("to", lambda text: written(to=f"{text} <ada@example.com>")),
        ("to", lambda text: written(to=f"ada@example.com{text}")),
        ("to[0] (the name)", lambda text: written(to=[Address("ada@example.com", text)])),
        ("cc[1]", lambda text: written(cc=["bob@example.com", text])),
        ("bcc", lambda text: written(bcc=text)),
        ("reply_to (the name)", lambda text: written(reply_to=Address("ada@example.com", text))),
        ("sender", lambda text: written(sender=f'"{text}" <shop@example.com>')),
        ("headers.X-Order", lambda text: written(headers={"X-Order": text})),
        ("headers", lambda text: written(headers={text: "1042"})),
        ("tags", lambda text: written(tags=["shop", text])),
        ("metadata.order", lambda text: written(metadata={"order": text})),
        ("metadata", lambda text: written(metadata={text: "1042"})),
        ("key", lambda text: written(key=text)),
        ("after", lambda text: written(after=text)),
        ("type", lambda text: written(type=text)),
        ("service", lambda text: written(service=text)),
        ("template", lambda text: templated(template=text)),
    ],
)
def test_nothing_that_could_start_another_header_gets_in(field: str, put: Any, text: str) -> None:
    assert refusal(put(text)).field == field


@pytest.mark.parametrize("text", ["half \ud83d an emoji", "a NUL\x00"])
@pytest.mark.parametrize(
    ("field", "put"),
    [
        ("text", lambda text: written(text=text)),
        ("html", lambda text: written(html=text)),
        ("subject", lambda text: written(subject=text)),
        ("to (the name)", lambda text: written(to=Address("ada@example.com", text))),
        ("to", lambda text: written(to=f"{text} <ada@example.com>")),
        ("tags", lambda text: written(tags=[text])),
        ("metadata.note", lambda text: written(metadata={"note": text})),
        ("headers.X-Note", lambda text: written(headers=[("X-Note", text)])),
        ("variables.note", lambda text: templated(variables={"note": text})),
        ("variables.note[0].deep", lambda text: templated(variables={"note": [{"deep": text}]})),
        ("variables.note (a key)", lambda text: templated(variables={"note": {text: 1}})),
        ("variables", lambda text: templated(variables={text: 1})),
        ("key", lambda text: written(key=text)),
    ],
)
def test_text_that_some_database_cannot_store_is_refused(field: str, put: Any, text: str) -> None:
    error = refusal(put(text))
    assert error.field == field
    str(error).encode()  # the message itself can be logged


@pytest.mark.parametrize("name", ["X Order", "X:Order", "", "Ürgent", "X" * 77, "X\tOrder"])
def test_what_is_no_header_name_is_refused(name: str) -> None:
    assert refusal(written(headers={name: "1"})).field == "headers"


@pytest.mark.parametrize("name", sorted(RESERVED_HEADERS))
def test_headers_that_stand_in_fields_of_their_own_are_refused_in_any_spelling(name: str) -> None:
    for spelling in (name, name.title(), name.upper()):
        error = refusal(written(headers={spelling: "x"}))
        assert (error.field, error.reason) == (f"headers.{spelling}", "is set from the email's own fields")


@pytest.mark.parametrize("headers", ["X-A: 1", 5, [("X-A",)], ["XY"], [("X-A", "1", "2")], {("X-A", "1")}, {"X-A": 5}])
def test_headers_of_another_shape_are_refused(headers: Any) -> None:
    assert refusal(written(headers=headers)).field.startswith("headers")


def test_headers_keep_their_order_and_may_repeat() -> None:
    headers = [("List-Unsubscribe", "<mailto:u@example.com>"), ("X-A", "1"), ("X-A", "2")]
    assert written(headers=headers).checked().content.headers == tuple(headers)
    assert written(headers=dict(headers[:2])).checked().content.headers == tuple(headers[:2])


# Addresses.


@pytest.mark.parametrize("field", ["to", "cc", "bcc", "reply_to"])
def test_several_addresses_in_one_text_are_refused_with_the_way_out(field: str) -> None:
    error = refusal(written(**{field: "ada@example.com, bob@example.com"}))
    assert error.field == field
    assert "several addresses are given as a list" in error.reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ada",
        "@example.com",
        "ada@",
        "ada@exa mple.com",
        "ada@-example.com",
        "ada@example..com",
        "a@b@example.com",
        "<ada@example.com",
        "ada@example.com>",
        "Ada <>",
        "Ada <ada@example.com> x",
        "Doe, Jane <jane@example.com>",
        '"Ada <ada@example.com>',
        "<@a,@b:c@d.example>",
        "a> SIZE=1@x.example",
        "ada@[127.0.0.1]",
        f"ada@{'a' * 64}.com",
        f"{'a' * 250}@example.com",
        f"{'n' * 257} <ada@example.com>",
        f"{' ' * 5000}<",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    assert refusal(written(to=[text])).field.startswith("to[0]")


def test_a_name_that_needs_quotes_says_so() -> None:
    assert "double quotes" in refusal(written(to="Doe, Jane <jane@example.com>")).reason


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("ada@example.com", Address("ada@example.com")),
        ("  ada@example.com ", Address("ada@example.com")),
        ("<ada@example.com>", Address("ada@example.com")),
        ("Ada Lovelace <ada@example.com>", Address("ada@example.com", "Ada Lovelace")),
        ("Ada<ada@example.com>", Address("ada@example.com", "Ada")),
        ("Zoë <zoe@example.com>", Address("zoe@example.com", "Zoë")),
        ("Dr. Who (BBC) <who@example.com>", Address("who@example.com", "Dr. Who (BBC)")),
        ("ශ්‍රී <sri@example.com>", Address("sri@example.com", "ශ්‍රී")),
        ("👩‍👩‍👧 <us@example.com>", Address("us@example.com", "👩‍👩‍👧")),
        (r'"Doe, Jane \"JD\"" <j@x.example>', Address("j@x.example", 'Doe, Jane "JD"')),
        ('"a,b" <ada@example.com>', Address("ada@example.com", "a,b")),
        ('"a,b"@example.com', Address('"a,b"@example.com')),
        ('"<x>"@example.com', Address('"<x>"@example.com')),
        ("ada@EXAMPLE.com", Address("ada@example.com")),
        ("müller@bücher.example", Address("müller@bücher.example")),
        ("ada@shop.test", Address("ada@shop.test")),
    ],
)
def test_an_address_is_read_as_people_write_it(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert written(to=text).checked().content.to == (address,)


def test_a_long_foreign_name_with_a_comma_is_still_one_recipient() -> None:
    ada = Address("ada@example.com", "ж" * 35 + "," + "ё" * 34)
    assert Address.parse(str(ada)) == ada
    content = written(to=ada).checked().content
    assert content.to == Content.from_json(content.to_json()).to == (ada,)


names = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=60) | st.sampled_from(
    ['"', "\\", '\\"', "a, b", "<a@b.example>", "(c)", " padded ", "=?utf-8?q?x?=", "@", ";"]
)
emails = st.sampled_from(
    ["ada@example.com", '"a,b"@example.com', r'"a\"b"@example.com', '"<x>"@example.com', "müller@bücher.example"]
)


@unhurried
@given(names, emails)
def test_every_address_reads_back_as_it_was_written(name: str, email: str) -> None:
    address = Address(email, name).checked("to")
    assert Address.parse(str(address)) == address


@unhurried
@given(st.text(st.sampled_from('ab@.,;<>"\\ \t\r\n()é'), max_size=30))
def test_no_text_makes_the_address_parser_do_anything_but_refuse(text: str) -> None:
    try:
        address = Address.parse(text)
    except InvalidEmail:
        return
    assert Address.parse(str(address)) == address
    assert not any(character in str(address) for character in "\r\n\t")


@pytest.mark.parametrize("address", [Address("Ada <ada@example.com>"), Address("ada"), Address("", "Ada")])
def test_a_structured_address_is_checked_like_any_other(address: Address) -> None:
    assert refusal(written(to=[address])).field == "to[0]"


@pytest.mark.parametrize(
    "value", [None, 5, b"ada@example.com", {"ada@example.com": "Ada"}, {"ada@example.com"}, [5], [[]]]
)
def test_recipients_of_another_kind_are_refused(value: Any) -> None:
    assert refusal(written(to=value)).field in ("to", "to[0]")


def test_an_email_without_recipients_is_refused() -> None:
    error = refusal(written(to=[]))
    assert (error.field, error.reason) == ("to", "no recipient")


def test_a_blind_copy_alone_is_a_recipient() -> None:
    assert written(to=(), bcc="ada@example.com").checked().content.recipients == (Address("ada@example.com"),)


def test_too_many_recipients_are_refused_across_all_three_lists() -> None:
    addresses = [f"user{n}@example.com" for n in range(RECIPIENTS_MAX)]
    assert len(written(to=addresses).checked().content.recipients) == RECIPIENTS_MAX
    assert refusal(written(to=addresses, bcc="one@example.com")).field == "to"


# Keys, types, times.


@pytest.mark.parametrize("key", ["", "   ", " padded", "padded ", "\u00a0", "k" * 191, None, 1042, b"key"])
def test_a_key_that_cannot_name_one_email_is_refused(key: Any) -> None:
    assert refusal(written(key=key)).field == "key"


@pytest.mark.parametrize("key", ["k", "k" * 190, "order 1042", "заказ-1042", "ORDER-1042", "💌"])
def test_a_key_is_kept_exactly(key: str) -> None:
    assert written(key=key).checked().key == key


@pytest.mark.parametrize("word", ["", "Receipt", "receipt/shop", "-receipt", "re ceipt", "r" * 64, "réçu", 5, None])
def test_what_is_no_type_is_refused(word: Any) -> None:
    assert refusal(written(type=word)).field == "type"


@pytest.mark.parametrize("word", ["Shop", "shop/eu", "", 5])
def test_what_is_no_service_is_refused(word: Any) -> None:
    assert refusal(written(service=word)).field == "service"


def test_an_email_cannot_wait_for_itself() -> None:
    assert refusal(written(key="a", after="a")).field == "after"


@pytest.mark.parametrize("field", ["send_at", "expires"])
@pytest.mark.parametrize(
    "moment", [datetime(2027, 1, 15), datetime(2027, 1, 15, tzinfo=NoOffset()), date(2027, 1, 15), 1.8e9, "tomorrow"]
)
def test_a_time_that_does_not_say_which_is_refused(field: str, moment: Any) -> None:
    assert refusal(written(**{field: moment})).field == field


def test_times_are_kept_as_moments_whatever_their_zone() -> None:
    send_at = datetime(2027, 1, 15, 9, tzinfo=timezone(timedelta(hours=1)))
    checked = written(send_at=send_at, expires=send_at + timedelta(hours=1)).checked()
    assert (checked.send_at, checked.expires) == (1_800_000_000.0, 1_800_003_600.0)


def test_an_email_that_would_expire_before_its_time_is_refused() -> None:
    moment = datetime(2027, 1, 15, tzinfo=UTC)
    assert refusal(written(send_at=moment, expires=moment)).field == "expires"


# Content.


@pytest.mark.parametrize(
    ("email", "field"),
    [
        (written(text=None), "text"),
        (written(subject=None), "subject"),
        (written(subject="s" * 999), "subject"),
        (written(subject=5), "subject"),
        (written(text=b"bytes"), "text"),
        (written(html=5), "html"),
        (written(template="receipt"), "template"),
        (templated(html="<p>"), "template"),
        (written(variables={"order": 1}), "variables"),
        (templated(template="../secrets"), "template"),
        (templated(template="/etc/passwd"), "template"),
        (templated(template="a/../b"), "template"),
        (templated(template=""), "template"),
        (templated(variables=[1]), "variables"),
        (templated(variables={"first name": 1}), "variables"),
        (templated(variables={5: 1}), "variables"),
        (written(tags="shop"), "tags"),
        (written(tags={"b", "a"}), "tags"),
        (written(tags={"a": 1}), "tags"),
        (written(tags=[""]), "tags"),
        (written(tags=[None]), "tags"),
        (written(tags=[5]), "tags"),
        (written(tags=["t" * 129]), "tags"),
        (written(tags=["t"] * (TAGS_MAX + 1)), "tags"),
        (written(metadata=["order"]), "metadata"),
        (written(metadata={"order": 1042}), "metadata.order"),
        (written(metadata={5: "x"}), "metadata"),
        (written(metadata={str(n): "x" for n in range(METADATA_MAX + 1)}), "metadata"),
        (written(headers=[("X-A", "1")] * (HEADERS_MAX + 1)), "headers"),
        (written(text="x" * CONTENT_BYTES_MAX), "content"),
    ],
)
def test_content_that_cannot_be_sent_as_it_is_is_refused(email: Email, field: str) -> None:
    assert refusal(email).field == field


def test_an_empty_subject_is_a_subject_and_a_templated_email_needs_none() -> None:
    assert written(subject="").checked().content.subject == ""
    assert templated().checked().content.subject is None


def test_a_long_subject_in_any_script_is_kept() -> None:
    subject = "Überweisung " * 25
    assert written(subject=subject).checked().content.subject == subject


class Thing:
    pass


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Thing(),
        {1, 2},
        frozenset(),
        datetime(2027, 1, 15, tzinfo=UTC),
        date(2027, 1, 15),
        Decimal("9.99"),
        UUID(int=1),
        b"bytes",
        1j,
        float("nan"),
        float("inf"),
        10**5000,
        range(3),
        (n for n in range(3)),
        len,
        nested(21),
        {1: "a key that is no text"},
        {None: 1},
        [{"deep": [Decimal(1)]}],
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_variable_that_has_no_json_form_is_refused_by_name(value: Any) -> None:
    error = refusal(templated(variables={"order": value}))
    assert error.field.startswith("variables.order")
    assert isinstance(error, CallerError)


def test_a_variable_deep_within_is_named_by_its_place() -> None:
    error = refusal(templated(variables={"order": {"items": [{"price": Decimal("9.99")}]}}))
    assert error.field == "variables.order.items[0].price"
    assert "Decimal" in error.reason


def test_a_list_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "nested" in refusal(templated(variables={"order": endless})).reason


def test_ordinary_variables_are_kept() -> None:
    variables = {
        "order": 1042,
        "paid": True,
        "total": 9.5,
        "items": ["a", {"b": None}],
        "big": 2**64,
        "deep": nested(19),
    }
    assert templated(variables=variables).checked().content.variables == variables


# Freezing.


def test_later_changes_to_the_callers_object_change_nothing() -> None:
    to, tags, metadata, items = ["ada@example.com"], ["shop"], {"order": "1042"}, [{"name": "book"}]
    email = templated(to=to, tags=tags, metadata=metadata, variables={"items": items}, headers={"X-A": "1"})
    checked = email.checked()
    before = checked.stored
    to.append("eve@example.com")
    tags.append("late")
    metadata["order"] = "0"
    items[0]["name"] = "bomb"
    email.subject = "changed"
    assert checked.stored == before == checked.content.to_json()
    assert checked.content.variables == {"items": [{"name": "book"}]}


@pytest.mark.parametrize(
    ("given_text", "kept"),
    [
        (Lazy("source"), "made up now"),
        (Echo("echo"), "echo"),
        (Kind.RECEIPT, "receipt"),
        (NewKind.RECEIPT, "receipt"),
    ],
)
def test_text_of_a_subclass_is_frozen_to_plain_text_everywhere(given_text: str, kept: str) -> None:
    email = templated(
        to=Address("ada@example.com", given_text),
        subject=given_text,
        tags=[given_text],
        headers={"X-Note": given_text},
        metadata={given_text: given_text},
        variables={"note": given_text, "notes": [given_text], "by": {given_text: 1}},
    )
    content = email.checked().content
    found = [
        content.to[0].name,
        content.subject,
        content.tags[0],
        content.headers[0][1],
        *content.metadata,
        *content.metadata.values(),
        content.variables["note"],
        content.variables["notes"][0],
        *content.variables["by"],
    ]
    assert found == [kept] * len(found)
    assert {type(text) for text in found} == {str}
    assert Content.from_json(content.to_json()) == content


def test_a_type_may_be_an_enum_member() -> None:
    assert written(type=Kind.RECEIPT).checked().type == "receipt"


def test_numbers_of_a_subclass_are_frozen_to_plain_numbers() -> None:
    class Count(int):
        pass

    class Price(float):
        pass

    variables = templated(variables={"count": Count(3), "price": Price(9.5)}).checked().content.variables
    assert [type(value) for value in variables.values()] == [int, float]


# The stored form.

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40)
lines = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=40)
addresses = st.builds(Address, emails, lines)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def good_emails(draw: st.DrawFn) -> Email:
    common: dict[str, Any] = {
        "key": "k",
        "to": draw(st.lists(addresses, min_size=1, max_size=3)),
        "cc": draw(st.lists(addresses, max_size=2)),
        "bcc": draw(st.lists(addresses, max_size=2)),
        "reply_to": draw(st.lists(addresses, max_size=1)),
        "sender": draw(st.none() | addresses),
        "headers": draw(st.lists(st.tuples(st.sampled_from(["X-A", "X-B"]), lines), max_size=3)),
        "tags": draw(st.lists(lines.filter(bool), max_size=3)),
        "metadata": draw(st.dictionaries(lines, lines, max_size=3)),
    }
    if draw(st.booleans()):
        variables = draw(st.dictionaries(st.sampled_from(["order", "items", "größe"]), values, max_size=3))
        return Email(**common, template="shop/receipt", subject=draw(st.none() | lines), variables=variables)
    return Email(**common, subject=draw(lines), text=draw(texts), html=draw(st.none() | texts))


@unhurried
@given(good_emails())
def test_everything_that_is_accepted_comes_back_from_storage_as_it_was(email: Email) -> None:
    checked = email.checked()
    again = Content.from_json(checked.stored)
    assert again == checked.content
    assert again.to_json() == checked.stored


DAMAGED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
WHOLE: dict[str, Any] = json.loads(
    replace(
        written(cc="bob@example.com", sender="shop@example.com", html="<p>", headers={"X-A": "1"}, tags=["t"])
        .checked()
        .content,
        template="t",
        variables={"order": 1},
        metadata={"order": "1042"},
        reply_to=(Address("r@example.com"),),
        bcc=(Address("b@example.com", "B"),),
    ).to_json()
)


def assert_sound(content: Content) -> None:
    assert content.recipients
    for address in (*content.recipients, *content.reply_to, *([content.sender] if content.sender else [])):
        assert isinstance(address.email, str)
        assert isinstance(address.name, str)
    assert all(isinstance(text, str | None) for text in (content.subject, content.text, content.html, content.template))
    assert all(isinstance(text, str) for pair in content.headers for text in pair)
    assert all(isinstance(text, str) for text in (*content.tags, *content.metadata, *content.metadata.values()))
    assert isinstance(content.variables, dict)


@unhurried
@given(st.sampled_from(sorted(WHOLE)), DAMAGED)
def test_a_damaged_field_is_a_value_error_or_harmless(field: str, damage: Any) -> None:
    try:
        content = Content.from_json(json.dumps(WHOLE | {field: damage}))
    except ValueError:
        return
    assert_sound(content)


@unhurried
@given(st.sampled_from(sorted(WHOLE)))
def test_a_lost_field_is_a_value_error_or_harmless(field: str) -> None:
    try:
        content = Content.from_json(json.dumps({name: value for name, value in WHOLE.items() if name != field}))
    except ValueError:
        return
    assert_sound(content)


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "not JSON",
        "null",
        "[]",
        "5",
        "{}",
        '{"version":2,"to":[["ada@example.com"]]}',
        '{"version":1}',
        '{"version":1,"to":[]}',
        '{"version":1,"to":"ada@example.com"}',
        '{"version":1,"to":[["\\ud800@example.com"]]}',
        '{"version":1,"to":[["ada@example.com"]],"text":"\\u0000"}',
        '{"version":1,"to":[["ada@example.com"]],"subject":5}',
        "[" * 100_000,
        '{"version":1,"to":' + "9" * 5000 + "}",
    ],
)
def test_damaged_content_is_a_value_error_and_nothing_else(stored: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Content.from_json(stored)


@unhurried
@given(st.text(max_size=60), st.integers(0, 400), st.integers(0, 3))
def test_cut_and_scribbled_content_is_a_value_error_or_harmless(scribble: str, place: int, lost: int) -> None:
    whole = json.dumps(WHOLE)
    try:
        content = Content.from_json(whole[:place] + scribble + whole[place + lost :])
    except ValueError:
        return
    assert_sound(content)


def test_the_stored_form_is_canonical_and_leaves_out_what_is_not_there() -> None:
    assert written().checked().stored == ('{"subject":"Hi","text":"Hello.","to":[["ada@example.com"]],"version":1}')


# The fingerprint.


def fingerprint(email: Email) -> str:
    return email.checked().fingerprint


def test_the_same_email_has_the_same_fingerprint_however_it_was_written() -> None:
    one = written(to="Ada <ada@example.com>", metadata={"a": "1", "b": "2"}, headers={"X-A": "1"})
    other = written(to=[Address("ada@EXAMPLE.com", "Ada")], metadata={"b": "2", "a": "1"}, headers=[("X-A", "1")])
    assert fingerprint(one) == fingerprint(other)


def test_a_retry_with_other_times_is_the_same_email() -> None:
    now = datetime(2027, 1, 15, tzinfo=UTC)
    later = written(send_at=now, expires=now + timedelta(days=1))
    assert fingerprint(written()) == fingerprint(later)


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "receipt"},
        {"service": "shop"},
        {"campaign": "spring"},
        {"after": "order-1041-receipt"},
        {"to": "bob@example.com"},
        {"to": "Ada <ada@example.com>"},
        {"cc": "bob@example.com"},
        {"bcc": "bob@example.com"},
        {"reply_to": "bob@example.com"},
        {"sender": "bob@example.com"},
        {"subject": "Hi!"},
        {"text": "Hello!"},
        {"html": ""},
        {"headers": {"X-A": "1"}},
        {"tags": ["shop"]},
        {"metadata": {"order": "1042"}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_any_other_content_has_another_fingerprint(changes: dict[str, Any]) -> None:
    assert fingerprint(written(**changes)) != fingerprint(written())


def test_a_fingerprint_is_the_same_in_every_release() -> None:
    assert fingerprint(written(service="shop")).startswith("890bfbbcd1f97269")


def test_a_campaign_is_a_short_name_as_a_service_is() -> None:
    assert written(campaign="spring-2027").checked().campaign == "spring-2027"
    for wrong in ("", "Spring", "a/b", "x" * 64):
        with pytest.raises(InvalidEmail, match="campaign"):
            written(campaign=wrong).checked()


def test_type_service_and_campaign_fit_into_one_name() -> None:
    written(type="t" * 60, service="s" * 50, campaign="c" * 50).checked()
    with pytest.raises(InvalidEmail, match="campaign: with type and service"):
        written(type="t" * 60, service="s" * 50, campaign="c" * 51).checked()


def test_a_family_is_any_line_of_text() -> None:
    assert written(family="code:user-42 ü").checked().family == "code:user-42 ü"
    for wrong in ("", " ", "a ", "a\nb", "x" * 191, 7):
        with pytest.raises(InvalidEmail, match="family"):
            written(family=wrong).checked()


def test_a_family_is_no_part_of_what_an_email_says() -> None:
    assert fingerprint(written(family="code:user-42")) == fingerprint(written())


def test_recipients_do_not_move_between_lists_unnoticed() -> None:
    to_cc = written(to="ada@example.com", cc="bob@example.com")
    to_bcc = written(to="ada@example.com", bcc="bob@example.com")
    assert fingerprint(to_cc) != fingerprint(to_bcc)


def test_a_fingerprint_is_the_same_in_every_process_and_release() -> None:
    """Stored rows are compared with it: another one would turn every retry into a reused key."""
    checked: CheckedEmail = written().checked()
    assert checked.fingerprint == "808e086e120212c003bf156da720dba0ec4d2d09fbe82ed04bd1659968f0c25b"


@given(st.from_regex(r"[a-z0-9!#$%&'*+/=?^_`{|}~.-]{1,66}@[A-Za-z0-9.-]{1,70}", fullmatch=True))
def test_the_short_way_through_plain_addresses_agrees_with_the_validator(text: str) -> None:
    if _PLAIN.fullmatch(text) is None:
        return
    found = validate_email(
        text, check_deliverability=False, allow_quoted_local=True, globally_deliverable=False, test_environment=True
    )
    assert Address.parse(text).email == found.normalized


def test_the_short_way_is_really_taken() -> None:
    assert _PLAIN.fullmatch("Ada.Lovelace+shop@Mail.Example.COM")
    for other in (
        "a@b",
        "a@xn--bcher-kva.example",
        "a@-b.example",
        "a..b@c.example",
        f"{'a' * 65}@c.example",
        "é@c.example",
    ):
        assert _PLAIN.fullmatch(other) is None
