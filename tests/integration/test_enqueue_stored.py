"""What enqueue writes down: the times, by the database's clock, and the content, as it was at the call."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from posthouse.address import Address
from posthouse.content import Content
from posthouse.core.outcome import LookUp, Verdict
from posthouse.core.policy import RouteFacts, TypePolicy
from posthouse.email import Email
from posthouse.errors import InvalidEmail
from posthouse.outbox import Outbox
from posthouse.providers.port import OutgoingMessage, Provider
from posthouse.store.database import Database
from posthouse.store.store import Store
from tests.contract.store_support import DAY_S, POLICIES, email, new_key, outbox

HOUR = timedelta(hours=1)


def enqueue(database: Database, new: Email, into: Outbox | None = None) -> None:
    with database.write() as connection:
        (into or outbox()).enqueue(connection, new)


def row(store: Store, key: str = "k") -> dict[str, Any]:
    return store.ledger.story(key).send


# Times.


def test_an_email_is_due_at_once_and_lives_as_long_as_its_type_says(database: Database, store: Store) -> None:
    before = time.time()
    enqueue(database, email("k"))
    enqueue(database, email("code", type="one-time-code"))

    send = row(store)
    assert before - 1 <= send["next_try_at"] <= time.time() + 1
    assert send["expires_at"] == pytest.approx(send["next_try_at"] + 3 * DAY_S, abs=0.1)
    assert row(store, "code")["expires_at"] == pytest.approx(time.time() + 600, abs=5)
    assert send["created_at"] == pytest.approx(send["next_try_at"], abs=0.1)
    assert send["updated_at"] == pytest.approx(send["created_at"], abs=0.1)


def test_a_later_email_is_due_at_its_time_and_lives_from_then_on(database: Database, store: Store) -> None:
    send_at = datetime.now(UTC).replace(microsecond=123456) + 48 * HOUR

    enqueue(database, email("k", send_at=send_at))

    assert row(store)["next_try_at"] == send_at.timestamp()
    assert row(store)["expires_at"] == pytest.approx(send_at.timestamp() + 3 * DAY_S, abs=0.001)
    assert row(store)["created_at"] == pytest.approx(time.time(), abs=5)


def test_an_expiry_of_its_own_wins_over_the_types(database: Database, store: Store) -> None:
    now = datetime.now(UTC)

    enqueue(database, email("k", expires=now + HOUR))
    enqueue(database, email("later", send_at=now + HOUR, expires=now + 2 * HOUR))

    assert row(store)["expires_at"] == pytest.approx((now + HOUR).timestamp(), abs=0.001)
    assert row(store, "later")["expires_at"] == pytest.approx((now + 2 * HOUR).timestamp(), abs=0.001)


@pytest.mark.parametrize("zone", [timezone(timedelta(hours=14)), timezone(-timedelta(hours=12)), UTC], ids=str)
def test_a_time_means_the_same_moment_in_every_zone(database: Database, store: Store, zone: timezone) -> None:
    moment = datetime(2030, 1, 1, 12, 0, 0, 1, tzinfo=UTC)

    enqueue(database, email("k", send_at=moment.astimezone(zone)))

    assert row(store)["next_try_at"] == moment.timestamp()
    with database.read() as connection:
        stored = str(connection.scalar(text("SELECT next_try_at FROM email_sends")))
    assert stored.startswith("2030-01-01 12:00:00.000001")


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_the_sessions_time_zone_of_the_caller_moves_nothing(database_url: str, store: Store) -> None:
    moment = datetime(2030, 1, 1, 12, tzinfo=UTC)
    with psycopg.connect(database_url, options="-c TimeZone=Asia/Tokyo") as connection:
        outbox().enqueue(connection, email("k", send_at=moment))
        outbox().enqueue(connection, email("now"))

    assert row(store)["next_try_at"] == moment.timestamp()
    assert row(store, "now")["next_try_at"] == pytest.approx(time.time(), abs=5)


@pytest.mark.parametrize("off_s", [-3600.0, 3600.0])
def test_an_application_clock_that_is_wrong_delays_nothing_where_the_database_has_its_own(
    database: Database, store: Store, off_s: float
) -> None:
    enqueue(database, email("k"), outbox(lambda: time.time() + off_s))

    expected = time.time() + (off_s if database.is_sqlite else 0.0)  # SQLite has no clock but its caller's
    send = row(store)
    assert send["next_try_at"] == pytest.approx(expected, abs=5)
    assert send["created_at"] == pytest.approx(expected, abs=5)
    assert send["expires_at"] == pytest.approx(expected + 3 * DAY_S, abs=5)


@pytest.mark.parametrize(
    ("field", "moment"),
    [
        ("send_at", datetime.max.replace(tzinfo=UTC)),
        ("send_at", datetime(9999, 12, 31, 23, 59, tzinfo=UTC)),
        ("expires", datetime.max.replace(tzinfo=UTC)),
        ("send_at", datetime.min.replace(tzinfo=UTC)),
        ("expires", datetime.min.replace(tzinfo=timezone(HOUR))),
    ],
    ids=str,
)
def test_a_time_that_no_database_can_give_back_is_refused(
    database: Database, store: Store, field: str, moment: datetime
) -> None:
    with database.write() as connection:
        with pytest.raises(InvalidEmail) as refused:
            outbox().enqueue(connection, email("k", **{field: moment}))
        outbox().enqueue(connection, email("good"))

    assert refused.value.field == field
    assert [send["dedupe_key"] for send in store.ledger.find([], None, 9)] == ["good"]


# What stands in the ledger.


def test_the_ledger_tells_what_support_needs_without_the_content(database: Database, store: Store) -> None:
    enqueue(
        database,
        Email(
            key="k",
            type="newsletter",
            service="shop",
            to=["Ada <Ada@Example.COM>", "bob@example.net"],
            cc="Çelik@exämple.com",
            bcc=[Address("eve@example.org", 'Eve, the "one"')],
            subject="Grüße 📬",
            html="<p>secret</p>",
            tags=["spring", "ümlaut"],
            metadata={"order": "1042", "ключ": "значение"},
            after="first",
        ),
    )

    send = row(store)
    assert (send["type"], send["lane"], send["service"]) == ("newsletter", "newsletter/shop", "shop")
    assert (send["status"], send["after_key"], send["delivery"]) == ("waiting", "first", "none")
    assert (send["to_address"], json.loads(send["recipients"])[0]) == ("ada@example.com", "Ada@example.com")
    assert len(json.loads(send["recipients"])) == 4
    assert json.loads(send["tags"]) == ["spring", "ümlaut"]
    assert json.loads(send["metadata"]) == {"order": "1042", "ключ": "значение"}
    assert (send["attempts"], send["failures"], send["fence"], send["maybe_duplicate"]) == (0, 0, 0, False)
    assert [send[name] for name in ("claimed_by", "route", "message_id", "last_error", "accepted_at")] == [None] * 5
    assert not any("secret" in str(value) or "Grüße" in str(value) for value in send.values())


def test_every_send_has_an_idempotency_key_of_its_own(database: Database, store: Store) -> None:
    enqueue(database, email("a"))
    enqueue(database, email("b"))

    keys = {row(store, key)["idempotency_key"] for key in "ab"}
    assert len(keys) == 2
    assert all(keys)


# The content.

AWKWARD = (
    'Zeile\r\nzwei\t"quoted" \\ back\'slash \u2028 \u0085 \ufeff e\u0301 é ﷺ 📬🏳️‍🌈 %s %(a)s :b ? {{ x }} </script>\x7f'
)


def test_the_content_comes_back_as_it_was_given(database: Database, store: Store) -> None:
    enqueue(
        database,
        Email(
            key="k",
            type="receipt",
            to=[Address("ada@example.com", 'Doe, "JD" \\ Jané 📬')],
            subject='100 % 📬 "q" \\',
            text=AWKWARD,
            html=f"<p>{AWKWARD}</p>",
            headers=[("X-A", "1"), ("X-A", "2"), ("X-Ü".replace("Ü", "U"), "ü")],
            metadata={"a": "%s", "b": ""},
        ),
    )

    content = Content.from_json(store.ledger.story("k").body or "")
    assert content.to == (Address("ada@example.com", 'Doe, "JD" \\ Jané 📬'),)
    assert (content.subject, content.text, content.html) == ('100 % 📬 "q" \\', AWKWARD, f"<p>{AWKWARD}</p>")
    assert content.headers == (("X-A", "1"), ("X-A", "2"), ("X-U", "ü"))
    assert content.metadata == {"a": "%s", "b": ""}


def test_variables_come_back_as_they_were_given(database: Database, store: Store) -> None:
    variables: dict[str, Any] = {
        "text": AWKWARD,
        "big": 2**80,
        "small": -(2**63) - 1,
        "precise": 0.1 + 0.2,
        "tiny": 5e-324,
        "huge": 1.7976931348623157e308,
        "whole": 1.0,
        "true": True,
        "none": None,
        "list": [1, [2, {"deep": "📬"}]],
        "empty": [{}, [], ""],
    }
    enqueue(database, Email(key="k", to="a@example.com", type="receipt", template="t", variables=variables))

    stored = Content.from_json(store.ledger.story("k").body or "").variables
    assert stored == variables
    assert {name: type(value) for name, value in stored.items()} == {n: type(v) for n, v in variables.items()}


def test_what_is_changed_on_the_email_afterwards_changes_nothing(database: Database, store: Store) -> None:
    order = {"lines": [{"name": "shoes"}]}
    new = Email(
        key="k",
        to=["ada@example.com"],
        type="receipt",
        subject="Hello",
        template="t",
        variables={"order": order},
        tags=["a"],
    )
    with database.write() as connection:
        outbox().enqueue(connection, new)
        new.subject, new.key = "Changed", "other"
        new.to.append("eve@example.com")  # type: ignore[union-attr]
        new.tags.append("b")  # type: ignore[attr-defined]
        order["lines"][0]["name"] = "boots"
        order["lines"].append({"name": "hat"})

    content = Content.from_json(store.ledger.story("k").body or "")
    assert (content.subject, content.tags) == ("Hello", ("a",))
    assert [address.email for address in content.to] == ["ada@example.com"]
    assert content.variables == {"order": {"lines": [{"name": "shoes"}]}}


# What the outbox knows of its types and routes.


class NoHtml:
    """A route that can't carry HTML."""

    facts = RouteFacts("plain")

    def refusals(self, content: Content) -> list[str]:
        return ["it carries no html"] if content.html is not None else []

    async def send(self, message: OutgoingMessage) -> Verdict:
        raise NotImplementedError

    async def send_together(self, messages: Sequence[OutgoingMessage]) -> Sequence[Verdict | None]:
        raise NotImplementedError

    async def look_up(self, message: OutgoingMessage) -> LookUp:
        raise NotImplementedError

    async def health(self) -> Verdict | None:
        raise NotImplementedError

    log = None
    lists = None

    def credential_changed(self) -> bool:
        return False

    async def limit_connections(self, count: int) -> int:
        return 0

    async def close(self) -> None:
        raise NotImplementedError


