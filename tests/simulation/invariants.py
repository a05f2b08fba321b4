"""The promise (of the design), checked on a finished world against the providers' own ledgers."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from sqlalchemy import select

from posthouse.address import fold
from posthouse.core.delivery import Delivery, delivery
from posthouse.core.events import Event, EventKind
from posthouse.core.lanes import TURNS, group_of, service_of
from posthouse.core.lifecycle import Status
from posthouse.core.limits import Rate
from posthouse.core.outcome import Outcome
from posthouse.core.pace import HORIZON_S, LATE_MAX_S, SLACK_SHARE
from posthouse.core.policy import OnUnknown, Priority
from posthouse.core.sends import Via
from posthouse.core.switches import DOUBLES_EACH_S, PACED_FOR_S, PACED_FROM, Scope
from posthouse.sandbox.ledger import Acceptance
from posthouse.store.schema import attempts, events, sends
from posthouse.worker.clock import ANSWER_MAX_S
from tests.simulation.calls import Call
from tests.simulation.notices import TYPE as NOTICE
from tests.simulation.routes import confuses_recipients
from tests.simulation.world import EPOCH, World

_ENDED = {"accepted", "failed", "expired", "cancelled", "combined", "suppressed"}

SLOWEST_FAULT_S = 10.0
"""So long after its call has given up something may be accepted at the latest."""

OBEYED_WITHIN_S = 1.0
"""So long after a person has closed something no call for it begins any more."""

SEEN_WITHIN_S = 1.0
"""So long after a send is due every worker knows of it at the latest."""

OVERTAKING_MAX = 5
"""So many calls may begin before an urgent one that waits: bulk has its turn, in each of a few workers."""

TURN_MAX = 25
"""After so many calls of higher priorities, in all of a few workers, bulk has had its turn."""

SOON_S = 5.0
"""So long after it was asked for a code is on its way when all is well, in a world of slow answers and polling."""

ROUNDING = 1e-4


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
    suppressed = {each.address for each in world.people.suppressed} | _complained(world)
    found = rows(world)
    for key, row in found.items():
        if row.status != Status.UNKNOWN:
            continue
        assert row.route in world.natures, f"{key} is held, and nobody knows which route may have accepted it"
        nature = world.natures[row.route]
        told_no = "may have been accepted, and the latest was not" in (row.last_error or "")
        stopped = suppressed & {fold(to) for to in json.loads(row.recipients)}
        late = row.expires_at < (world.quiet_at_s or 0.0) + EPOCH
        in_vain = world.store.ledger.story(key).attempts[-1]["code"] == "look_up_unsure"
        could_tell = nature.key or (nature.look_up and not in_vain)
        assert told_no or stopped or late or not could_tell, f"{key} is held although {row.route} could tell"


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


def events_count_once_in_any_order(world: World) -> None:
    """I7: each piece of news is kept once and joined to the send that its message was of, by the ledger of the provider
    that told it, since another one may give the same ids; and a send's delivery is what all of it says, whatever came
    first.

    Nobody can tell what is about a message whose id no answer has given yet, and looks in all that it says like news of
    one that another provider took for the same recipient.
    """
    by_news: dict[tuple[str, ...], Event] = {
        heard.event.identity(heard.route): heard.event for heard in world.news.heard
    }
    with world.store.database.read() as connection:
        kept = list(connection.execute(select(events)))
    assert len(kept) == len(by_news), f"{len(kept)} events are kept of {len(by_news)}"
    found = rows(world)
    by_id = {row.id: row for row in found.values()}
    copies = {(route, copy.message_id): copy for route, api in world.apis.items() for copy in api.ledger.acceptances}
    by_key: dict[str | None, list[Any]] = defaultdict(list)
    for row in found.values():
        for key in {row.idempotency_key, whole_of(found, row).idempotency_key}:
            by_key[key].append(row)
    told: dict[int, list[EventKind]] = defaultdict(list)
    for event in kept:
        its_sends = by_key[copies[event.route, event.message_id].key]
        row = by_id.get(event.send_id)
        if row is None:  # of a copy whose id no answer gave
            named = any(
                one.idempotency_key == event.send_key or one.message_id == event.message_id for one in its_sends
            )
            assert not named, f"{event.kind} of {event.recipient} has no send"
            continue
        alike = (
            event.send_key is None and _has_taken(world, found, row, event) and not _had_answer(world, its_sends, event)
        )
        assert row in its_sends or alike, f"{event.kind} of {event.recipient} is not about {row.dedupe_key}"
        mine = [address.casefold() for address in json.loads(row.recipients)]
        if len(mine) == 1 or event.recipient == mine[0]:
            told[row.id].append(EventKind(event.kind))
    for key, row in found.items():
        says = delivery(Delivery.NONE, told[row.id])
        assert row.delivery == says, f"{key} is {row.delivery}, and its events say {says}"


def _has_taken(world: World, found: Mapping[str, Any], row: Any, event: Any) -> bool:
    """Whether a provider took the send under the id, and for the recipient, that an event names."""
    return any(
        copy.message_id == event.message_id and event.recipient in copy.recipients
        for _, copy in accepted_by(world, found, row)
    )


def _had_answer(world: World, its_sends: Sequence[Any], event: Any) -> bool:
    """Whether, a second before the event came, a call on its route had been answered that the message was taken."""
    told = (
        attempts.c.send_id.in_([row.id for row in its_sends]),
        attempts.c.route == event.route,
        attempts.c.outcome == Outcome.ACCEPTED.value,
        attempts.c.ended_at < event.received_at - SEEN_WITHIN_S,
    )
    with world.store.database.read() as connection:
        return connection.execute(select(attempts.c.id).where(*told)).first() is not None


def nobody_is_asked_what_an_event_has_told(world: World) -> None:
    """I7: a send of which something was heard is neither held nor called anything but accepted."""
    heard = {heard.event.key for heard in world.news.heard} - {None}
    for key, row in rows(world).items():
        if row.idempotency_key in heard:
            assert row.status == Status.ACCEPTED, f"{key} is {row.status}, and a provider told of it"


def no_server_gets_more_connections_than_allowed(world: World) -> None:
    """I5: each worker keeps to its route's concurrency, counting every connection from its opening until it is gone."""
    for name, nature in world.natures.items():
        for worker, most in world.network.servers[nature.host].most.items():
            allowed = world.config.routes[name].concurrency
            assert most <= allowed, f"{worker} had {most} connections to {name} at once, and {allowed} are allowed"


