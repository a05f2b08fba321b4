"""The webhook suite: what holds for the webhooks of every provider, on documents of the shapes that it documents."""

from __future__ import annotations

import base64
import copy
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st
from sendgrid.helpers.eventwebhook import EventWebhook
from svix.webhooks import Webhook as SvixWebhook

from posthouse.config import RouteSettings
from posthouse.core.delivery import Delivery, delivery
from posthouse.core.events import Event
from posthouse.errors import ConfigError
from posthouse.providers.registry import PROVIDERS, build_webhook
from posthouse.providers.webhook import CertificateNeeded, Genuine, Reading, Refused, Webhook, WebhookCall, reading
from posthouse.providers.webhook_keys import WebhookKeys
from posthouse.store.store import Store
from posthouse.web.intake import Intake
from tests.contract.store_support import POLICIES, Bench
from tests.contract.webhook_cases import (
    CASES,
    NOW,
    OUR_ID,
    RESEND,
    SENDGRID,
    WebhookCase,
    certificate,
    sign_as_sendgrid,
    sign_as_svix,
)
from tests.migrated import in_memory


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> WebhookCase:
    """The webhooks of each provider in turn."""
    return CASES[request.param]


def webhook(case: WebhookCase, *secrets: str, **settings: Any) -> Webhook:
    """A route's, with these secrets, or the case's own."""
    document = {**case.settings, case.setting: list(secrets or [case.secret]), **settings}
    built = build_webhook("main", RouteSettings.model_validate(document))
    assert built is not None
    return built


def verified(
    case: WebhookCase, call: WebhookCall, *secrets: str, now: float = NOW, **settings: Any
) -> Genuine | Refused:
    """What a route says to a call."""
    built = webhook(case, *secrets, **settings)
    return decided(built, call, WebhookKeys("routes.main", built, lambda: now), now)


def decided(built: Webhook, call: WebhookCall, keys: WebhookKeys, now: float = NOW) -> Genuine | Refused:
    """The same, with the certificate that it asks for."""
    said = built.verify(call, keys.current(), now)
    return said.decide(certificate(now - 1, now + 1)) if isinstance(said, CertificateNeeded) else said


def a_call(case: WebhookCase, secret: str | None = None, now: float = NOW) -> WebhookCall:
    item = next(iter(case.told.values())).item
    return case.sign(secret or case.secret, case.body(item), now)


def test_every_provider_with_webhooks_is_in_the_suite() -> None:
    assert set(CASES) == {name for name, kind in PROVIDERS.items() if kind().webhook is not None}


def test_a_genuine_call_is_let_in(case: WebhookCase) -> None:
    assert isinstance(verified(case, a_call(case)), Genuine)


@pytest.mark.parametrize(
    ("name", "forgery"), [(name, forgery) for name, case in CASES.items() for forgery in case.forgeries]
)
def test_a_forged_call_is_refused(name: str, forgery: str) -> None:
    case = CASES[name]
    forged = verified(case, case.forgeries[forgery](a_call(case)))
    assert isinstance(forged, Refused)
    assert case.secret not in forged.reason


def test_a_call_by_another_secret_is_refused(case: WebhookCase) -> None:
    forged = verified(case, a_call(case, case.another_secret))
    assert isinstance(forged, Refused)
    assert case.setting in forged.reason


def test_both_secrets_count_while_they_are_rotated(case: WebhookCase) -> None:
    for secret in (case.secret, case.another_secret):
        for secrets in ((case.secret, case.another_secret), (case.another_secret, case.secret)):
            assert isinstance(verified(case, a_call(case, secret), *secrets), Genuine)


timed = pytest.mark.parametrize(
    "case", [case for case in CASES.values() if case.tolerance_s], ids=lambda case: case.settings["provider"]
)
"""Of the providers whose calls say when they were signed."""


@timed
def test_a_call_may_be_as_old_as_the_tolerance_and_as_early(case: WebhookCase) -> None:
    assert case.tolerance_s is not None
    for off_s, let_in in ((0.9, True), (-0.9, True), (1.1, False), (-1.1, False)):
        call = a_call(case, now=NOW - off_s * case.tolerance_s)
        assert isinstance(verified(case, call), Genuine) is let_in, off_s


