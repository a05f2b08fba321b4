"""The promise (I1, I2, I3, I6, I8 of the design), checked on a finished world against the providers' own ledgers."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from posthouse.core.lifecycle import Status
from posthouse.core.policy import OnUnknown
from posthouse.sandbox.ledger import Acceptance
from posthouse.store.schema import attempts, sends
from tests.simulation.notices import TYPE as NOTICE
from tests.simulation.routes import confuses_recipients
from tests.simulation.world import EPOCH, World

_ENDED = {"accepted", "failed", "expired", "cancelled", "combined"}

SLOWEST_FAULT_S = 10.0
"""So long after its call has given up something may be accepted at the latest."""


def rows(world: World) -> dict[str, Any]:
    """Every row of the ledger by its key."""
    with world.store.database.read() as connection:
        return {row.dedupe_key: row for row in connection.execute(select(sends))}


def whole_of(found: Mapping[str, Any], row: Any) -> Any:
    """The send that was enqueued: the row itself, or the one that it was split off, in however many steps."""
    by_id = {other.id: other for other in found.values()}
    while row.split_from is not None:
        row = by_id[row.split_from]
    return row


def accepted_by(world: World, found: Mapping[str, Any], row: Any) -> list[tuple[str, Acceptance]]:
    """Every acceptance of one send for its own recipients, with its route, by the providers' ledgers.

    Over SMTP what was split off has the Message-ID of the whole, and so its key.
    """
    mine = set(json.loads(row.recipients))
    keys = {row.idempotency_key, whole_of(found, row).idempotency_key}
    return [
        (route, item)
        for route, api in world.apis.items()
        for key in keys
        for item in api.ledger.by_key(key)
        if mine & set(item.recipients)
    ]


def nothing_committed_is_lost(world: World) -> None:
    """I1: every committed email has its row, and every row has ended or is held for a person."""
    found = rows(world)
    committed = {key for key, asked in world.asked.items() if asked.committed}
    whole = {key for key, row in found.items() if row.split_from is None}
    assert whole == committed, f"rows and committed emails differ: {whole ^ committed}"
    assert world.quiet_at_s is not None, f"something never ended: {_open(found)}"
    for key, row in found.items():
        held = row.status == Status.UNKNOWN and row.next_try_at is None
        assert held or row.status in _ENDED, f"{key} is {row.status}"


def what_is_called_accepted_was(world: World) -> None:
    """I1: `accepted` means that a provider has it; `failed`, `expired` and `cancelled` mean that none has."""
    found = rows(world)
    for key, row in found.items():
        copies = accepted_by(world, found, row)
        if row.status == Status.ACCEPTED:
            assert copies, f"{key} is called accepted, and no provider has it"
        elif row.status != Status.UNKNOWN and not world.suspended:
            assert not copies, f"{key} is called {row.status}, and {copies[0][0]} accepted it"


def only_what_nobody_can_say_is_held(world: World) -> None:
    """I1: a person is asked only where no replay and no look-up could tell, or where each came too late or in vain."""
    found = rows(world)
    for key, row in found.items():
        if row.status != Status.UNKNOWN:
            continue
        assert row.route in world.natures, f"{key} is held, and nobody knows which route may have accepted it"
        nature = world.natures[row.route]
        told_no = "may have been accepted, and the latest was not" in (row.last_error or "")
        late = row.expires_at < (world.quiet_at_s or 0.0) + EPOCH
        in_vain = world.store.ledger.story(key).attempts[-1]["code"] == "look_up_unsure"
        could_tell = nature.key or (nature.look_up and not in_vain)
        assert told_no or late or not could_tell, f"{key} is held although {row.route} could tell"


def nothing_is_doubled_silently(world: World) -> None:
    """I2: more than one acceptance only where the row says that there may be, and only where the policy allows it."""
    found = rows(world)
    for key, row in found.items():
        copies = accepted_by(world, found, row)
        if len(copies) <= 1:
            continue
        assert row.maybe_duplicate, f"{key} was accepted {len(copies)} times, and the row doesn't say so"
        if not world.suspended:
            policy = world.policies[row.type]
            assert policy.on_unknown is OnUnknown.RESEND, f"{key} was doubled although its type says hold"
            natures = [world.natures[route] for route, _ in copies]
            assert not any(nature.key or nature.look_up for nature in natures), (
                f"{key} was doubled on a route that dedupes or can be asked"
            )


def nobody_gets_it_twice_silently(world: World) -> None:
    """I2, by recipient: the same email reaches nobody twice, by whichever sends, unless one of these says so."""
    found = rows(world)
    owners: dict[str, list[Any]] = defaultdict(list)
    for row in found.values():
        for key in {row.idempotency_key, whole_of(found, row).idempotency_key}:
            owners[key].append(row)
    reached: dict[tuple[str, str], list[Acceptance]] = defaultdict(list)
    for api in world.apis.values():
        for copy in api.ledger.acceptances:
            for recipient in copy.recipients:
                reached[copy.subject, recipient].append(copy)
    for (subject, recipient), copies in reached.items():
        told = any(row.maybe_duplicate for copy in copies for row in owners[copy.key or ""])
        assert len(copies) == 1 or told, f"{recipient} got {subject!r} {len(copies)} times, and no row says so"


def nobody_is_left_out_silently(world: World) -> None:
    """I1, by recipient: of an accepted email everybody has a copy, or is named with the refusal."""
    found = rows(world)
    for key, row in found.items():
        copies = accepted_by(world, found, row)
        if row.status != Status.ACCEPTED or any(confuses_recipients(world.apis[route]) for route, _ in copies):
            continue
        reached = {recipient for _, copy in copies for recipient in copy.recipients}
        refusals = " ".join(f"{call['text']} {call['raw']}" for call in world.store.ledger.story(key).attempts)
        for recipient in json.loads(row.recipients):
            assert recipient in reached or recipient in refusals, f"{recipient} has no {key}, and nothing says why"


def each_notice_goes_out_in_one_message(world: World) -> None:
    """I1 and I2 for what is combined: its carrier exists, and the one message that has it is that one's."""
    found = rows(world)
    by_id = {row.id: row for row in found.values()}
    messages: dict[str, set[str]] = defaultdict(set)  # by the notices they name
    for api in world.apis.values():
        for copy in api.ledger.acceptances:
            for key in copy.subject.split():
                messages[key].add(copy.subject)
    for key, row in found.items():
        if row.type != NOTICE:
            continue
        carrier = row if row.combined_into is None else by_id[row.combined_into]
        assert carrier.combined_into is None, f"{key} went into {carrier.dedupe_key}, which went into another one"
        assert len(messages[key]) <= 1, f"{key} went out in {messages[key]}"
        if carrier.status == Status.ACCEPTED:
            assert messages[key], f"{carrier.dedupe_key} was accepted without {key}"
        elif carrier.status != Status.UNKNOWN and not world.suspended:
            assert not messages[key], f"{key} went out, and {carrier.dedupe_key} is {carrier.status}"