def every_message_came_by_a_call_that_was_noted(world: World) -> None:
    """What the limits are counted by is all that the providers got: each message by a call on that route for its send,
    which had begun and was to all who got it.

    Over SMTP what was split off has the Message-ID of the whole, and so its key: a call for it is the only one by which
    a message may come under a key that is not the call's own.
    """
    found = rows(world)
    by_id = {row.id: row for row in found.values()}
    noted: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in world.calls:
        noted[call.route, call.key].append(call)
        row = by_id[call.send_id]
        if world.natures[call.route].smtp and row.split_from is not None:
            noted[call.route, whole_of(found, row).idempotency_key].append(call)
    for route, api in world.apis.items():
        for copy in api.ledger.acceptances:
            calls = noted[route, copy.key or ""]
            seen = any(call.at <= copy.at and set(copy.recipients) <= set(call.to) for call in calls)
            assert seen, f"{route} has {copy.subject!r}, and nobody was seen to send it"


@dataclass(frozen=True)
class Counted:
    """What one limit counts: its calls, in the order in which they began, and how much each of them weighs."""

    name: str
    rate: tuple[int, float] | None
    quota: tuple[int, float] | None
    burst: int
    calls: Sequence[Call]
    by_recipient: bool

    def weights(self) -> list[int]:
        return [call.recipients if self.by_recipient else 1 for call in self.calls]


