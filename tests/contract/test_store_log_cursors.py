"""How far a log was read: one reader at a time, nothing is skipped, and what two ways tell counts once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from posthouse.core.events import EventKind
from posthouse.store.log_cursors import LogCursor
from tests.contract.store_support import Bench, at, race
from tests.contract.test_store_events import hear, key_of, news, rows, sent

EVERY_S = 600.0


def taken(bench: Bench, after_s: float = 0.0) -> LogCursor | None:
    return bench.store.log_cursors.take_turn("main", bench.now + after_s, EVERY_S)


def test_of_many_who_look_one_has_the_turn_until_it_is_due_again(bench: Bench) -> None:
    for after_s in (0.0, EVERY_S + 1):
        turns = race([partial(taken, bench, after_s)] * 4)
        assert len([turn for turn in turns if turn is not None]) == 1
        assert taken(bench, after_s + EVERY_S / 2) is None
    assert bench.store.log_cursors.take_turn("other", bench.now, EVERY_S) is not None


def test_a_cursor_moves_with_each_stretch_and_only_for_who_has_the_turn(bench: Bench) -> None:
    cursors = bench.store.log_cursors
    mine = taken(bench)
    assert mine == LogCursor("main", None, bench.now)
    mine = cursors.advance(mine, bench.now - 900, bench.now + 10)
    assert mine is not None
    theirs = taken(bench, 10 + EVERY_S)
    assert theirs is not None
    assert theirs.read_until == at(bench.now - 900)

    assert cursors.advance(mine, bench.now, bench.now + 700) is None
    known = cursors.of("main")
    assert known is not None
    assert known.read_until == at(bench.now - 900)


def test_a_person_takes_the_turn_and_skips_nothing(bench: Bench) -> None:
    cursors = bench.store.log_cursors
    theirs = taken(bench)
    assert theirs is not None
    mine = cursors.seize_turn("main", bench.now, since=5000.0)
    assert mine.read_until == at(5000.0)
    assert cursors.advance(theirs, bench.now, bench.now) is None, "whoever had it notices"

    assert cursors.seize_turn("main", bench.now, since=9000.0).read_until == at(5000.0)
    assert cursors.seize_turn("main", bench.now, since=4000.0).read_until == at(4000.0)
    assert cursors.seize_turn("main", bench.now).read_until == at(4000.0)


def test_it_is_known_since_when_a_log_fails(bench: Bench) -> None:
    cursors = bench.store.log_cursors
    mine = taken(bench)
    assert mine is not None
    mine = cursors.fail(mine, "403 no\x00", bench.now + 1)
    assert mine is not None
    mine = cursors.fail(mine, "429 later", bench.now + 2)
    assert mine is not None
    known = cursors.of("main")
    assert known is not None
    assert (known.failing_since, known.error, known.read_until) == (at(bench.now + 1), "429 later", None)

    assert cursors.advance(mine, bench.now, bench.now + 3) is not None
    known = cursors.of("main")
    assert known is not None
    assert (known.failing_since, known.error) == (None, "")


def test_what_a_webhook_and_the_log_tell_counts_once(bench: Bench) -> None:
    sent(bench)
    webhook = news(key=key_of(bench, "k"), provider_event_id="delivery m-1 ada@example.com")
    log = replace(webhook, key=None, at=webhook.at + 0.7)

    assert [hear(bench, each).new for each in (webhook, log, log, webhook)] == [1, 0, 0, 0]
    assert hear(bench, replace(log, message_id="m-2", provider_event_id="delivery m-2 ada@example.com")).new == 1
    assert len(rows(bench)) == 2


def test_only_of_sends_without_a_known_end_is_more_asked_for(bench: Bench) -> None:
    for number, kind in enumerate([None, EventKind.DEFERRED, EventKind.DELIVERED, EventKind.BOUNCED]):
        sent(bench, f"k-{number}", f"m-{number}")
        if kind is not None:
            hear(bench, news(kind, message_id=f"m-{number}"))

    asked = {"m-0", "m-1", "m-2", "m-3", "nobody's"}
    assert bench.store.events.without_end(asked) == {"m-0", "m-1"}