@timed
def test_the_tolerance_is_a_setting(case: WebhookCase) -> None:
    assert isinstance(verified(case, a_call(case, now=NOW - 59), webhook_tolerance="1m"), Genuine)
    late = verified(case, a_call(case, now=NOW - 61), webhook_tolerance="1m")
    assert late == Refused("its timestamp is 61 s old (webhook_tolerance)")


def test_only_a_signature_over_the_body_needs_no_token(case: WebhookCase) -> None:
    call = a_call(case)
    passed = verified(case, call)
    assert isinstance(passed, Genuine)
    if not case.covers_body and case.tolerance_s is not None:
        assert passed.token
    else:
        assert passed.token is None


HEADERS = sorted({"svix-id", "webhook-signature", *(name for case in CASES.values() for name in a_call(case).headers)})


@given(
    headers=st.dictionaries(st.sampled_from(HEADERS), st.text() | st.just(str(int(NOW)))),
    body=st.binary() | st.text().map(lambda text: json.dumps({"signature": {"token": text}}).encode()),
)
def test_whatever_a_stranger_sends_is_refused(headers: dict[str, str], body: bytes) -> None:
    for case in CASES.values():
        assert isinstance(verified(case, WebhookCall(headers, body)), Refused)


def test_without_a_secret_there_are_no_webhooks(case: WebhookCase) -> None:
    assert build_webhook("main", RouteSettings.model_validate(case.settings)) is None


# The secrets


def test_a_secret_that_is_replaced_in_its_file_counts_within_a_second(case: WebhookCase, tmp_path: Path) -> None:
    file, now = tmp_path / "secret", [NOW]
    file.write_text(case.secret)
    built = webhook(case, f"file:{file}")
    keys = WebhookKeys("routes.main", built, lambda: now[0])
    assert isinstance(decided(built, a_call(case), keys), Genuine)

    file.write_text(case.another_secret)
    now[0] += 1.0

    assert isinstance(decided(built, a_call(case), keys), Refused)
    assert isinstance(decided(built, a_call(case, case.another_secret), keys), Genuine)


def test_a_file_that_is_gone_for_a_moment_changes_nothing(case: WebhookCase, tmp_path: Path) -> None:
    file, now = tmp_path / "secret", [NOW]
    file.write_text(case.secret)
    built = webhook(case, f"file:{file}")
    keys = WebhookKeys("routes.main", built, lambda: now[0])
    keys.current()

    file.unlink()
    now[0] += 1.0

    assert isinstance(decided(built, a_call(case), keys), Genuine)
    assert [fault.setting for fault in keys.faults()] == [f"routes.main.{case.setting}"]


def test_a_secret_that_is_missing_stops_none_beside_it(case: WebhookCase) -> None:
    assert isinstance(verified(case, a_call(case), "env:POSTHOUSE_NOWHERE", case.secret), Genuine)


def test_with_no_secret_that_can_be_read_nothing_is_decided(case: WebhookCase) -> None:
    with pytest.raises(ConfigError, match=rf"routes\.main\.{case.setting}: the environment variable POSTHOUSE_NOWHERE"):
        verified(case, a_call(case), "env:POSTHOUSE_NOWHERE")


def test_what_can_be_no_secret_is_said_so(case: WebhookCase, tmp_path: Path) -> None:
    empty = tmp_path / "secret"
    empty.write_text(" \n")
    with pytest.raises(ConfigError, match=rf"routes\.main\.{case.setting}: one of them is empty"):
        verified(case, a_call(case), f"file:{empty}")
    if case.no_secret:
        with pytest.raises(ConfigError, match=rf"routes\.main\.{case.setting}: one of them is no"):
            verified(case, a_call(case), case.no_secret)


def test_no_secret_shows(case: WebhookCase) -> None:
    built = webhook(case)
    assert case.secret not in repr(built)


# What they tell


def read(case: WebhookCase, *items: Any) -> Reading:
    """What a genuine call with these items tells."""
    call = case.sign(case.secret, case.body(next(iter(case.told.values())).item), NOW)
    return reading(webhook(case), replace(call, body=case.body(*items)))


@pytest.mark.parametrize(("name", "told"), [(name, told) for name, case in CASES.items() for told in case.told])
def test_each_item_is_the_event_that_it_stands_for(name: str, told: str) -> None:
    case = CASES[name]
    assert read(case, case.told[told].item) == Reading((case.told[told].event,))


