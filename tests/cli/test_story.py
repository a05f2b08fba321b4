"""The story of one send: its time-line, how it stands, and what happens next; on values, without a database."""

from __future__ import annotations

from typing import Any

import pytest

from posthouse.cli.story import Surroundings, command, expiry, folded, is_held, next_step, standing, timeline
from posthouse.cli.story_lines import heading_lines, standing_lines, time_lines
from posthouse.core.lifecycle import Status
from posthouse.core.policy import OnUnknown, RouteFacts, TypePolicy
from posthouse.core.routing import RouteHealth, RouteState
from posthouse.store.ledger import Story
from posthouse.store.schema import sends

NOW = 1_785_412_931.5  # 2026-07-30 14:02:11.5 CEST
POLICY = TypePolicy("receipt", routes=("main", "standby"), on_unknown=OnUnknown.HOLD, unknown_wait_s=3600.0)
FACTS = {"main": RouteFacts("main", key_lifetime_s=86_400.0), "standby": RouteFacts("standby")}


def make_story(
    *attempts: dict[str, Any], audit: tuple[dict[str, Any], ...] = (), body: str | None = "{}", **send: Any
) -> Story:
    """A story whose send is a pending receipt that was asked for at NOW, but for what is said."""
    row: dict[str, Any] = dict.fromkeys(sends.columns.keys())
    row |= {
        "id": 17,
        "dedupe_key": "order-1042-receipt",
        "idempotency_key": "c0ffee",
        "type": "receipt",
        "status": "pending",
        "recipients": '["ada@example.com"]',
        "attempts": len(attempts),
        "failures": 0,
        "fence": len(attempts),
        "delivery": "none",
        "maybe_duplicate": False,
        "created_at": NOW,
        "updated_at": NOW,
        "next_try_at": NOW,
        "expires_at": NOW + 3 * 86_400,
    }
    return Story(row | send, list(attempts), list(audit), body)


def attempt(at: float, outcome: str, *, via: str = "send", took_s: float = 0.1, **values: Any) -> dict[str, Any]:
    """One row of email_attempts."""
    row: dict[str, Any] = dict.fromkeys(("message_id", "request_id", "raw"))
    row |= {"via": via, "route": "main", "worker": 3, "code": "", "text": "", "rule": "", "maybe_accepted": False}
    return row | {"started_at": at, "ended_at": at + took_s, "outcome": outcome} | values


def around(**values: Any) -> Surroundings:
    """One worker alive, two healthy routes, but for what is said."""
    given: dict[str, Any] = {"now": NOW, "policy": POLICY, "facts": FACTS, "health": {}, "workers_alive": {3}}
    return Surroundings(**given | values)


def test_a_send_that_was_split_says_who_has_not_got_it_and_where_to_look() -> None:
    whole = make_story(status="accepted", next_try_at=None)
    part = make_story(id=18, dedupe_key="order-1042-receipt#c0ffee", recipients='["bob@example.com"]', split_from=17)
    whole.splits.append(part.send)
    assert "  not to bob@example.com: see order-1042-receipt#c0ffee, pending" in [
        str(line) for line in heading_lines(whole, None, NOW, 120)
    ]
    assert any("split off send 17" in str(line) for line in heading_lines(part, None, NOW, 120))


def next_of(story: Story, **values: Any) -> str:
    return next_step(story, around(**values)).text


def told(story: Story, *, raw: bool = False, width: int = 80) -> list[str]:
    return [str(line) for line in time_lines(timeline(story), width, raw=raw)]


def test_the_time_line_tells_everything_in_its_order() -> None:
    story = make_story(
        attempt(NOW + 1, "transient", code="503", text="Service unavailable"),
        attempt(NOW + 6, "unknown", code="read_timeout", text="no answer within the timeout", took_s=15.0),
        attempt(NOW + 25, "unknown", via="look-up", code="look_up_missing", text="it answered 404", took_s=0.01),
        attempt(NOW + 30, "accepted", via="replay", code="200", message_id="m-1", took_s=0.05),
        audit=({"at": NOW + 28, "who": "ada@desk", "action": "reconcile", "detail": ""},),
        status="accepted",
        route="main",
    )

    assert told(story) == [
        "Thursday 2026-07-30, times in CEST",
        "  14:02:11.5  asked for",
        "  14:02:12.5  attempt 1 on main            transient 503         100 ms",
        "              Service unavailable",
        "  14:02:17.5  attempt 2 on main            unknown read_timeout  15.0 s",
        "              no answer within the timeout",
        "  14:02:36.5  asked main                   not found there       10 ms",
        "              it answered 404",
        "  14:02:39.5  ada@desk: reconcile",
        "  14:02:41.5  attempt 3 on main, same key  accepted 200          50 ms",
        "              message id m-1",
    ]


