"""Mailbox groups in the store: each event counts once, one worker judges at a time, and people can look and step in."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from sqlalchemy import delete, func, select

from posthouse.core.events import Cause, Event, EventKind
from posthouse.core.group_health import (
    BUCKET_S,
    DAY_S,
    KEPT_S,
    CountKey,
    Counts,
    GroupRoute,
    HealthPolicy,
    Signal,
    bucket_of,
)
from posthouse.core.outcome import Verdict
from posthouse.core.slowdown import LEFT_ALONE_S, STEPS, Slowdown
from posthouse.core.slowdown import judge as decide
from posthouse.core.smtp_replies import Fault as SmtpFault
from posthouse.core.smtp_replies import Phase, Reply
from posthouse.core.smtp_rules import all_refused, judge_fault, judge_reply, partly_accepted
from posthouse.core.switches import Scope, Switch
from posthouse.errors import NotPossible
from posthouse.store import group_health
from posthouse.store.group_health import JUDGED_EVERY_S, Fault, Judged
from posthouse.store.retention import Limits
from posthouse.store.schema import audit, group_counts, sends
from tests.contract.store_support import POLICIES, Bench, accepted, at, race, report

GMAIL = GroupRoute("gmail", "main")
POLICY = HealthPolicy()
STEP_S = STEPS[Signal.PUSHED_BACK].step_s


def heard(bench: Bench, kind: EventKind, number: int, to: str = "gmail.com", **fields: Any) -> list[Event]:
    """So many events of just now, each of another recipient."""
    return [Event(kind, bench.now, recipient=f"{kind}-{n}@{to}", message_id=f"m-{n}", **fields) for n in range(number)]


def hear(bench: Bench, news: list[Event], route: str = "main") -> None:
    bench.store.events.store(route, news, POLICIES, bench.now)


def count(bench: Bench, sent: int, where: GroupRoute = GMAIL, ago_s: float = 0.0) -> None:
    """As a worker counts its calls."""
    key = CountKey(bucket_of(bench.now - ago_s), *where, EventKind.SENT, Cause.NONE)
    bench.store.group_health.count({key: sent})


def totals(bench: Bench, since_s: float = DAY_S) -> dict[GroupRoute, Counts]:
    return bench.store.group_health.totals(bench.now - since_s)


def judge(bench: Bench, policy: HealthPolicy = POLICY) -> list[Judged] | None:
    return bench.store.group_health.judge(policy, bench.now)


def let_pass(bench: Bench, seconds: float) -> None:
    bench.now += seconds


def put_off(bench: Bench, sent: int = 1000, number: int = 200, where: GroupRoute = GMAIL) -> None:
    """A group that pushes much back, in a bucket that begins now."""
    bench.now = bucket_of(bench.now) + BUCKET_S
    count(bench, sent, where)
    hear(bench, heard(bench, EventKind.DEFERRED, number, f"{where.group}.com", cause=Cause.TOO_FAST), where.route)
    let_pass(bench, 30.0)


def test_events_count_once_by_group_route_kind_and_cause(bench: Bench) -> None:
    news = [
        *heard(bench, EventKind.DELIVERED, 3),
        *heard(bench, EventKind.DEFERRED, 2, cause=Cause.TOO_FAST),
        *heard(bench, EventKind.DEFERRED, 1, "googlemail.com", cause=Cause.GREYLISTED),
        *heard(bench, EventKind.BOUNCED, 1, "yahoo.co.uk", cause=Cause.NO_MAILBOX),
        *heard(bench, EventKind.COMPLAINED, 1, "shop.example"),
        *heard(bench, EventKind.OPENED, 5),
    ]
    for _ in range(2):
        hear(bench, news)
    hear(bench, news[:1], route="standby")

    assert totals(bench) == {
        GMAIL: Counts(delivered=3, deferred=3, pushed_back=2),
        GroupRoute("yahoo", "main"): Counts(bounced=1),
        GroupRoute("other", "main"): Counts(complained=1),
        GroupRoute("gmail", "standby"): Counts(delivered=1),
    }


def test_an_event_that_is_looked_at_again_for_its_send_counts_no_second_time(bench: Bench) -> None:
    hear(bench, heard(bench, EventKind.DELIVERED, 2))
    for later_s in (5, 50, 500):
        bench.store.events.join(POLICIES, bench.now + later_s)
    assert totals(bench)[GMAIL].delivered == 2


def test_mail_that_anybody_can_write_counts_once_for_a_recipient_of_a_send_that_it_knows(bench: Bench) -> None:
    bench.enqueue("k", to="ada@gmail.com")
    bench.settle(report(bench.claim_one("receipt///gmail"), accepted("m-1"), bench.now))
    key = bench.row("k")["idempotency_key"]
    for number in range(12):
        for name in ("made up", key):
            said = Event(EventKind.DEFERRED, bench.now - number, "ada@gmail.com", key=name)
            bench.store.events.store("main", [said], POLICIES, bench.now, verified=False)
    assert totals(bench) == {GMAIL: Counts(deferred=1, pushed_back=1)}


def test_mail_about_somebody_else_takes_no_place_from_what_is_said_of_a_recipient(bench: Bench) -> None:
    bench.enqueue("k", to="ada@gmail.com")
    bench.settle(report(bench.claim_one("receipt///gmail"), accepted("m-1"), bench.now))
    key = bench.row("k")["idempotency_key"]
    for to in (("eve@gmail.com",), ("eve@yahoo.com", "ada@gmail.com"), ("ada@gmail.com",)):
        for ago_s in (1, 2):
            said = [Event(EventKind.BOUNCED, bench.now - ago_s, address, key=key) for address in to]
            bench.store.events.store("main", said, POLICIES, bench.now, verified=False)
    assert totals(bench) == {GMAIL: Counts(bounced=1)}


def test_many_who_count_at_once_lose_nothing_and_wait_for_nobody_in_a_ring(bench: Bench) -> None:
    def one(number: int) -> None:
        for to in ("gmail.com", "yahoo.com") if number % 2 else ("yahoo.com", "gmail.com"):
            news = heard(bench, EventKind.DELIVERED, 5, to) + heard(bench, EventKind.DEFERRED, 5, to)
            hear(bench, [Event(e.kind, e.at, f"{number}-{e.recipient}") for e in news])
        count(bench, 10)

    race([partial(one, number) for number in range(4)])
    assert totals(bench)[GMAIL] == Counts(40, 20, 20, pushed_back=20)
    assert totals(bench)[GroupRoute("yahoo", "main")] == Counts(0, 20, 20, pushed_back=20)


def test_a_group_that_pushes_back_is_slowed_by_one_of_all_workers_and_no_other_is(bench: Bench) -> None:
    put_off(bench)
    count(bench, 1000, GroupRoute("yahoo", "main"))
    count(bench, 1000, GroupRoute("gmail", "standby"))

    found = race([partial(judge, bench) for _ in range(3)])

    (judged,) = [one for told in found for one in told or ()]
    assert sum(told is not None for told in found) == 1
    assert judged.before is None
    (slowed,) = bench.store.group_health.slowdowns()
    assert (slowed.where, slowed.per_minute, slowed.was_per_minute) == (GMAIL, 500, 1000)
    assert slowed.signal is Signal.PUSHED_BACK
    assert (slowed.since, slowed.changed_at) == at((bench.now, bench.now))
    assert slowed.reason == "20% of 1,000 were put off or refused within 15 min"
    assert bench.store.switches.gates()[1] == [slowed]
    assert judge(bench) is None
    let_pass(bench, JUDGED_EVERY_S)
    assert judge(bench) == []


def test_what_a_group_has_always_done_slows_it_not(bench: Bench) -> None:
    for days in range(2, 13):
        for kind, number in ((EventKind.SENT, 1000), (EventKind.DEFERRED, 150)):
            key = CountKey(bucket_of(bench.now - days * DAY_S), *GMAIL, kind, Cause.NONE)
            bench.store.group_health.count({key: number})
    put_off(bench)
    assert judge(bench) == []


def test_it_gets_less_while_it_stays_bad_and_comes_back_by_steps(bench: Bench) -> None:
    put_off(bench)
    paces: list[int | None] = []
    for bad in (True, True, True, False, *[False] * 9):
        for one in judge(bench) or ():
            paces.append(None if one.after is None else one.after.per_minute)
        let_pass(bench, STEP_S)
        if bad:
            put_off(bench, sent=1000, number=200)
        else:
            count(bench, 500)
    assert paces == [500, 250, 125, 63, 126, 252, 504, 1000, None][: len(paces)]
    assert len(paces) >= 5


def test_a_person_ends_it_and_it_does_not_come_right_back(bench: Bench) -> None:
    put_off(bench)
    judge(bench)
    resume = partial(bench.store.switches.resume, Scope.GROUP, "gmail", who="grace", now=bench.now)

    assert resume() is False
    assert bench.store.group_health.slowdowns() == []
    with pytest.raises(NotPossible, match="group gmail is not paused"):
        resume()
    with bench.store.database.read() as connection:
        told = connection.execute(select(audit.c.who, audit.c.action, audit.c.subject)).all()
    assert told == [("grace", "end slow-down", "group gmail")]
    put_off(bench)
    assert judge(bench) == []
    let_pass(bench, LEFT_ALONE_S)
    put_off(bench, number=900)
    judge(bench)
    let_pass(bench, JUDGED_EVERY_S)
    judge(bench)
    assert [slowed.where for slowed in bench.store.group_health.slowdowns()] == [GMAIL]


def test_a_person_who_ends_it_while_it_is_judged_has_the_last_word(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_off(bench)
    judge(bench)
    let_pass(bench, STEP_S)

    def judged_meanwhile(*given: Any) -> Slowdown | None:
        bench.store.switches.resume(Scope.GROUP, "gmail", who="grace", now=bench.now)
        return decide(*given)

    monkeypatch.setattr(group_health, "judge", judged_meanwhile)
    assert judge(bench) == []
    assert bench.store.group_health.slowdowns() == []


def test_a_group_that_is_paused_too_is_resumed_first(bench: Bench) -> None:
    put_off(bench)
    judge(bench)
    bench.store.switches.pause(Switch(Scope.GROUP, "gmail", "", "grace", bench.now))
    resume = partial(bench.store.switches.resume, Scope.GROUP, "gmail", who="grace", now=bench.now)
    assert resume() is True
    assert len(bench.store.group_health.slowdowns()) == 1
    assert resume() is False


def test_our_own_faults_are_listed_and_those_of_recipients_are_not(bench: Bench) -> None:
    for cause in Cause:
        hear(bench, heard(bench, EventKind.BOUNCED, 1, f"{cause or 'none'}.example", cause=cause, text="why"))

    found = faults(bench)

    assert {fault.cause for fault in found} == {Cause.TOO_FAST, Cause.BLOCKED, Cause.NOT_AUTHENTIC}
    assert {(fault.route, fault.text, fault.send_id) for fault in found} == {("main", "why", None)}
    assert faults(bench, since_s=-60) == []


def faults(bench: Bench, routes: Sequence[str] = ("main",), since_s: float = 60.0) -> list[Fault]:
    return [*bench.store.group_health.faults(bench.now - since_s, routes).found]


def called(bench: Bench, key: str, verdict: Verdict, to: str | Sequence[str] = "ada@gmail.com") -> int:
    """The id of a send whose call brought this."""
    send = bench.enqueue(key, to=to)
    bench.settle(report(bench.claim_one(bench.row(key)["lane"]), verdict, bench.now))
    return send


def refused(said: str, code: int = 550, recipient: str | None = None) -> Verdict:
    return judge_reply(Reply(Phase.RCPT, code, said), recipient=recipient)


DMARC = "5.7.26 This mail is unauthenticated"


def test_what_a_server_refuses_at_the_call_is_listed_beside_what_is_heard(bench: Bench) -> None:
    hear(bench, heard(bench, EventKind.BOUNCED, 1, cause=Cause.NOT_AUTHENTIC, text="heard"))
    send = called(bench, "k", refused(DMARC), "Ada@gmail.com")
    called(bench, "put off", refused("4.7.0 [TSS04] deferred due to user complaints", 450), "eve@yahoo.com")
    called(bench, "taken", accepted())
    called(bench, "gone", refused("5.1.1 no such user", recipient="bob@gmail.com"), "bob@gmail.com")
    called(bench, "ours", judge_fault(SmtpFault(Phase.MAIL, "no_dkim_key"), "the DKIM key can't be read"))

    told = {fault.text: fault for fault in faults(bench)}

    assert set(told) == {"heard", f"at RCPT TO: {DMARC}", "at RCPT TO: 4.7.0 [TSS04] deferred due to user complaints"}
    assert told[f"at RCPT TO: {DMARC}"] == Fault(
        "ada@gmail.com", "main", Cause.NOT_AUTHENTIC, "550", f"at RCPT TO: {DMARC}", at(bench.now), send
    )


def test_on_other_routes_it_is_the_provider_that_answers(bench: Bench) -> None:
    called(bench, "k", refused(DMARC))
    assert faults(bench, ()) == faults(bench, ["standby"]) == []
    assert len(faults(bench, ["standby", "main"])) == 1
    assert faults(bench, since_s=-60) == []


def test_each_try_of_a_send_was_said_once(bench: Bench) -> None:
    called(bench, "k", refused(DMARC, 450))
    lane, bench.now = bench.row("k")["lane"], bench.now + DAY_S
    bench.settle(report(bench.claim_one(lane), refused(DMARC, 450), bench.now))
    assert [fault.at for fault in faults(bench, since_s=2 * DAY_S)] == at([bench.now, bench.now - DAY_S])


TWO = ("ada@gmail.com", "bob@yahoo.com")


def test_of_several_recipients_those_are_told_who_are_refused_for_our_fault(bench: Bench) -> None:
    verdicts = [refused("4.2.2 full", 452), refused(DMARC)]
    called(bench, "k", all_refused([*zip(TWO, verdicts, strict=True)]), TWO)
    (fault,) = faults(bench)
    assert (fault.recipient, fault.code, fault.text) == ("bob@yahoo.com", "550", f"at RCPT TO: {DMARC}")


def test_those_who_are_refused_beside_others_are_told_once_with_the_send_of_their_own(bench: Bench) -> None:
    send = called(bench, "k", partly_accepted(accepted(), [("bob@yahoo.com", refused(DMARC))], "<m@x>"), TWO)
    (fault,) = faults(bench)
    assert fault.recipient == "bob@yahoo.com"
    assert fault.send_id not in (None, send)


def test_a_send_that_is_gone_leaves_what_was_said(bench: Bench) -> None:
    called(bench, "k", refused(DMARC))
    with bench.store.database.write() as connection:
        connection.execute(delete(sends))
    assert [fault.recipient for fault in faults(bench)] == [""]


def test_no_more_than_the_newest_are_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_health, "FAULTS_READ_MAX", 2)
    hear(bench, heard(bench, EventKind.BOUNCED, 1, cause=Cause.BLOCKED))
    assert bench.store.group_health.faults(bench.now - 60, ["main"]).all
    for number in range(3):
        let_pass(bench, 1.0)
        called(bench, f"k-{number}", refused(DMARC))
    newest = bench.store.group_health.faults(bench.now - 60, ["main"])
    assert [fault.at for fault in newest.found] == at([bench.now, bench.now - 1.0])
    assert not newest.all


def test_counts_are_forgotten_after_two_weeks(bench: Bench) -> None:
    for ago_s in (KEPT_S + BUCKET_S, KEPT_S - BUCKET_S, 0.0):
        count(bench, 1, ago_s=ago_s)
    bench.store.retention.purge(Limits(*[KEPT_S] * 4), bench.now)
    with bench.store.database.read() as connection:
        assert connection.scalar(select(func.sum(group_counts.c.number))) == 2