class Anything(NoHtml):
    """A route that carries everything."""

    def refusals(self, content: Content) -> list[str]:
        return []


def outbox_over(**providers: Provider) -> Outbox:
    """An outbox whose only type uses these routes."""
    policies = {"receipt": TypePolicy("receipt", routes=tuple(providers))}
    return Outbox(policies, providers, sender=Address("shop@example.com", "Shop"), clock=time.time, new_key=new_key)


def test_what_none_of_the_types_routes_carries_is_refused_with_each_reason(database: Database, store: Store) -> None:
    with pytest.raises(
        InvalidEmail, match=r"no route of type 'receipt'.*one: it carries no html; two: it carries no html"
    ):
        enqueue(database, email("k", html="<p>Hi</p>"), outbox_over(one=NoHtml(), two=NoHtml()))

    assert store.ledger.find([], None, 9) == []
    enqueue(database, email("k"), outbox_over(one=NoHtml()))


def test_what_one_of_the_types_routes_carries_is_taken(database: Database, store: Store) -> None:
    enqueue(database, email("k", html="<p>Hi</p>"), outbox_over(one=NoHtml(), two=Anything()))

    assert row(store)["status"] == "pending"


def test_an_unknown_type_is_refused_with_those_there_are(database: Database) -> None:
    with pytest.raises(InvalidEmail, match=r"'invoice' is not configured.*receipt") as refused:
        enqueue(database, email("k", type="invoice"))

    assert refused.value.field == "type"


def test_an_email_without_any_sender_is_refused(database: Database, store: Store) -> None:
    nobody = Outbox(POLICIES, {}, sender=None, clock=time.time, new_key=new_key)

    with pytest.raises(InvalidEmail) as refused:
        enqueue(database, email("k"), nobody)
    enqueue(database, email("k", sender="Shop <shop@shop.example>"), nobody)

    assert refused.value.field == "sender"
    assert Content.from_json(store.ledger.story("k").body or "").sender == Address("shop@shop.example", "Shop")


def test_the_lane_of_an_email_says_its_mailbox_group_where_it_has_one(database: Database, store: Store) -> None:
    enqueue(database, email("a", to="ada@gmail.com"))
    enqueue(database, email("b", to="ada@example.com", service="shop"))
    enqueue(database, email("c", to="ada@hotmail.fr", service="shop"))

    lanes = {send["dedupe_key"]: send["lane"] for send in store.ledger.find([], None, 9)}
    assert lanes == {"a": "receipt///gmail", "b": "receipt/shop", "c": "receipt/shop//microsoft"}