def counted(world: World) -> Iterator[Counted]:
    """Every limit of the configuration, with the calls of all workers that it is about."""
    lanes = {row.id: row.lane for row in rows(world).values()}
    for name, route in world.config.routes.items():
        calls = [call for call in world.calls if call.route == name]
        by_recipient = route.counts == "recipients"
        yield Counted(f"route {name}", route.rate, route.quota, route.burst, calls, by_recipient)
        if route.warm_up is not None:
            second_day = (int(route.warm_up.first * route.warm_up.growth), 86400.0)
            yield Counted(f"warm-up of {name}", None, second_day, 1, calls, by_recipient)
        for group, limits in world.config.groups.items():
            mine = [call for call in calls if group_of(lanes[call.send_id]) == group]
            yield Counted(f"{group} on {name}", limits.rate, None, 1, mine, by_recipient=False)
    for name, service in world.config.services.items():
        mine = [call for call in world.calls if service_of(lanes[call.send_id]) == name]
        yield Counted(f"service {name}", service.rate, service.quota, 1, mine, by_recipient=False)


def no_rate_is_exceeded(world: World) -> None:
    """I5: no window of any length holds more calls than the rate allows, however many workers made them.

    So many as `core.limits.Rate` says, each as late as its slack allows; a process that is suspended may start later,
    and knows the time less well. Where recipients count, those of one message
    go at once, and beside it what had its leave already: that much comes on top, in a window of whatever length.
    """
    for limit in counted(world):
        if limit.rate is None or not limit.calls:
            continue
        count, per_s = limit.rate
        slack_s = SLACK_SHARE * min(per_s, 1.0)
        interval_s = (per_s + slack_s) / (count + 1 - limit.burst)
        late_s = slack_s + (LATE_MAX_S + ANSWER_MAX_S / 2 if world.suspended else 0.0)
        weights = limit.weights()
        leave = limit.burst + (HORIZON_S + late_s) / interval_s
        allowed = limit.burst + late_s / interval_s + (max(weights) - 1) * leave
        lowest, sum_ = float("inf"), 0
        for call, weight in zip(limit.calls, weights, strict=True):
            paid_for = (call.at - EPOCH) / interval_s
            lowest, sum_ = min(lowest, sum_ - paid_for), sum_ + weight
            over = sum_ - paid_for - lowest - allowed
            assert over < ROUNDING, (
                f"{limit.name}: {over:.3f} more than {count} in {per_s} s allow at {call.at - EPOCH}"
            )


def no_quota_is_exceeded(world: World) -> None:
    """I5: no window of a quota's length holds more than the quota."""
    for limit in counted(world):
        if limit.quota is None:
            continue
        count, period_s = limit.quota
        times = [call.at for call in limit.calls]
        sums = [0, *accumulate(limit.weights())]
        for place, at in enumerate(times):
            in_window = sums[place + 1] - sums[bisect_right(times, at - period_s)]
            assert in_window <= count, f"{limit.name}: {in_window} in {period_s} s at {at - EPOCH}, {count} are allowed"


def no_route_has_more_calls_at_once_than_its_total(world: World) -> None:
    """I5: over all workers; a process that is suspended for long is dead to the others."""
    for name, route in world.config.routes.items():
        if route.total_concurrency is None or world.suspended:
            continue
        calls = [call for call in world.calls if call.route == name]
        changes = sorted([(call.ended_at, -1) for call in calls] + [(call.at, 1) for call in calls])
        most = max(accumulate(change for _, change in changes), default=0)
        most = max(most, world.network.servers[world.natures[name].host].most_together)
        assert most <= route.total_concurrency, f"{name} had {most} at once, {route.total_concurrency} are allowed"


def nothing_begins_while_it_is_closed(world: World) -> None:
    """I3: from a second after a person has closed something until it is open again."""
    lanes = {row.id: row.lane for row in rows(world).values()}
    for closing in world.people.closings if not world.suspended else ():
        for call in world.calls:
            if closing.since + OBEYED_WITHIN_S < call.at < closing.until:
                assert not closing.concerns(lanes[call.send_id], call.route), (
                    f"{closing.scope} {closing.value} was closed at {closing.since - EPOCH:.2f}, "
                    f"and a call on {call.route} began at {call.at - EPOCH:.2f}"
                )