def test_what_is_no_news_of_a_message_is_left_alone(case: WebhookCase) -> None:
    for item in case.ignored:
        assert read(case, item) == Reading()


ODD: Sequence[Any] = (
    None,
    7,
    -1.5,
    True,
    "",
    "x" * 3000,
    "\ud800\x00",
    "\ud800\x00@example.com",
    [],
    [None],
    {},
    {"a": {}},
    10**400,
    float("nan"),
)


def changed(document: Any) -> Iterator[tuple[str, Any]]:
    """The document with each of its members, at any depth, missing or odd in turn."""
    for path in _paths(document):
        yield f"without {path}", _changed(document, path, lambda parent, name: parent.__delitem__(name))
        for odd in ODD:
            change = partial(_set, odd)
            yield f"{path} = {odd!r:.20}", _changed(document, path, change)


def _set(value: Any, parent: Any, name: Any) -> None:
    parent[name] = value


def _paths(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    members = (
        document.items() if isinstance(document, dict) else enumerate(document if isinstance(document, list) else [])
    )
    for name, value in members:
        yield (*at, name)
        yield from _paths(value, (*at, name))


def _changed(document: Any, path: tuple[Any, ...], change: Any) -> Any:
    anew = parent = copy.deepcopy(document)
    for name in path[:-1]:
        parent = parent[name]
    change(parent, path[-1])
    return anew


def test_whatever_is_missing_or_odd_in_it_each_item_is_an_event_or_is_kept_for_a_person(
    case: WebhookCase, store: Store
) -> None:
    events: list[Event] = []
    built, call = webhook(case), a_call(case)
    for told in case.told.values():
        for what, item in changed(told.item):
            taken = reading(built, replace(call, body=case.body(item)))
            assert len(taken.events) + len(taken.unread) <= 1, what
            assert all(one.reason for one in taken.unread), what
            events += taken.events
    for start in range(0, len(events), 500):
        store.events.store("main", events[start : start + 500], {}, NOW)


@pytest.mark.parametrize("body", [b"", b"no JSON", b"\xff\xfe", b'"text"', b"7", b"null", b"[" * 100_000, b"{" * 9])
def test_a_body_that_is_no_document_is_kept_for_a_person(case: WebhookCase, body: bytes) -> None:
    taken = reading(webhook(case), replace(a_call(case), body=body))
    assert taken.events == ()
    assert [one.item for one in taken.unread] == [body.decode("utf-8", "replace")]


def test_a_bad_item_spoils_none_beside_it(case: WebhookCase) -> None:
    good = [told.item for told in case.told.values()]
    bad = [None, "text", {}, {"event": "new", "type": "new", "RecordType": "New"}]
    taken = reading(
        webhook(case), replace(a_call(case), body=json.dumps([*bad[:2], *map(case.wrap, good), *bad[2:]]).encode())
    )
    assert len(taken.events) == len(good)
    assert [json.loads(one.item) for one in taken.unread] == bad


def test_an_item_about_nothing_is_kept_for_a_person(case: WebhookCase) -> None:
    (about_nothing,) = read(case, _without_ids(next(iter(case.told.values())).item)).unread
    assert about_nothing.reason == "it names neither a message nor a recipient"


def _without_ids(item: Any) -> Any:
    """Without whatever has Ada's address, our id or the provider's in it."""
    if isinstance(item, dict):
        return {name: _without_ids(value) for name, value in item.items() if not _names(value)}
    return item


def _names(value: Any) -> bool:
    texts = value if isinstance(value, list) else [value]
    return any(
        isinstance(text, str) and (text.startswith("m-1") or text in ("ada@example.com", OUR_ID)) for text in texts
    )


# Where they go


@pytest.fixture
def intake() -> Iterator[tuple[Intake, Store]]:
    """What stores them, over an empty SQLite database."""
    database = in_memory(lambda: NOW)
    store = Store(database)
    yield Intake(store, POLICIES), store
    database.close()


ORDERS = 4


def test_each_counts_once_in_whatever_order_they_come(case: WebhookCase) -> None:
    chance = random.Random(7)
    events = [one.event for one in case.told.values()]
    built, calls = webhook(case), [_with_its_own_id(case, n, one.item) for n, one in enumerate(case.told.values())]
    for _ in range(ORDERS):
        database = in_memory(lambda: NOW)
        bench = Bench(Store(database))
        bench.enqueue("k")
        bench.edit("k", idempotency_key=OUR_ID)
        intake = Intake(bench.store, POLICIES)
        for call in chance.sample(calls * 2, 2 * len(calls)):
            intake.take("main", built, call, Genuine())

        story = bench.store.ledger.story("k")
        assert {row["kind"] for row in story.events} == {event.kind.value for event in events}
        assert story.send["status"] == "accepted"
        assert story.send["delivery"] == delivery(Delivery.NONE, [event.kind for event in events]).value
        assert [attempt["via"] for attempt in story.attempts] == ["event"]
        database.close()


def _with_its_own_id(case: WebhookCase, number: int, item: Any) -> WebhookCall:
    """As its provider would send it: no two events have one id."""
    body = case.body(item)
    for id_ in (b"e-1", b"4323372036854775807"):
        body = body.replace(id_, b"%d" % number)
    return WebhookCall({"svix-id": f"msg_{number}"}, body)


def test_a_token_comes_with_one_body_alone(intake: tuple[Intake, Store]) -> None:
    case = CASES["mailgun"]
    take, store = intake
    delivered, bounced = (
        case.sign(case.secret, case.body(case.told[name].item), NOW) for name in ("delivered", "bounced")
    )
    built = webhook(case)

    def hand_in(call: WebhookCall, route: str = "main") -> Reading | Refused:
        genuine = verified(case, call)
        assert isinstance(genuine, Genuine), "its signature is a good one"
        return take.take(route, built, call, genuine)

    assert isinstance(hand_in(delivered), Reading)
    assert hand_in(bounced) == Refused("its token came with another body before")
    assert isinstance(hand_in(delivered), Reading), "the same again is only sent again"
    assert isinstance(hand_in(bounced, "another route"), Reading)
    with store.database.read() as connection:
        kinds = connection.exec_driver_sql("SELECT kind FROM email_events WHERE route = 'main'").scalars().all()
    assert kinds == ["delivered"]


# Code that nobody here wrote


@pytest.mark.parametrize("theirs", [SvixWebhook(RESEND.secret), standardwebhooks.Webhook(RESEND.secret)])
@pytest.mark.parametrize("prefix", ["svix", "webhook"])
def test_what_the_libraries_of_svix_and_standard_webhooks_sign_is_let_in(theirs: Any, prefix: str) -> None:
    body = RESEND.body(RESEND.told["bounced"].item)
    signed = theirs.sign("msg_9", datetime.fromtimestamp(NOW, UTC), body.decode())
    headers = {f"{prefix}-id": "msg_9", f"{prefix}-timestamp": str(int(NOW)), f"{prefix}-signature": signed}

    assert isinstance(verified(RESEND, WebhookCall(headers, body)), Genuine)
    assert isinstance(verified(RESEND, WebhookCall(headers, body.replace(b"m-1", b"m-2"))), Refused)
    several = headers | {f"{prefix}-signature": f"v1,{base64.b64encode(b'old').decode()} {signed}"}
    assert isinstance(verified(RESEND, WebhookCall(several, body)), Genuine)


def test_what_these_tests_sign_the_libraries_let_in() -> None:
    body = RESEND.body(RESEND.told["bounced"].item)
    call = sign_as_svix(RESEND.secret, body, time.time())  # they read the clock themselves
    SvixWebhook(RESEND.secret).verify(body, dict(call.headers))
    as_standard = {name.replace("svix", "webhook"): value for name, value in call.headers.items()}
    assert standardwebhooks.Webhook(RESEND.secret).verify(body, as_standard)


def test_what_these_tests_sign_sendgrids_own_library_lets_in() -> None:
    body = SENDGRID.body(SENDGRID.told["bounced"].item)
    call = sign_as_sendgrid(SENDGRID.secret, body, NOW)
    signature, timestamp = (call.headers[f"x-twilio-email-event-webhook-{name}"] for name in ("signature", "timestamp"))
    theirs = EventWebhook(SENDGRID.secret)
    assert theirs.verify_signature(body.decode(), signature, timestamp)
    assert not theirs.verify_signature(body.decode() + " ", signature, timestamp)
