"""Somebody's own word, by the link in a message: kept once, obeyed each time, whatever the database."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from sqlalchemy import select

from posthouse.core.events import Event, EventKind
from posthouse.core.lifecycle import Status
from posthouse.core.suppression import Suppress, SuppressionCause
from posthouse.store.schema import events, suppressions
from tests.contract.store_support import POLICIES, Bench, race

ADA = "ada@example.com"


def unsubscribe(bench: Bench, key: str | None, *, at: float = 0.0, scope: str = "type receipt") -> None:
    """As the page does it; `key` is our id of the send."""
    now = bench.now + at
    event = Event(EventKind.UNSUBSCRIBED, now, ADA, key=key, provider_event_id=f"token of {key}")
    wish = Suppress(ADA, SuppressionCause.UNSUBSCRIBE, scope, reason="by the link", who="unsubscribe")
    bench.store.events.unsubscribe(event, wish, POLICIES, now)


def our_id(bench: Bench, key: str) -> str:
    return str(bench.row(key)["idempotency_key"])


def rows(bench: Bench, table: Any) -> list[Any]:
    with bench.store.database.read() as connection:
        return list(connection.execute(select(table).order_by(table.c.id)))


def test_it_is_written_with_the_news_that_it_comes_from(bench: Bench) -> None:
    bench.bring_to(Status.UNKNOWN, "k")
    unsubscribe(bench, our_id(bench, "k"))

    (event,), (row,) = rows(bench, events), rows(bench, suppressions)
    assert (event.kind, event.send_id, event.recipient) == ("unsubscribed", bench.row("k")["id"], ADA)
    assert (row.address, row.cause, row.scope, row.until) == (ADA, "unsubscribe", "type receipt", None)
    assert (row.event_id, row.who, row.reason) == (event.id, "unsubscribe", "by the link")
    assert bench.status("k") is Status.ACCEPTED, "who has read it has got it"


def test_said_again_later_it_is_the_same_news_and_still_where_it_comes_from(bench: Bench) -> None:
    bench.bring_to(Status.ACCEPTED, "k")
    for at in (0.0, 1.0, 86_400.0):
        unsubscribe(bench, our_id(bench, "k"), at=at)

    (event,), (row,) = rows(bench, events), rows(bench, suppressions)
    assert row.event_id == event.id


def test_said_on_several_servers_at_once_it_counts_once(bench: Bench) -> None:
    bench.bring_to(Status.UNKNOWN, "k")
    key = our_id(bench, "k")
    race([partial(unsubscribe, bench, key, at=number / 1000) for number in range(4)])

    assert (len(rows(bench, events)), len(rows(bench, suppressions))) == (1, 1)
    assert rows(bench, suppressions)[0].event_id == rows(bench, events)[0].id


@pytest.mark.parametrize("scope", ["type receipt", "category marketing"])
def test_of_a_send_that_is_no_longer_kept_it_means_no_more_than_it_says(bench: Bench, scope: str) -> None:
    unsubscribe(bench, "purged", scope=scope)
    bench.store.events.join(POLICIES, bench.now + 10)

    assert [row.scope for row in rows(bench, suppressions)] == [scope]


def test_taken_back_it_takes_nothing_else_with_it_and_may_be_said_again(bench: Bench) -> None:
    table = bench.store.suppressions
    for scope in ("type receipt", "type other", ""):
        unsubscribe(bench, None, scope=scope)
    undo = partial(table.remove, "Ada@example.com", who="unsubscribe", now=bench.now)

    removed = undo(cause=SuppressionCause.UNSUBSCRIBE, scope="type receipt")
    assert [each.scope for each in removed] == ["type receipt"]
    assert undo(cause=SuppressionCause.UNSUBSCRIBE, scope="type receipt") == []
    assert [row.scope for row in rows(bench, suppressions)] == ["type other", ""]
    assert [each.scope for each in undo(scope="")] == [""]

    unsubscribe(bench, None, scope="type receipt")
    assert [row.scope for row in rows(bench, suppressions)] == ["type other", "type receipt"]