def event(at: float, kind: str, **values: Any) -> dict[str, Any]:
    """One row of email_events."""
    row = {
        "route": "main",
        "recipient": "ada@example.com",
        "cause": "",
        "hard": False,
        "code": "",
        "text": "",
        "url": "",
    }
    return row | {"at": at, "received_at": at + 1, "kind": kind, "provider_event_id": None} | values


def test_the_time_line_tells_what_was_heard_of_a_send() -> None:
    story = make_story(
        attempt(NOW + 1, "unknown", code="read_timeout", took_s=15.0),
        attempt(NOW + 20, "accepted", via="event", code="sent", took_s=2.0),
        status="accepted",
        delivery="bounced",
        route="main",
    )
    story.events.append(event(NOW + 20, "sent"))
    story.events.append(
        event(NOW + 30, "bounced", cause="no_mailbox", hard=True, code="550 5.1.1", text="no such user")
    )

    assert told(story) == [
        "Thursday 2026-07-30, times in CEST",
        "  14:02:11.5  asked for",
        "  14:02:12.5  attempt 1 on main  unknown read_timeout  15.0 s",
        "  14:02:31.5  heard from main    sent",
        "  14:02:33.5  so main has it     accepted",
        "  14:02:41.5  heard from main    bounced 550 5.1.1",
        "              no mailbox, for good",
        "              no such user",
    ]
    assert standing(story) == "accepted by main, bounced"


def test_an_event_of_somebody_whom_the_email_was_not_for_says_whose_it_is() -> None:
    story = make_story(status="accepted", recipients='["Ada@Example.com"]')
    story.events.append(event(NOW + 1, "delivered"))
    story.events.append(event(NOW + 2, "bounced", recipient="mallory@elsewhere.example"))
    assert told(story)[2:] == [
        "  14:02:12.5  heard from main  delivered",
        "  14:02:13.5  heard from main  bounced",
        "              to mallory@elsewhere.example",
    ]


def test_of_several_recipients_an_event_names_its_own() -> None:
    story = make_story(status="accepted", recipients='["ada@example.com", "bob@example.com"]')
    story.events.append(event(NOW + 1, "clicked", recipient="bob@example.com", url="https://shop.example/7"))
    assert told(story)[2:] == [
        "  14:02:12.5  heard from main  clicked",
        "              to bob@example.com",
        "              https://shop.example/7",
    ]


def test_a_dead_workers_attempt_is_told_when_it_was_noticed() -> None:
    story = make_story(
        attempt(
            NOW + 1, "unknown", via="reaper", route="?", took_s=20.0, code="worker_died", text="worker 3 (h:7) died"
        ),
        status="unknown",
    )

    assert told(story)[-2:] == [
        "  14:02:32.5  attempt 1: its worker died  unknown",
        "              worker 3 (h:7) died",
    ]


def test_a_long_outage_is_told_shortly() -> None:
    outage = [attempt(NOW + 60 * n, "transient", code="503") for n in range(1, 101)]
    story = make_story(attempt(NOW + 1, "throttled"), *outage, attempt(NOW + 7000, "accepted"))

    told_shortly = [entry.what for entry in folded(timeline(story))]

    assert told_shortly == [
        "asked for",
        "attempt 1 on main",
        "attempt 2 on main",
        "attempt 3 on main",
        "… 96 more alike",
        "attempt 100 on main",
        "attempt 101 on main",
        "attempt 102 on main",
    ]


@pytest.mark.parametrize("count", [1, 4, 5])
def test_a_short_run_of_the_same_is_told_in_full(count: int) -> None:
    story = make_story(*[attempt(NOW + n, "transient", code="503") for n in range(count)])

    assert folded(timeline(story)) == timeline(story)


def test_attempts_that_were_answered_otherwise_are_never_folded() -> None:
    story = make_story(*[attempt(NOW + n, "transient", code="503", text=f"busy {n}") for n in range(20)])

    assert folded(timeline(story)) == timeline(story)


