"""Suppression: which cause stops what, what news brings, and that an address is the same however it is written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.address import Address, fold
from posthouse.core.events import Cause, Event, EventKind
from posthouse.core.lifecycle import Status
from posthouse.core.policy import Category
from posthouse.core.sends import SendState
from posthouse.core.settlement import suppress
from posthouse.core.suppression import (
    AFTER_BOUNCE,
    FOR_GOOD,
    STOPS,
    About,
    After,
    Suppress,
    Suppression,
    SuppressionCause,
    SuppressionPolicy,
    after_bounce,
    parse_scope,
    remedy,
    stopped,
    stopping,
    what_follows,
    why_not,
)

NOW = 1_772_323_200.0  # 2026-03-01
S, T, M = Category.SECURITY, Category.TRANSACTIONAL, Category.MARKETING
ONE = About("receipt", T, ("ada@example.com",))


def suppression(
    cause: SuppressionCause = SuppressionCause.MANUAL, scope: str = "", until: float | None = None, reason: str = ""
) -> Suppression:
    return Suppression(1, "ada@example.com", cause, scope, until, reason, "grace", NOW)


def bounce(cause: Cause = Cause.NO_MAILBOX, *, hard: bool = True, **fields: str) -> Event:
    return Event(EventKind.BOUNCED, NOW, **{"recipient": "Ada@Example.com"} | fields, cause=cause, hard=hard)


def follows(event: Event, about: About = ONE, policy: SuppressionPolicy = FOR_GOOD) -> Suppress | None:
    return what_follows(event, about, policy, "main", NOW)


@pytest.mark.parametrize(
    ("cause", "stops"),
    [
        (SuppressionCause.HARD_BOUNCE, {S, T, M}),
        (SuppressionCause.COMPLAINT, {T, M}),
        (SuppressionCause.UNSUBSCRIBE, {M}),
        (SuppressionCause.MANUAL, {S, T, M}),
    ],
)
def test_each_cause_stops_just_these_categories(cause: SuppressionCause, stops: set[Category]) -> None:
    assert {each for each in Category if suppression(cause).stops("any", each)} == stops


def test_every_cause_and_every_reason_to_bounce_is_in_its_table_with_a_reason() -> None:
    assert set(STOPS) == set(SuppressionCause)
    assert set(AFTER_BOUNCE) == set(Cause)
    assert all(each.why for each in STOPS.values())
    assert all(each.why for each in AFTER_BOUNCE.values())


@pytest.mark.parametrize(
    ("scope", "stops"),
    [
        ("type newsletter", {"newsletter"}),
        ("category marketing", {"newsletter", "offers"}),
        ("type receipt", {"receipt"}),
        ("", {"newsletter", "offers", "receipt", "code"}),
    ],
)
def test_a_scope_narrows_it(scope: str, stops: set[str]) -> None:
    types = {"newsletter": M, "offers": M, "receipt": T, "code": S}
    assert {name for name, category in types.items() if suppression(scope=scope).stops(name, category)} == stops


@pytest.mark.parametrize("scope", [" type  newsletter ", "category security", ""])
def test_a_scope_is_a_type_a_category_or_everything(scope: str) -> None:
    assert parse_scope(scope) == " ".join(scope.split())


@pytest.mark.parametrize("scope", ["newsletter", "type", "type *", "type Newsletter", "category news", "route main"])
def test_another_scope_is_refused_with_what_is_possible(scope: str) -> None:
    with pytest.raises(ValueError, match=r"`type NAME`, `category NAME`|is no category"):
        parse_scope(scope)


def test_one_that_has_run_out_stops_nothing() -> None:
    brief = suppression(until=NOW + 10)
    assert stopping([brief], "receipt", T, NOW + 9.9) is brief
    assert stopping([brief], "receipt", T, NOW + 10) is None


def test_of_several_the_gravest_is_told() -> None:
    known = [suppression(SuppressionCause(cause)) for cause in ("manual", "complaint", "hard_bounce", "unsubscribe")]
    assert stopping(known, "newsletter", M, NOW) == known[2]
    assert stopping(known[:2], "code", S, NOW) == known[0]


NEVER = (Cause.GREYLISTED, Cause.TOO_FAST, Cause.BLOCKED, Cause.NOT_AUTHENTIC, Cause.CONTENT, Cause.AUTO_REPLY)
LATER = (Cause.MAILBOX_FULL, Cause.EXPIRED, Cause.UNREACHABLE)


@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize("cause", [*NEVER, *LATER])
def test_what_is_no_fault_of_the_address_never_suppresses_it(cause: Cause, hard: bool) -> None:
    assert follows(bounce(cause, hard=hard)) is None
    assert after_bounce(bounce(cause, hard=hard)) is (After.NOTHING if cause in NEVER else After.REVIEW)


def test_a_reason_says_no_code_twice() -> None:
    made = follows(bounce(code="550 5.1.1", text="550-5.1.1 no such user"))
    assert made is not None
    assert made.reason == "550-5.1.1 no such user"


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause not in (*NEVER, *LATER)])
def test_a_bounce_suppresses_only_where_the_provider_calls_it_hard(cause: Cause) -> None:
    assert follows(bounce(cause, code="550 5.1.1", text="no such user")) == Suppress(
        "ada@example.com", SuppressionCause.HARD_BOUNCE, "", None, "550 5.1.1 no such user", "main"
    )
    assert follows(bounce(cause, hard=False)) is None


@given(st.sampled_from(EventKind), st.sampled_from(Cause), st.booleans())
def test_nothing_but_a_bounce_a_complaint_and_an_unsubscription_suppresses(
    kind: EventKind, cause: Cause, hard: bool
) -> None:
    made = follows(Event(kind, NOW, "ada@example.com", cause=cause, hard=hard))
    allowed = {EventKind.BOUNCED, EventKind.COMPLAINED, EventKind.UNSUBSCRIBED}
    assert made is None or kind in allowed


def test_a_hard_bounce_lasts_as_long_as_is_configured() -> None:
    made = follows(bounce(), policy=SuppressionPolicy(hard_bounce_for_s=60.0))
    assert made is not None
    assert made.until == NOW + 60.0


@pytest.mark.parametrize(("category", "stops"), [(M, {M}), (S, {M}), (T, {M, T}), (None, {M, T})])
def test_a_complaint_stops_marketing_and_such_mail_as_it_was_about_but_never_security(
    category: Category | None, stops: set[Category]
) -> None:
    made = follows(Event(EventKind.COMPLAINED, NOW, "ada@example.com"), About("some", category))
    assert made is not None
    written = suppression(made.cause, made.scope)
    assert {each for each in Category if written.stops("other", each)} == stops


def test_an_unsubscription_is_about_its_own_kind_of_mail() -> None:
    event = Event(EventKind.UNSUBSCRIBED, NOW, "ada@example.com")
    scopes = [
        made.scope
        for about in (About("newsletter", M), About("receipt", T), About())
        if (made := follows(event, about)) is not None
    ]
    assert scopes == ["type newsletter", "", ""]


def test_only_the_recipient_that_is_named_is_meant() -> None:
    two = About("receipt", T, ("ada@example.com", "bob@example.com"))
    made = follows(bounce(recipient="bob@example.com"), two)
    assert made is not None
    assert made.address == "bob@example.com"
    assert follows(bounce(recipient=""), two) is None
    alone = follows(bounce(recipient=""), ONE)
    assert alone is not None
    assert alone.address == "ada@example.com"
    assert follows(bounce(recipient="not an address")) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Foo@Example.COM", "foo@example.com"),
        ("ada@bücher.example", "ada@xn--bcher-kva.example"),
        ("ada@BÜCHER.example", "ada@bücher.example"),
        ("MÜLLER@bücher.example", "müller@bücher.example"),
        ("mu\N{COMBINING DIAERESIS}ller@example.com", "müller@example.com"),
    ],
)
def test_an_address_is_the_same_however_it_is_written(one: str, other: str) -> None:
    assert fold(one) == fold(other)
    assert Address(one).folded == Address(other).folded


@given(st.text(max_size=40))
def test_folding_takes_whatever_a_provider_says_and_folding_again_changes_nothing(said: str) -> None:
    once = fold(said)
    assert fold(once) == once


@pytest.mark.parametrize(("code", "text"), [("550 5.1.1", "No such user."), ("550 5.1.1", "550 5.1.1 No such user.")])
def test_the_reply_code_stands_once_in_what_the_receiver_said(code: str, text: str) -> None:
    made = follows(bounce(code=code, text=text))
    assert made is not None
    assert made.reason == "550 5.1.1 No such user."


def test_the_reason_is_one_sentence_with_the_way_out() -> None:
    complaint = suppression(SuppressionCause.COMPLAINT, "category marketing", reason="about newsletter mail")
    assert why_not({"Ada@example.com": complaint}) == (
        "not sent: Ada@example.com complained on 2026-03-01, for marketing mail (about newsletter mail); "
        "unsuppress with: posthouse unsuppress Ada@example.com"
    )
    manual = suppression(reason="asked\nby phone")
    assert "was suppressed on 2026-03-01 by grace (asked by phone), and so for 1 more;" in why_not(
        {"ada@example.com": manual, "bob@example.com": manual}
    )


def test_the_command_can_be_pasted_whatever_the_address() -> None:
    assert remedy("o'brien@example.com") == "posthouse unsuppress 'o'\"'\"'brien@example.com'"


def test_who_is_stopped_is_named_as_the_email_has_them() -> None:
    known = {"ada@example.com": [suppression(SuppressionCause.UNSUBSCRIBE)]}
    recipients = ["Ada@example.com", "bob@example.com"]
    assert list(stopped(recipients, known, "newsletter", M, NOW)) == ["Ada@example.com"]
    assert stopped(recipients, known, "receipt", T, NOW) == {}


@pytest.mark.parametrize("status", list(Status))
def test_what_may_have_been_accepted_is_held_and_not_called_suppressed(status: Status) -> None:
    send = SendState(1, "receipt", status, 3, 1, 0, NOW + 60)
    change = suppress(send, "why")
    if status in (Status.WAITING, Status.PENDING, Status.SENDING):
        assert change is not None
        assert (change.status, change.next_try_at, change.last_error) == (Status.SUPPRESSED, None, "why")
    else:
        assert change is None
    if status in (Status.PENDING, Status.SENDING):
        held = suppress(replace(send, unknown_since=NOW, unknown_fence=2), "why")
        assert held is not None
        assert (held.status, held.next_try_at, held.unknown_fence) == (Status.UNKNOWN, None, 2)
        assert held.last_error == "why; and nobody knows whether an earlier attempt was accepted"