def no_server_gets_more_connections_than_allowed(world: World) -> None:
    """I5: each worker keeps to its route's concurrency, counting every connection from its opening until it is gone."""
    for name, nature in world.natures.items():
        for worker, most in world.network.servers[nature.host].most.items():
            allowed = world.config.routes[name].concurrency
            assert most <= allowed, f"{worker} had {most} connections to {name} at once, and {allowed} are allowed"


def who_leaves_closes_the_door(world: World) -> None:
    """A worker that was told to stop leaves no connection open."""
    for worker in world.workers:
        assert not worker.left_open, f"{worker.name} left {worker.left_open} connections open"


def nothing_is_sent_too_late(world: World) -> None:
    """I3: no acceptance of a call that began after the expiry or the cancellation."""
    found = rows(world)
    for key, row in found.items():
        for route, copy in accepted_by(world, found, row):
            last = row.expires_at + world.call_max_s[route] + SLOWEST_FAULT_S
            assert world.suspended or copy.at < last, f"{key} was sent after its expiry"
            cancelled_at = world.asked[whole_of(found, row).dedupe_key].cancelled_at
            if cancelled_at is not None and row.status == Status.CANCELLED and not world.suspended:
                assert copy.at < cancelled_at, f"{key} was sent by {route} after it was cancelled"
        asked = world.asked[whole_of(found, row).dedupe_key].email
        if asked.send_at is not None:
            assert all(copy.at >= asked.send_at.timestamp() for _, copy in accepted_by(world, found, row)), (
                f"{key}: too early"
            )


def unknown_stays_with_its_route(world: World) -> None:
    """I6: after a call that may have been accepted, no other route is called until that is resolved."""
    with world.store.database.read() as connection:
        calls = connection.execute(
            select(attempts).order_by(attempts.c.send_id, attempts.c.ended_at, attempts.c.id)
        ).all()
    open_route: dict[int, str] = {}
    for call in calls:
        if call.via in ("send", "replay"):
            pinned = open_route.get(call.send_id)
            assert pinned is None or pinned == call.route or world.suspended, (
                f"send {call.send_id}: unknown on {pinned}, then handed to {call.route}"
            )
        if call.outcome == "accepted" or call.code == "look_up_missing" or call.rule == "rejected replay":
            open_route.pop(call.send_id, None)
        elif call.maybe_accepted and call.route in world.apis:
            open_route.setdefault(call.send_id, call.route)
        elif call.via == "send" and call.fence == _fence_of_open(calls, call):
            open_route.pop(call.send_id, None)
    found = rows(world)
    for key, row in found.items():
        routes = {route for route, _ in accepted_by(world, found, row)}
        assert len(routes) <= 1 or world.suspended, f"{key} was accepted by {routes}"


def _fence_of_open(calls: Any, call: Any) -> int:
    return next((c.fence for c in calls if c.send_id == call.send_id and c.maybe_accepted), -1)


def the_application_is_never_held_up(world: World) -> None:
    """I8: an enqueue never fails because of a provider, a worker or the network."""
    assert not world.enqueue_errors, world.enqueue_errors


def every_fault_is_handled(world: World) -> None:
    """No callback of the loop has raised: nobody would have heard of it but the log."""
    assert not world.unhandled, world.unhandled


def nobody_ever_tries_twice(world: World) -> None:
    """The canary: it must fail in some runs, or the harness can't find anything."""
    found = rows(world)
    for key, row in found.items():
        assert row.attempts <= 1, f"{key} took {row.attempts} attempts"


def _open(found: dict[str, Any]) -> list[str]:
    return [
        f"{key}: {row.status}, next {row.next_try_at}, {row.last_error}"
        for key, row in found.items()
        if row.status not in _ENDED
    ]


ALL = (
    nothing_committed_is_lost,
    what_is_called_accepted_was,
    only_what_nobody_can_say_is_held,
    nothing_is_doubled_silently,
    nothing_is_sent_too_late,
    nobody_gets_it_twice_silently,
    nobody_is_left_out_silently,
    each_notice_goes_out_in_one_message,
    unknown_stays_with_its_route,
    no_server_gets_more_connections_than_allowed,
    who_leaves_closes_the_door,
    the_application_is_never_held_up,
    every_fault_is_handled,
)