def test_another_day_gets_a_line_of_its_own() -> None:
    story = make_story(attempt(NOW + 86_400, "transient"))

    assert [line for line in told(story) if not line.startswith(" ")] == [
        "Thursday 2026-07-30, times in CEST",
        "Friday 2026-07-31, times in CEST",
    ]


@pytest.mark.parametrize("status", [Status.FAILED, Status.EXPIRED, Status.CANCELLED, Status.SUPPRESSED])
def test_an_end_without_acceptance_is_told_with_its_reason(status: Status) -> None:
    story = make_story(status=status.value, last_error="template 'x': there is neither x.txt nor x.html")

    assert told(story)[-2:] == [
        f"  14:02:11.5  {status}",
        "              template 'x': there is neither x.txt nor x.html",
    ]


def test_raw_answers_are_told_only_when_asked_for() -> None:
    story = make_story(attempt(NOW, "rejected", code="422", raw='{"error": "no"}'))

    assert '              answer: {"error": "no"}' in told(story, raw=True)
    assert not any("answer" in line for line in told(story))


def test_lines_keep_within_the_width_and_long_words_whole() -> None:
    words = "a " * 200
    story = make_story(attempt(NOW, "transient", text=words + "k" * 90))

    lines = told(story)

    assert "k" * 90 in lines[-1]
    assert max(len(line) for line in lines[:-1]) <= 80


def test_the_heading_says_which_it_is_and_hides_the_subject_on_request() -> None:
    story = make_story(status="accepted", route="main", maybe_duplicate=True)

    assert [str(line) for line in heading_lines(story, "Your order", NOW, 80)] == [
        "order-1042-receipt  accepted by main",
        '  "Your order"',
        "  to ada@example.com",
        "  type receipt",
        "  id 17, providers know it as c0ffee",
        "  Marked maybe_duplicate: a second copy may have gone out.",
    ]
    assert not any("Your order" in str(line) for line in heading_lines(story, None, NOW, 80))


@pytest.mark.parametrize(
    ("delivery", "stands", "next_"),
    [
        ("none", "accepted by main", "nothing; the provider has it"),
        ("delivered", "accepted by main, delivered", "nothing; the receiver has it"),
        ("bounced", "accepted by main, bounced", "nothing; it did not arrive, or came back"),
    ],
)
def test_accepted_is_not_delivered(delivery: str, stands: str, next_: str) -> None:
    story = make_story(status="accepted", route="main", delivery=delivery)
    assert (standing(story), next_of(story)) == (stands, next_)


def test_an_open_send_tells_when_it_expires() -> None:
    assert expiry(make_story().send, NOW) == "expires in 3 d (2026-08-02 14:02:11)"
    assert expiry(make_story().send, NOW + 3 * 86_400 + 60) == "expired 1 min ago"
    assert expiry(make_story(status="failed").send, NOW) == ""


def test_a_pending_send_is_due_or_has_a_time() -> None:
    assert next_of(make_story()) == "it is due now; a worker takes it as soon as it has a free slot"
    assert next_of(make_story(next_try_at=NOW + 12)) == "attempt 1 in 12 s (14:02:23)"
    tried = make_story(attempt(NOW - 5, "transient"), route="main", next_try_at=NOW + 12)
    assert next_of(tried) == "attempt 2 in 12 s (14:02:23)"


def test_a_pending_send_names_what_holds_it_up() -> None:
    step = next_step(make_story(), around(workers_alive=set()))
    assert (step.text, step.commands) == ("it waits for a worker, and none is running", ("posthouse worker",))
    later = make_story(next_try_at=NOW + 12)
    assert next_of(later, workers_alive=set()) == "attempt 1 in 12 s (14:02:23), but no worker is running"

    assert "type receipt is not configured here" in next_of(make_story(), policy=None)
    assert "has no route" in next_of(make_story(), policy=TypePolicy("receipt", routes=()))


def test_closed_routes_are_named_only_when_every_one_is_closed() -> None:
    stopped = RouteHealth("main", RouteState.STOPPED, NOW + 30, "401 unauthorised")
    held = RouteHealth("standby", held_until=NOW + 60, reason="429 slow down")

    assert next_of(make_story(), health={"main": stopped}).startswith("it is due now")
    text = next_of(make_story(), health={"main": stopped, "standby": held})
    assert text == "main is not in use: stopped, tried again in 30 s (14:02:41): 401 unauthorised"
    held_text = next_of(make_story(), health={"main": RouteHealth("main", held_until=NOW + 90), "standby": held})
    assert held_text == "standby is not in use: held, opens in 1 min (14:03:11): 429 slow down"


