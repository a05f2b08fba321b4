"""Combining: sends to one recipient go out as one; each of them in exactly one, whoever claims."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from sqlalchemy import update

from posthouse.content import Content
from posthouse.core import intervention
from posthouse.core.lifecycle import Status
from posthouse.core.settlement import release
from posthouse.email import Email
from posthouse.store.queue import Report
from posthouse.store.schema import contents
from posthouse.store.taking import ClaimedSend
from tests.contract.store_support import NEWS, ROUTES, Bench, accepted, at, outbox, race, rejected, report, transient

LANE = "news"
WINDOW_S = NEWS.combine_s or 0.0
AFTER_S = WINDOW_S + 60.0
"""From the bench's moment on, whatever was enqueued a moment ago is due."""


def gather(bench: Bench, *keys: str, **fields: Any) -> None:
    """Enqueues one notice each, which says its key."""
    for key in keys:
        wanted = {"type": "news", "subject": None, "text": None, "template": "news", "variables": {"key": key}}
        bench.enqueue(key, **(wanted | fields))


def claim(bench: Bench, count: int = 10, *, worker: int | None = None, after_s: float = AFTER_S) -> list[ClaimedSend]:
    now = bench.now + after_s
    return bench.store.queue.claim(LANE, count, worker or bench.worker, now, ROUTES, WINDOW_S)


def said(send: ClaimedSend) -> list[str]:
    """The keys that a claimed send speaks of."""
    content = Content.from_json(send.body or "")
    return [item["key"] for item in content.items or (content.variables,)]


def carriers(bench: Bench, *keys: str) -> list[str | None]:
    stories = [bench.store.ledger.story(key) for key in keys]
    return [None if story.carrier is None else story.carrier["dedupe_key"] for story in stories]


def test_a_send_waits_for_others_and_then_they_go_out_as_one(bench: Bench) -> None:
    gather(bench, "a", "b", "c")
    row = bench.row("a")
    assert row["next_try_at"] - row["created_at"] == pytest.approx(WINDOW_S, abs=1.0)
    assert row["expires_at"] - row["next_try_at"] == pytest.approx(NEWS.max_age_s, abs=1.0)
    assert claim(bench, after_s=0.0) == []

    (one,) = claim(bench)

    assert (one.key, one.state.fence, said(one)) == ("a", 1, ["a", "b", "c"])
    assert [bench.status(key) for key in "abc"] == [Status.SENDING, Status.COMBINED, Status.COMBINED]
    assert carriers(bench, "a", "b", "c") == [None, "a", "a"]
    story = bench.store.ledger.story("a")
    assert ([member["dedupe_key"] for member in story.combined], story.body) == (["b", "c"], one.body)
    assert bench.store.ledger.story("b").body is None
    assert bench.row("a")["expires_at"] == at(row["expires_at"])


def test_many_at_once_are_written_with_their_window(bench: Bench) -> None:

    wanted = [
        Email(key=key, type="news", to="ada@example.com", template="news", variables={"key": key}) for key in "ab"
    ]
    with bench.store.database.write() as connection:
        outbox(bench.store.database.clock).enqueue_many(connection, wanted)

    row = bench.row("b")
    assert row["next_try_at"] - row["created_at"] == pytest.approx(WINDOW_S, abs=1.0)
    assert [said(one) for one in claim(bench)] == [["a", "b"]]


def test_those_that_are_not_due_yet_join_and_those_of_a_later_day_do_not(bench: Bench) -> None:
    gather(bench, "due", "coming", "later")
    now = bench.now + AFTER_S
    bench.edit("coming", next_try_at=now + WINDOW_S - 1.0)
    bench.edit("later", next_try_at=now + WINDOW_S + 1.0)

    assert [said(one) for one in claim(bench)] == [["due", "coming"]]
    assert bench.status("later") is Status.PENDING


def test_each_recipient_and_each_service_has_its_own(bench: Bench) -> None:
    gather(bench, "a", "b")
    gather(bench, "bobs", to="bob@example.com")
    gather(bench, "shops", service="shop")

    assert [said(one) for one in claim(bench)] == [["a", "b"], ["bobs"]]
    assert bench.status("shops") is Status.PENDING


def test_what_was_tried_before_is_sent_again_as_it_was(bench: Bench) -> None:
    gather(bench, "a", "b")
    (first,) = claim(bench)
    tried_at = bench.now + AFTER_S
    bench.settle(report(first.state, transient(), tried_at), now=tried_at)
    gather(bench, "c")

    other, again = claim(bench, after_s=AFTER_S + 3600.0)

    assert (again.key, again.body, again.idempotency_key) == ("a", first.body, first.idempotency_key)
    assert said(other) == ["c"]


