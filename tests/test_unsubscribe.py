"""The link by which somebody unsubscribes: what a token says, who can make one, and which messages carry it."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.address import Address
from posthouse.config import Config, parse_config
from posthouse.content import Content, StoredFile
from posthouse.core.policy import type_policies
from posthouse.email import Email
from posthouse.errors import ConfigError
from posthouse.providers.mime import message_bytes
from posthouse.unsubscribe import UnsubscribeLinks, Unsubscription, signed, unsubscribe_links, verified
from posthouse.worker.rendering import Renderer
from tests.providers.mime_readers import parsed

SECRET = "s" * 32
ADA = Address("ada@example.com", "Ada")
SHOP = Address("shop@example.com", "Shop")
LINKS = UnsubscribeLinks(frozenset({"newsletter"}), SECRET, "https://mail.shop.example/")

words = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=60)
wishes = st.builds(Unsubscription, words, words, words)
secrets = st.text(string.printable, min_size=16, max_size=64)

WISH = Unsubscription("ik-7", "type newsletter", "Ada@Example.com")


# The token.


@given(wishes, secrets)
def test_a_token_says_what_was_signed(wish: Unsubscription, secret: str) -> None:
    assert verified(signed(wish, secret), [secret]) == wish


@given(wishes, st.data())
def test_a_token_that_was_changed_anywhere_says_nothing(wish: Unsubscription, data: st.DataObject) -> None:
    token = signed(wish, SECRET)
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from(string.ascii_letters + string.digits + "-_=+/. é").filter(token[place].__ne__))

    assert verified(token[:place] + other + token[place + 1 :], [SECRET]) is None


def test_every_character_of_a_token_counts() -> None:
    token = signed(WISH, SECRET)
    for place, was in enumerate(token):
        for other in string.ascii_letters + string.digits + "-_":
            if other != was:
                assert verified(token[:place] + other + token[place + 1 :], [SECRET]) is None


@pytest.mark.parametrize("changed", [lambda t: t[:-1], lambda t: t + "A", lambda t: t + "=", lambda t: t[1:]])
def test_a_token_that_was_cut_or_lengthened_says_nothing(changed: Any) -> None:
    assert verified(changed(signed(WISH, SECRET)), [SECRET]) is None


@given(st.text(max_size=900))
def test_whatever_else_is_given_says_nothing(text: str) -> None:
    assert verified(text, [SECRET]) is None
    assert verified("1" + text, [SECRET]) is None


def test_while_a_secret_is_replaced_links_of_both_count_and_those_of_none_afterwards() -> None:
    before, after = signed(WISH, "old" * 8), signed(WISH, "new" * 8)

    assert [verified(token, ["new" * 8, "old" * 8]) for token in (before, after)] == [WISH, WISH]
    assert [verified(token, ["new" * 8]) for token in (before, after)] == [None, WISH]
    assert verified(after, []) is None


# The message.


def content(**fields: Any) -> Content:
    return Content(**({"to": (ADA,), "subject": "News", "text": "Hi"} | fields))


def headers(made: Content) -> dict[str, str]:
    return dict(made.headers)


def test_a_message_to_one_person_carries_the_link_of_its_own() -> None:
    made = LINKS.added(content(headers=(("X-A", "1"),)), "newsletter", "ik-7")

    token = headers(made)["List-Unsubscribe"].removeprefix("<https://mail.shop.example/unsubscribe/").removesuffix(">")
    assert verified(token, [SECRET]) == Unsubscription("ik-7", "type newsletter", "ada@example.com")
    assert [name for name, _ in made.headers] == ["X-A", "List-Unsubscribe", "List-Unsubscribe-Post"]
    assert headers(made)["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"


def test_every_call_has_the_same_bytes(tmp_path: Path) -> None:
    renderer = Renderer(tmp_path, SHOP, LINKS)

    def once() -> bytes:
        stored = renderer.content(content().to_json(), "newsletter", "ik-7")
        return message_bytes(renderer.message(7, "ik-7", stored, 1_800_000_000.0))

    assert once() == once()
    assert parsed(once())["List-Unsubscribe"].startswith("<https://mail.shop.example/unsubscribe/1")


def test_the_longest_link_is_one_line(tmp_path: Path) -> None:
    links = UnsubscribeLinks(frozenset({"n" * 63}), SECRET, "https://" + "h" * 192, "leave@shop.example")
    renderer = Renderer(tmp_path, SHOP, links)
    longest = Address("é" * 32 + "@" + "d" * 60 + ".example")
    stored = renderer.content(content(to=(longest,)).to_json(), "n" * 63, "k" * 32)
    lines = message_bytes(renderer.message(7, "k" * 32, stored, 1_800_000_000.0)).split(b"\r\n")

    (line,) = [line for line in lines if line.startswith(b"List-Unsubscribe: ")]
    assert line.startswith(b"List-Unsubscribe: <https://")
    assert b">" in line
    assert max(map(len, lines)) <= 998


def test_the_emails_own_header_wins_and_its_template_still_has_the_link() -> None:
    made = LINKS.added(content(headers=(("list-unsubscribe", "<mailto:u@example.com>"),)), "newsletter", "ik-7")

    assert made.headers == (("list-unsubscribe", "<mailto:u@example.com>"),)
    assert made.variables["unsubscribe_url"].startswith("https://mail.shop.example/unsubscribe/1")


def test_half_a_pair_of_the_emails_own_is_replaced() -> None:
    made = LINKS.added(content(headers=(("list-unsubscribe-post", "x"),)), "newsletter", "ik-7")

    assert [name for name, _ in made.headers] == ["List-Unsubscribe", "List-Unsubscribe-Post"]


@pytest.mark.parametrize("field", ["to", "cc", "bcc"])
def test_a_message_to_several_has_no_link_that_one_could_use_for_another(field: str) -> None:
    others = {"to": (ADA, Address("eve@example.com"))} if field == "to" else {field: (Address("eve@example.com"),)}
    several = content(**others)

    assert LINKS.added(several, "newsletter", "ik-7") == several


def test_neither_does_one_that_goes_to_a_single_one_of_several_who_are_shown() -> None:
    left = content(to=(ADA, Address("eve@example.com")), envelope_to=("ada@example.com",))

    assert LINKS.added(left, "newsletter", "ik-7") == left


def test_mail_of_other_types_and_finished_messages_stay_as_they_are() -> None:
    finished = Content(to=(ADA,), raw=StoredFile("d", 7))

    assert LINKS.added(content(), "receipt", "ik-7") == content()
    assert LINKS.added(finished, "newsletter", "ik-7").headers == ()


def test_a_template_shows_the_link(tmp_path: Path) -> None:
    (tmp_path / "news.txt").write_text("Leave: {{ unsubscribe_url }}")
    renderer = Renderer(tmp_path, SHOP, LINKS)

    def text(**fields: Any) -> str | None:
        stored = Content(to=(ADA,), subject="News", template="news", **fields).to_json()
        return renderer.message(7, "ik-7", renderer.content(stored, "newsletter", "ik-7"), 1.0).text

    assert (text() or "").startswith("Leave: https://mail.shop.example/unsubscribe/1")
    assert text(variables={"unsubscribe_url": "mine"}) == "Leave: mine"
    assert (text(items=({"n": 1}, {"n": 2})) or "").startswith("Leave: https://")


def test_an_address_for_mail_programs_that_know_no_links_stands_behind_it() -> None:
    links = UnsubscribeLinks(frozenset({"news"}), SECRET, "https://mail.shop.example", "leave+us@shop.example")
    value = headers(links.added(content(), "news", "ik-7"))["List-Unsubscribe"]

    link, mailto = value.split(", ")
    assert link.startswith("<https://")
    assert mailto == "<mailto:leave%2Bus@shop.example?subject=unsubscribe%20ada@example.com%20from%20news>"


# The configuration.

WEB = {"public_url": "https://mail.shop.example", "unsubscribe_secrets": [SECRET]}


def config(web: dict[str, Any], **types: dict[str, Any]) -> Config:
    return parse_config({"database": "sqlite://", "web": web, "types": types}, environment={})


def linked(web: dict[str, Any], **types: dict[str, Any]) -> set[str]:
    return {policy.name for policy in type_policies(config(web, **types)).values() if policy.unsubscribe_link}


def test_marketing_mail_has_links_where_they_can_be_signed_unless_its_type_says_otherwise() -> None:
    types: dict[str, dict[str, Any]] = {
        "news": {"category": "marketing"},
        "offers": {"category": "marketing", "unsubscribe": True},
        "own": {"category": "marketing", "unsubscribe": False},
        "receipt": {},
    }

    assert linked(WEB, **types) == {"news", "offers"}
    assert linked({}, news={"category": "marketing"}) == set()
    assert unsubscribe_links(config({}).web, []) is None


@pytest.mark.parametrize(
    ("web", "type_", "setting", "reason"),
    [
        ({**WEB, "public_url": "http://mail.shop.example"}, {}, "web.unsubscribe_secrets", "need a public_url such as"),
        ({**WEB, "public_url": "https://bücher.example"}, {}, "web.unsubscribe_secrets", "need a public_url such as"),
        ({**WEB, "public_url": "https://a.example/>"}, {}, "web.unsubscribe_secrets", "need a public_url such as"),
        ({**WEB, "public_url": "https://" + "a" * 193}, {}, "web.public_url", "has at most 200"),
        ({"unsubscribe_secrets": [SECRET]}, {}, "web.unsubscribe_secrets", "need a public_url such as"),
        ({"unsubscribe_mailto": "a@b.example"}, {}, "web.unsubscribe_mailto", "stands beside the link"),
        ({**WEB, "unsubscribe_mailto": "é@b.example"}, {}, "web.unsubscribe_mailto", "must be in ASCII"),
        (WEB, {"unsubscribe": True}, "types.t.unsubscribe", "stops `marketing` mail alone"),
        ({}, {"unsubscribe": True, "category": "marketing"}, "types.t.unsubscribe", "needs web.public_url and"),
    ],
)
def test_links_that_could_not_work_are_refused(
    web: dict[str, Any], type_: dict[str, Any], setting: str, reason: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        config(web, t=type_)

    assert refused.value.setting == setting
    assert refused.value.reason.startswith(reason)


@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        ("short", "one of them has less than 16 characters; make one with: openssl rand -hex 32"),
        ("env:POSTHOUSE_NO_SUCH", "the environment variable POSTHOUSE_NO_SUCH is not set"),
    ],
)
def test_a_secret_that_is_none_is_named_without_showing_it(secret: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        unsubscribe_links(config({**WEB, "unsubscribe_secrets": [SECRET, secret]}).web, ["news"])

    assert (refused.value.setting, refused.value.reason) == ("web.unsubscribe_secrets", reason)


# The way in: `test_outbox.py` has what is refused there.


def test_an_email_is_stored_without_the_link() -> None:
    stored = Email(key="k", to="ada@example.com", subject="s", text="t", type="newsletter").checked().stored

    assert "unsubscribe" not in stored