def test_a_send_pinned_to_a_route_that_its_type_lost_says_so() -> None:
    step = next_step(make_story(unknown_since=NOW - 60, unknown_fence=1, route="gone"), around())

    assert "no longer uses gone" in step.text
    assert step.commands == ("posthouse cancel order-1042-receipt",)


def unknown(**values: Any) -> Story:
    given: dict[str, Any] = {
        "status": "unknown",
        "route": "main",
        "unknown_since": NOW - 60,
        "unknown_fence": 1,
        "fence": 1,
    }
    return make_story(attempt(NOW - 60, "unknown"), **given | values)


def test_a_held_send_is_for_a_person_and_names_the_three_ways() -> None:
    story = unknown(next_try_at=None, last_error="nobody could say")

    step = next_step(story, around())

    assert is_held(story.send)
    assert standing(story) == "unknown, held for a person"
    assert step.commands == (
        "posthouse resolve order-1042-receipt --accepted",
        "posthouse resolve order-1042-receipt --failed",
        "posthouse resolve order-1042-receipt --resend",
    )
    assert next(str(line) for line in standing_lines(story, step, 80)) == "Held:  nobody could say"


@pytest.mark.parametrize(
    ("facts", "policy", "said"),
    [
        (FACTS["main"], POLICY, "main is called again under the same key, which can make no second copy, in 12 s"),
        (RouteFacts("main", can_look_up=True), POLICY, "main is asked whether it has it, in 12 s"),
        (RouteFacts("main"), POLICY, "it is looked at again in 12 s"),
        (RouteFacts("main"), TypePolicy("r", ("main",), unknown_wait_s=1.0), "it is held for a person in 12 s"),
        (
            RouteFacts("main"),
            TypePolicy("r", ("main",), unknown_wait_s=1.0, on_unknown=OnUnknown.RESEND),
            "it is sent again, marked as a possible duplicate, in 12 s",
        ),
    ],
)
def test_an_unknown_send_tells_who_finds_out(facts: RouteFacts, policy: TypePolicy, said: str) -> None:
    step = next_step(unknown(next_try_at=NOW + 12), around(facts={"main": facts}, policy=policy))

    assert step.text == f"{said} (14:02:23)"
    assert step.commands == ("posthouse reconcile order-1042-receipt",)


def test_an_unknown_send_that_is_due_is_looked_after_now() -> None:
    assert next_of(unknown(next_try_at=NOW - 5)).endswith("second copy, now")
    assert "none is running" in next_of(unknown(), workers_alive=set())
    assert "not configured here" in next_of(unknown(), policy=None)


def test_a_send_under_way_names_its_worker() -> None:
    story = make_story(status="sending", claimed_by=3)

    assert next_of(story) == "worker 3 has it; a call may be under way"
    assert next_of(story, workers_alive={4}) == "its worker 3 is silent; another one takes it over as unknown"
    assert "no other is running" in next_of(story, workers_alive=set())


def test_a_waiting_send_points_to_the_one_it_waits_for() -> None:
    step = next_step(make_story(status="waiting", after_key="order 1"), around())

    assert step.text == "it goes out once order 1 is accepted"
    assert step.commands == ("posthouse show 'order 1'",)


@pytest.mark.parametrize("status", ["failed", "expired", "cancelled"])
def test_an_ended_send_can_be_retried_while_its_content_is_kept(status: str) -> None:
    kept = next_step(make_story(status=status), around())
    gone = next_step(make_story(status=status, body=None), around())

    assert kept.commands == ("posthouse retry order-1042-receipt",)
    assert (gone.commands, "no longer kept" in gone.text) == ((), True)


def test_nothing_is_left_to_do_for_the_accepted_and_the_suppressed() -> None:
    assert next_of(make_story(status="accepted", route="main")) == "nothing; the provider has it"
    assert next_of(make_story(status="suppressed")) == "nothing; its recipient must not get it"


@pytest.mark.parametrize("status", list(Status))
def test_every_status_has_a_next_step_and_a_standing(status: Status) -> None:
    story = make_story(status=status.value, after_key="k", claimed_by=3, route="main", unknown_since=NOW)

    assert next_of(story)
    assert status.value in standing(story)


def test_commands_can_be_pasted_into_a_shell() -> None:
    assert command("show", "it's $HOME") == "posthouse show 'it'\"'\"'s $HOME'"