def test_what_was_given_back_before_any_call_takes_in_what_came_meanwhile(bench: Bench) -> None:
    gather(bench, "a", "b")
    (first,) = claim(bench)
    back_at = bench.now + AFTER_S + 30.0
    bench.settle(Report(first.state.id, first.state.fence, partial(release, again_at=back_at)), now=back_at)
    gather(bench, "c")  # due before what was given back

    (again,) = claim(bench)

    assert (again.key, said(again)) == ("c", ["a", "b", "c"])
    assert carriers(bench, "a", "b", "c") == ["c", "c", None]


@pytest.mark.parametrize("status", [Status.CANCELLED, Status.EXPIRED])
def test_what_has_ended_by_itself_does_not_go_out(bench: Bench, status: Status) -> None:
    gather(bench, "a", "b")
    if status is Status.CANCELLED:
        bench.intervene("b", intervention.cancel)
    else:
        bench.edit("b", expires_at=bench.now + AFTER_S)

    assert [said(one) for one in claim(bench, 1)] == [["a"]]
    assert bench.status("b") is not Status.COMBINED


@pytest.mark.parametrize("body", ["{", '{"version":1}', None])
def test_what_cannot_be_read_fails_by_itself(bench: Bench, body: str | None) -> None:
    gather(bench, "a", "b", "c")
    mine = contents.c.send_id == bench.row("b")["id"]
    with bench.store.database.write() as connection:
        connection.execute(
            contents.delete().where(mine) if body is None else update(contents).where(mine).values(body=body)
        )

    assert [(one.key, one.body) for one in claim(bench)][1:] == [("b", body)]
    assert carriers(bench, "a", "b", "c") == [None, None, "a"]


def test_members_stand_as_their_carrier_does_and_whoever_waits_for_them_too(bench: Bench) -> None:
    gather(bench, "a", "b")
    gather(bench, "c", "d", to="bob@example.com")
    bench.enqueue("after-b", after="b")
    bench.enqueue("after-d", after="d")
    first, second = claim(bench)
    now = bench.now + AFTER_S
    assert bench.store.sweeps.sweep_dependencies(now) == 0

    bench.settle(report(first.state, accepted(), now), report(second.state, rejected(), now), now=now)

    assert bench.store.sweeps.sweep_dependencies(now) == 2
    assert [bench.status(key) for key in ("after-b", "after-d")] == [Status.PENDING, Status.CANCELLED]
    assert "ended as failed" in bench.row("after-d")["last_error"]


def test_a_member_is_found_with_what_carries_it(bench: Bench) -> None:
    gather(bench, "a", "b")
    claim(bench)

    (found,) = bench.store.ledger.find(["b"], None, 10)
    assert (found["dedupe_key"], found["carrier_key"], found["carrier_status"]) == ("b", "a", "sending")


def test_a_person_is_sent_to_what_carries_it(bench: Bench) -> None:
    gather(bench, "a", "b")
    claim(bench)

    for decide in (intervention.cancel, partial(intervention.retry, now=bench.now)):
        with pytest.raises(Exception, match="goes out in another send"):
            bench.intervene("b", decide)


def test_however_many_claim_at_once_everything_goes_out_once_and_nobody_gets_two(bench: Bench) -> None:
    people, each = 12, 5
    for number in range(each):
        for person in range(people):
            gather(bench, f"k-{person}-{number}", to=f"person-{person}@example.com")
    workers = [bench.worker, bench.another_worker(), bench.another_worker()]

    def claim_all(worker: int) -> list[ClaimedSend]:
        mine: list[ClaimedSend] = []
        while claimed := claim(bench, 7, worker=worker):
            mine += claimed
        return mine

    if bench.store.database.is_sqlite:
        claimed = claim_all(workers[0])
    else:
        claimed = [one for mine in race([partial(claim_all, worker) for worker in workers]) for one in mine]

    assert sorted(key for one in claimed for key in said(one)) == sorted(
        f"k-{person}-{number}" for number in range(each) for person in range(people)
    )
    assert len(claimed) == people
    for one in claimed:
        members = [member["dedupe_key"] for member in bench.store.ledger.story(one.key).combined]
        assert sorted([one.key, *members]) == sorted(said(one))
        assert json.loads(bench.row(one.key)["recipients"]) == [f"person-{one.key.split('-')[1]}@example.com"]