def nothing_begins_to_whom_must_not_get_it(world: World) -> None:
    """I3: from a second after an address was suppressed until that is taken back, by no call and no replay."""
    types = {row.id: row.type for row in rows(world).values()}
    for one in world.people.suppressed if not world.suspended else ():
        for call in world.calls:
            if one.since + OBEYED_WITHIN_S < call.at < one.until:
                category = world.policies[types[call.send_id]].category
                assert not one.concerns(category, call.to), (
                    f"{one.address} was suppressed at {one.since - EPOCH:.2f} ({one.cause}), "
                    f"and a call on {call.route} to it began at {call.at - EPOCH:.2f}"
                )


def only_who_must_not_get_it_is_left_out(world: World) -> None:
    """Suppressed is only what is to an address that was, at some time, and for mail of that category.

    By people, by a complaint, or by the answer to an earlier call: a server that says of one recipient that there is no
    such mailbox, and puts the others off, leaves a send of which that one must not be asked for again.
    """
    complained = _complained(world)
    for key, row in rows(world).items():
        if row.status == Status.SUPPRESSED:
            category = world.policies[row.type].category
            for recipient in json.loads(row.recipients):
                told = any(one.concerns(category, {fold(recipient)}) for one in world.people.suppressed)
                told = told or any(
                    fold(recipient) in call.bad for call in world.calls if call.ended_at < row.updated_at
                )
                assert told or fold(recipient) in complained, (
                    f"{key} is suppressed, and nobody has suppressed {recipient}"
                )


def _complained(world: World) -> set[str]:
    """The addresses that a provider says have complained."""
    with world.store.database.read() as connection:
        query = select(events.c.recipient).where(events.c.kind == EventKind.COMPLAINED.value)
        return set(connection.scalars(query))


def what_is_opened_comes_back_slowly(world: World) -> None:
    """No provider gets all at once that waited behind a switch: in the first 10 s at most 20 calls a second."""
    lanes = {row.id: row.lane for row in rows(world).values()}
    for closing in world.people.closings:
        if closing.scope is Scope.ROUTE:
            continue
        times = [
            call.at
            for call in world.calls
            if closing.until <= call.at < closing.until + DOUBLES_EACH_S
            and closing.concerns(lanes[call.send_id], call.route)
        ]
        for place, at in enumerate(times):
            in_window = place + 1 - bisect_right(times, at - 1.0)
            assert in_window <= 2 * PACED_FROM, f"{closing.scope} {closing.value}: {in_window} calls in a second"


def only_calls_cost_attempts(world: World) -> None:
    """I3: what waits behind a switch, a limit or a route loses nothing by it."""
    begun = Counter(call.send_id for call in world.calls)
    with world.store.database.read() as connection:
        begun.update(connection.scalars(select(attempts.c.send_id).where(attempts.c.via == Via.REAPER)))
    for key, row in rows(world).items():
        allowed = begun[row.id] + (row.split_from is not None)
        spent = max(row.attempts, row.failures)
        assert spent <= allowed, f"{key} has spent {spent} attempts, and {allowed} calls began for it"


@dataclass(frozen=True)
class Queued:
    """A send that stood in the queue of a route, open and without limits of its own, until its first call began."""

    key: str
    route: str
    due: float
    begun: float


def queued(world: World, priority: Priority) -> Iterator[Queued]:
    """All of one priority of which that can be said."""
    firsts = {call.send_id: call for call in reversed(_dispatched(world))}
    for key, row in rows(world).items():
        policy, first = world.policies[row.type], firsts.get(row.id)
        own = service_of(row.lane) in world.config.services or group_of(row.lane) in world.config.groups
        if policy.priority is not priority or own or row.after_key is not None or row.split_from is not None:
            continue
        send_at = world.asked[key].email.send_at
        due = max(row.created_at, 0.0 if send_at is None else send_at.timestamp())
        route = policy.routes[0]
        if first is not None and first.fence == 1 and first.route == route:
            begun = first.started_at
        elif first is None and row.fence == 0:
            begun = row.updated_at
        else:
            continue
        closed = [(c.since, c.until + PACED_FOR_S) for c in world.people.closings if c.concerns(row.lane, route)]
        if not any(since < begun and until > due for since, until in closed + world.database_troubles):
            yield Queued(key, route, due, begun)


