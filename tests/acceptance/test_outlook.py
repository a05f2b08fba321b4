"""`outbox.outlook`: what an application may tell on its page about mail of a type."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import update

import posthouse
from posthouse.core.outlook import Reason
from posthouse.core.routing import RouteHealth
from posthouse.core.switches import Scope, Switch
from posthouse.store.database import open_database
from posthouse.store.schema import sends
from posthouse.store.store import Store
from tests.acceptance.conftest import MakeSandbox
from tests.acceptance.installation import Installation, email, http_route


def outbox_and_store(installation: Installation, make_sandbox: MakeSandbox) -> tuple[posthouse.Outbox, Store]:
    installation.configure({"main": http_route(make_sandbox())}, {"one-time-code": {"max_age": "10m"}})
    config = posthouse.load_config(installation.folder / "posthouse.toml")
    return posthouse.Outbox(config), Store(open_database(config.database_url, time.time))


def test_mail_that_would_leave_in_a_moment_is_not_delayed(
    installation: Installation, make_sandbox: MakeSandbox
) -> None:
    outbox, store = outbox_and_store(installation, make_sandbox)
    told = outbox.outlook("one-time-code")
    assert (told.delayed, told.by_s, told.reason) == (False, 0.0, Reason.ON_TIME)
    store.database.close()


def test_a_pause_a_closed_route_and_a_stall_are_told_with_when_another_one_makes_sense(
    installation: Installation, make_sandbox: MakeSandbox
) -> None:
    outbox, store = outbox_and_store(installation, make_sandbox)
    now = store.ledger.now()

    store.switches.pause(Switch(Scope.TYPE, "one-time-code", "wrong words", "grace", now, now + 240))
    paused = outbox.outlook("one-time-code")
    assert (paused.delayed, paused.reason, paused.detail) == (True, Reason.PAUSED, "wrong words")
    assert paused.by_s == pytest.approx(240, abs=30)
    assert 240 < paused.resend_after_s <= 600
    store.switches.resume(Scope.TYPE, "one-time-code", who="grace", now=store.ledger.now())

    held = RouteHealth("main", held_until=now + 300, reason="429")
    store.operations.change_route(held, who="test", action="hold", detail="", now=now)
    assert outbox.outlook("one-time-code").reason is Reason.NO_ROUTE
    store.operations.change_route(RouteHealth("main"), who="test", action="open", detail="", now=now)

    installation.enqueue([email(n, type="one-time-code") for n in range(3)])
    with store.database.write() as connection:
        connection.execute(update(sends).values(next_try_at=now - 300))
    stalled = outbox.outlook("one-time-code")
    assert (stalled.delayed, stalled.by_s, stalled.reason) == (True, None, Reason.STALLED)
    store.database.close()


def test_a_type_that_is_not_configured_is_refused(installation: Installation, make_sandbox: MakeSandbox) -> None:
    outbox, store = outbox_and_store(installation, make_sandbox)
    with pytest.raises(posthouse.InvalidEmail, match="'invoice' is not configured"):
        outbox.outlook("invoice")
    store.database.close()
