"""Which sends go out as one, and what that one says."""

from __future__ import annotations

from typing import Any

import pytest

from posthouse.address import Address
from posthouse.attachment import Alternative, Attachment
from posthouse.content import Content, StoredFile
from posthouse.core.combining import CHARS_MAX, DIGEST_CHARS_MAX, Gathered, digests, refusal

NOW = 1_800_000_000.0
ADA = Address("ada@example.com", "Ada")


def content(**fields: Any) -> Content:
    return Content(**{"to": (ADA,), "template": "news"} | fields)


def gathered(number: int, due: bool = False, life_s: float = 3600.0, chars: int = 100, **fields: Any) -> Gathered:
    """A send that says its number."""
    said = content(**{"variables": {"n": number}} | fields)
    return Gathered(number, said.to[0].folded, NOW + life_s, said, chars, due)


def numbers(said: Content) -> list[int]:
    return [item["n"] for item in said.items]


def test_all_that_wait_join_the_first_that_is_due() -> None:
    (digest,) = digests([gathered(3), gathered(1, due=True), gathered(2, due=True)], NOW)

    assert (digest.carrier, digest.joined, numbers(digest.content)) == (1, (2, 3), [1, 2, 3])
    assert digest.content.variables == {"n": 1}


def test_nothing_goes_out_before_the_first_is_due() -> None:
    assert digests([gathered(1), gathered(2)], NOW) == []


def test_an_older_one_whose_time_was_put_off_joins_and_keeps_its_place() -> None:
    (digest,) = digests([gathered(1), gathered(2, due=True)], NOW)

    assert (digest.carrier, digest.joined, numbers(digest.content)) == (2, (1,), [1, 2])


def test_one_alone_stays_as_it_is() -> None:
    assert digests([gathered(1, due=True)], NOW) == []


def test_each_recipient_has_a_digest_of_their_own() -> None:
    bob = Address("bob@example.com")
    found = [gathered(1, due=True), gathered(2, to=(bob,), due=True), gathered(3), gathered(4, to=(bob,))]

    assert [(digest.carrier, digest.joined) for digest in digests(found, NOW)] == [(1, (3,)), (2, (4,))]


def test_what_carried_others_brings_them_along() -> None:
    earlier = gathered(1, items=({"n": 1}, {"n": 2}))

    (digest,) = digests([earlier, gathered(3, due=True)], NOW)

    assert numbers(digest.content) == [1, 2, 3]


@pytest.mark.parametrize(
    "fields",
    [
        {"template": "other"},
        {"subject": "Another"},
        {"sender": Address("other@shop.example")},
        {"reply_to": (ADA,)},
        {"headers": (("X-Thing", "7"),)},
        {"options": {"smtp": {"dsn_notify": ["never"]}}},
    ],
)
def test_what_would_go_out_in_another_way_does_not_join(fields: dict[str, Any]) -> None:
    assert digests([gathered(1, due=True), gathered(2, **fields)], NOW) == []


def test_what_a_template_does_not_see_keeps_nobody_apart() -> None:
    other = gathered(
        2, to=(Address("ADA@example.com"),), tags=("b",), metadata={"order": "7"}, message_id="<b@shop.example>"
    )

    assert len(digests([gathered(1, due=True, tags=("a",)), other], NOW)) == 1


@pytest.mark.parametrize(("life_s", "joins"), [(1799.0, False), (1800.0, True), (7200.0, True), (7201.0, False)])
def test_only_those_that_live_about_as_long_share_one_life(life_s: float, joins: bool) -> None:
    made = digests([gathered(1, due=True), gathered(2, life_s=life_s)], NOW)

    assert [digest.expires_at for digest in made] == ([NOW + min(3600.0, life_s)] if joins else [])


def test_those_that_do_not_fit_make_another_digest() -> None:
    half = DIGEST_CHARS_MAX // 2
    found = [gathered(number, due=True, chars=half) for number in (1, 2, 3, 4)]

    assert [(digest.carrier, digest.joined) for digest in digests(found, NOW)] == [(1, (2,)), (3, (4,))]


def test_an_email_that_a_template_makes_for_one_recipient_can_be_combined() -> None:
    assert refusal(content(), CHARS_MAX) is None


FILE = StoredFile.of(Attachment(b"x", "x.txt"))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"template": None, "subject": "Hi", "text": "Hi"}, "template"),
        ({"template": None, "raw": FILE}, "template"),
        ({"to": (ADA, Address("bob@example.com"))}, "to"),
        ({"cc": (ADA,)}, "to"),
        ({"to": (), "bcc": (ADA,)}, "to"),
        ({"attachments": (FILE,)}, "attachments"),
        ({"alternatives": (Alternative("x", "text/markdown"),)}, "alternatives"),
        ({"variables": {"items": []}}, "variables.items"),
        ({"variables": {"count": 1}}, "variables.count"),
    ],
)
def test_what_would_be_lost_in_a_digest_is_refused_and_never_combined(fields: dict[str, Any], field: str) -> None:
    refused = refusal(content(**fields), 100)
    assert refused is not None
    assert refused[0] == field
    if content(**fields).to:
        assert digests([gathered(1, due=True, **fields), gathered(2, **fields)], NOW) == []


def test_what_is_too_large_for_a_digest_is_refused() -> None:
    assert (refusal(content(), CHARS_MAX + 1) or ("", ""))[0] == "variables"