def _dispatched(world: World) -> Sequence[Any]:
    """The calls for sends that had just been claimed, and the priority of each."""
    query = select(attempts, sends.c.type).join(sends, sends.c.id == attempts.c.send_id)
    with world.store.database.read() as connection:
        return connection.execute(query.where(attempts.c.via == Via.SEND).order_by(attempts.c.started_at)).all()


def urgent_mail_never_waits_behind_bulk(world: World) -> None:
    """I4: once it is due and seen, hardly any bulk begins on its route before it, but for bulk's turn among others."""
    bulk: dict[str, list[float]] = defaultdict(list)
    urgent: dict[str, list[float]] = defaultdict(list)
    for call in _dispatched(world):
        times = {Priority.BULK: bulk, Priority.URGENT: urgent}.get(world.policies[call.type].priority)
        if times is not None:
            times[call.route].append(call.started_at)
    for send in queued(world, Priority.URGENT) if not world.suspended else ():
        waited = send.due + SEEN_WITHIN_S, send.begun
        overtook, ahead = _within(bulk[send.route], *waited), _within(urgent[send.route], *waited)
        allowed = OVERTAKING_MAX + ahead // TURNS
        assert overtook <= allowed, f"{overtook} bulk calls began on {send.route} while {send.key} waited"


def _within(times: Sequence[float], after: float, before: float) -> int:
    return max(0, bisect_left(times, before) - bisect_right(times, after))


def bulk_never_starves(world: World) -> None:
    """I4: while bulk waits for a route, it has its turn among what begins there."""
    begun: dict[str, list[Any]] = defaultdict(list)
    for call in _dispatched(world):
        begun[call.route].append(call)
    for send in queued(world, Priority.BULK) if not world.suspended else ():
        run = 0
        for call in begun[send.route]:
            if send.due + SEEN_WITHIN_S < call.started_at < send.begun:
                run = 0 if world.policies[call.type].priority is Priority.BULK else run + 1
                assert run <= TURN_MAX, f"{run} other calls began on {send.route} while {send.key} waited"


def a_code_begins_soon_when_all_is_well(world: World) -> None:
    """I4: with every route well and every gate open it waits for nothing but the rate, whatever waits beside it.

    What is found suppressed right before its call has had its place in the rate, as a call has.
    """
    stopped = [
        (row.updated_at, len(json.loads(row.recipients)))
        for row in rows(world).values()
        if row.status == Status.SUPPRESSED and row.route is not None
    ]
    for send in queued(world, Priority.URGENT):
        route = world.config.routes[send.route]
        if send.key != world.last_code or route.quota is not None or route.warm_up is not None:
            continue
        meanwhile = [call.recipients for call in world.calls if send.due < call.at <= send.begun]
        meanwhile += [recipients for at, recipients in stopped if send.due < at <= send.begun]
        allowed = SOON_S
        if route.rate is not None:
            count, per_s = route.rate
            rate = Rate(count, per_s, route.burst, slack_s=SLACK_SHARE * min(per_s, 1.0))
            allowed += sum(meanwhile) * rate.interval_s
        assert send.begun - send.due <= allowed, f"{send.key} waited for {send.begun - send.due:.1f} s"


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
            cancelled_at = world.people.cancelled.get(whole_of(found, row).dedupe_key)
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
    nothing_begins_while_it_is_closed,
    nothing_begins_to_whom_must_not_get_it,
    only_who_must_not_get_it_is_left_out,
    what_is_opened_comes_back_slowly,
    only_calls_cost_attempts,
    events_count_once_in_any_order,
    nobody_is_asked_what_an_event_has_told,
    nobody_gets_it_twice_silently,
    nobody_is_left_out_silently,
    each_notice_goes_out_in_one_message,
    unknown_stays_with_its_route,
    urgent_mail_never_waits_behind_bulk,
    bulk_never_starves,
    a_code_begins_soon_when_all_is_well,
    no_server_gets_more_connections_than_allowed,
    no_rate_is_exceeded,
    no_quota_is_exceeded,
    no_route_has_more_calls_at_once_than_its_total,
    every_message_came_by_a_call_that_was_noted,
    who_leaves_closes_the_door,
    the_application_is_never_held_up,
    every_fault_is_handled,
)
