"""Settling: what a worker reports is written once, under its fence; what comes late is believed when it is true."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import delete

from posthouse.core import intervention
from posthouse.core.lifecycle import Happening, Status
from posthouse.core.outcome import Found as FoundAtProvider
from posthouse.core.outcome import LookUp, Outcome, Verdict
from posthouse.core.policy import RouteFacts
from posthouse.core.reconcile import learned
from posthouse.core.sends import SendState, Via
from posthouse.core.settlement import refuse, release
from posthouse.store.queue import Report
from posthouse.store.schema import sends
from tests.contract.store_support import CODE, RECEIPT, Bench, accepted, at, lost, rejected, report, transient


def claimed(bench: Bench, key: str = "k", **fields: str) -> SendState:
    """A new send, claimed under fence 1."""
    bench.enqueue(key, **fields)
    return bench.claim_one("one-time-code" if fields.get("type") == "one-time-code" else "receipt")


def test_an_acceptance_is_written_with_its_id_and_its_times(bench: Bench) -> None:
    state = claimed(bench)

    (change,) = bench.settle(report(state, accepted("m-7"), bench.now + 2), now=bench.now + 3)

    row = bench.row("k")
    assert change is not None
    assert change.happening is Happening.ACCEPTED
    assert (row["status"], row["message_id"], row["route"]) == ("accepted", "m-7", "main")
    assert (row["attempts"], row["failures"], row["claimed_by"], row["next_try_at"]) == (1, 1, None, None)
    assert row["first_attempt_at"] == at(bench.now)
    assert (row["accepted_at"], row["updated_at"]) == at((bench.now + 3, bench.now + 3))
    assert not row["maybe_duplicate"]


def test_every_attempt_is_kept_with_what_the_provider_said(bench: Bench) -> None:
    state = claimed(bench)
    verdict = Verdict(
        Outcome.TRANSIENT, maybe_accepted=False, code="503", text="busy", request_id="r-1", rule="busy", raw="<busy>"
    )
    bench.settle(report(state, verdict, bench.now))
    bench.settle(report(bench.claim_one(now=bench.now + 600), accepted(), bench.now + 601), now=bench.now + 601)

    first, second = bench.attempts("k")
    assert (first["fence"], first["via"], first["route"], first["worker"]) == (1, "send", "main", bench.worker)
    assert (first["outcome"], first["code"], first["text"], first["rule"]) == ("transient", "503", "busy", "busy")
    assert (first["request_id"], first["raw"], first["maybe_accepted"]) == ("r-1", "<busy>", False)
    assert (first["started_at"], first["ended_at"]) == at((bench.now - 1, bench.now))
    assert (second["fence"], second["outcome"], second["message_id"]) == (2, "accepted", "m-1")
    row = bench.row("k")
    assert (row["attempts"], row["failures"], row["last_error"]) == (2, 2, None)
    assert row["first_attempt_at"] == at(bench.now)


def test_a_batch_that_is_settled_again_applies_once(bench: Bench) -> None:
    bench.put(3)
    batch = [report(send.state, transient(), bench.now) for send in bench.claim(3)]
    bench.settle(*batch)
    before = [bench.row(f"bulk-{n}") for n in range(3)]

    assert bench.settle(*batch, now=bench.now + 5) == [None, None, None]

    assert [bench.row(f"bulk-{n}") for n in range(3)] == before
    assert [len(bench.attempts(f"bulk-{n}")) for n in range(3)] == [1, 1, 1]


def test_a_lost_result_that_is_settled_again_does_not_touch_the_next_claim(bench: Bench) -> None:
    first = report(claimed(bench), transient(), bench.now)
    bench.settle(first)
    second = bench.claim_one(now=bench.now + 600)

    assert bench.settle(first) == [None]

    assert bench.state("k") == second


LATE = {
    Status.PENDING: Status.ACCEPTED,
    Status.SENDING: Status.ACCEPTED,
    Status.UNKNOWN: Status.ACCEPTED,
    Status.FAILED: Status.ACCEPTED,
    Status.EXPIRED: Status.ACCEPTED,
    Status.CANCELLED: Status.ACCEPTED,
    Status.SUPPRESSED: Status.ACCEPTED,
    Status.COMBINED: Status.ACCEPTED,
}
"""Where a send may stand when a worker that had lost it says that it was accepted, and where it stands then."""


def move_on(bench: Bench, status: Status) -> None:
    """From `unknown` under fence 1 to this state, by whoever took over."""
    if status is Status.UNKNOWN:
        return
    if status is Status.FAILED:
        bench.intervene("k", lambda send: intervention.resolve(send, intervention.Verdict.FAILED, bench.now))
        return
    bench.intervene("k", lambda send: intervention.resolve(send, intervention.Verdict.RESEND, bench.now))
    if status is Status.SENDING:
        bench.claim_one(worker=bench.another_worker())
    elif status is not Status.PENDING:
        bench.edit("k", status=status.value, next_try_at=None)


@pytest.mark.parametrize("status", LATE)
def test_a_late_acceptance_is_believed_whatever_has_become_of_the_send(bench: Bench, status: Status) -> None:
    state = claimed(bench)
    bench.store.sweeps.reap_all(bench.now, worker=0)
    move_on(bench, status)
    assert bench.status("k") is status

    bench.settle(report(state, accepted("m-late"), bench.now))

    row = bench.row("k")
    assert (row["status"], row["message_id"], row["next_try_at"]) == (LATE[status], "m-late", None)
    assert (row["claimed_by"], row["unknown_since"], row["unknown_fence"]) == (None, None, None)
    assert [attempt["via"] for attempt in bench.attempts("k")] == ["reaper", "send"]


def test_a_late_acceptance_while_another_worker_is_calling_is_marked_as_maybe_duplicate(bench: Bench) -> None:
    state = claimed(bench)
    bench.store.sweeps.reap_all(bench.now, worker=0)
    bench.edit("k", status="pending", next_try_at=bench.now)
    second = bench.claim_one()

    bench.settle(report(state, accepted("m-1"), bench.now))
    assert bench.row("k")["maybe_duplicate"]
    bench.settle(report(second, accepted("m-2"), bench.now))

    row = bench.row("k")
    assert (row["status"], row["message_id"], row["maybe_duplicate"]) == ("accepted", "m-1", True)
    assert [attempt["message_id"] for attempt in bench.attempts("k")] == [None, "m-1", "m-2"]


def test_a_second_acceptance_of_another_call_is_marked_as_maybe_duplicate(bench: Bench) -> None:
    first = claimed(bench)
    bench.store.sweeps.reap_all(bench.now, worker=0)
    bench.edit("k", status="pending", next_try_at=bench.now)
    bench.settle(report(bench.claim_one(), accepted("m-2"), bench.now))
    assert not bench.row("k")["maybe_duplicate"]

    bench.settle(report(first, accepted("m-1"), bench.now))

    row = bench.row("k")
    assert (row["status"], row["message_id"], row["maybe_duplicate"]) == ("accepted", "m-2", True)
    assert "accepted twice" in row["last_error"]


def test_the_mark_of_a_maybe_duplicate_stays_whatever_happens_later(bench: Bench) -> None:
    bench.settle(report(claimed(bench), lost(), bench.now))
    bench.intervene("k", lambda send: intervention.resolve(send, intervention.Verdict.RESEND, bench.now))
    state = bench.claim_one()
    bench.settle(Report(state.id, state.fence, lambda send: release(send, again_at=bench.now)))
    assert bench.row("k")["maybe_duplicate"]

    bench.settle(report(bench.claim_one(), accepted(), bench.now))

    assert (bench.status("k"), bench.row("k")["maybe_duplicate"]) == (Status.ACCEPTED, True)


def test_an_acceptance_that_a_replay_has_told_already_is_no_duplicate(bench: Bench) -> None:
    first = claimed(bench)
    bench.store.sweeps.reap_all(bench.now, worker=0)
    (taken,) = bench.store.queue.take_unknown(1, bench.worker, bench.now, lease_s=30)
    bench.settle(report(taken.state, accepted("m-1"), bench.now, via=Via.REPLAY))

    bench.settle(report(first, accepted("m-1"), bench.now))

    row = bench.row("k")
    assert (row["status"], row["message_id"], row["maybe_duplicate"]) == ("accepted", "m-1", False)


@pytest.mark.parametrize("verdict", [transient(), rejected(), lost()], ids=lambda verdict: verdict.outcome)
def test_a_late_result_that_is_no_acceptance_is_recorded_and_changes_nothing(bench: Bench, verdict: Verdict) -> None:
    state = claimed(bench)
    bench.store.sweeps.reap_all(bench.now, worker=0)
    bench.edit("k", status="pending", next_try_at=bench.now)
    second = bench.claim_one()
    before = bench.row("k")

    assert bench.settle(report(state, verdict, bench.now + 1), now=bench.now + 1) == [None]

    assert bench.row("k") == before
    assert bench.state("k") == second
    assert [attempt["outcome"] for attempt in bench.attempts("k")] == ["unknown", verdict.outcome]


def test_a_certain_refusal_that_comes_late_ends_the_doubt_about_its_own_call(bench: Bench) -> None:
    state = claimed(bench)
    bench.store.sweeps.reap_all(bench.now, worker=0)

    bench.settle(report(state, transient(), bench.now))

    row = bench.row("k")
    assert (row["status"], row["unknown_since"], row["unknown_fence"]) == ("pending", None, None)


@pytest.mark.parametrize(("type_", "kept"), [("one-time-code", False), ("receipt", True)])
def test_the_content_of_security_mail_goes_in_the_write_that_accepts_it(bench: Bench, type_: str, kept: bool) -> None:
    state = claimed(bench, type=type_)
    policy = CODE if type_ == "one-time-code" else RECEIPT
    bench.settle(report(state, transient(), bench.now, policy=policy))
    assert bench.store.ledger.story("k").body is not None

    state = bench.claim_one(type_, now=bench.now + 60)
    bench.settle(report(state, accepted(), bench.now + 60, policy=policy))

    assert (bench.store.ledger.story("k").body is not None) is kept


def test_an_unknown_outcome_keeps_the_send_for_the_reconciler(bench: Bench) -> None:
    bench.settle(report(claimed(bench), lost(), bench.now))

    row = bench.row("k")
    assert (row["status"], row["unknown_fence"], row["route"]) == ("unknown", 1, "main")
    assert row["unknown_since"] == at(bench.now - 1)
    assert row["next_try_at"] > bench.now


def test_a_batch_of_five_hundred_is_settled_in_one_go(bench: Bench) -> None:
    bench.put(500)
    batch = [report(send.state, accepted(f"m-{send.key}"), bench.now) for send in bench.claim(500)]

    changes = bench.settle(*reversed(batch))

    assert [change.status for change in changes if change] == [Status.ACCEPTED] * 500
    assert bench.row("bulk-499")["message_id"] == "m-bulk-499"
    assert bench.store.ledger.recent_outcomes(0.0) == {"accepted": 500}


def test_a_result_for_a_send_that_was_deleted_holds_up_no_other(bench: Bench) -> None:
    bench.put(3)
    first, gone, last = [send.state for send in bench.claim(3)]
    with bench.store.database.write() as connection:
        connection.execute(delete(sends).where(sends.c.id == gone.id))

    changes = bench.settle(*[report(state, accepted(), bench.now) for state in (first, gone, last)])

    assert [change and change.status for change in changes] == [Status.ACCEPTED, None, Status.ACCEPTED]
    assert (bench.status("bulk-0"), bench.status("bulk-2")) == (Status.ACCEPTED, Status.ACCEPTED)


@pytest.mark.parametrize("said", ["a\x00b", "a\ud800b", "ü" * 10_000, "\x00" * 3000, "📬" * 3000], ids=ascii)
def test_whatever_a_provider_says_can_be_stored(bench: Bench, said: str) -> None:
    state = claimed(bench)
    verdict = Verdict(
        Outcome.TRANSIENT, code=said, text=said, message_id=None, request_id=said, rule="r" * 300, raw=said
    )

    bench.settle(report(state, verdict, bench.now))

    (attempt,) = bench.attempts("k")
    assert bench.status("k") is Status.PENDING
    for column, chars_max in {"code": 64, "text": 2000, "request_id": 255, "raw": 2000}.items():
        assert len(attempt[column]) <= chars_max
        assert "\x00" not in attempt[column]
    assert len(bench.row("k")["last_error"]) <= 2000
    assert attempt["text"][:1] in ("a", "ü", "📬", "")


@pytest.mark.parametrize("message_id", ["m" * 400, "m\x00-1", "m\udfff", "📬" * 255, ""], ids=ascii)
def test_whatever_a_provider_calls_its_message_can_be_stored(bench: Bench, message_id: str) -> None:
    state = claimed(bench)

    bench.settle(report(state, accepted(message_id), bench.now))

    stored = bench.row("k")["message_id"]
    assert bench.status("k") is Status.ACCEPTED
    assert stored == bench.attempts("k")[0]["message_id"]
    assert stored[:1] == message_id[:1]
    assert len(stored) <= 255
    assert "\x00" not in stored


def test_two_results_for_one_send_in_one_batch_are_applied_one_after_the_other(bench: Bench) -> None:
    state = claimed(bench)
    bench.store.sweeps.reap_all(bench.now, worker=0)
    (taken,) = bench.store.queue.take_unknown(1, bench.worker, bench.now, lease_s=30)

    changes = bench.settle(
        report(taken.state, lost(), bench.now, via=Via.REPLAY), report(state, accepted("m-1"), bench.now)
    )

    assert [change and change.happening for change in changes] == [Happening.OUTCOME_LOST, Happening.ACCEPTED_LATE]
    row = bench.row("k")
    assert (row["status"], row["message_id"], row["attempts"]) == ("accepted", "m-1", 3)


def test_the_second_result_of_a_batch_sees_what_the_first_one_wrote(bench: Bench) -> None:
    state = claimed(bench)
    bench.store.sweeps.reap_all(bench.now, worker=0)
    (taken,) = bench.store.queue.take_unknown(1, bench.worker, bench.now, lease_s=30)
    seen: list[SendState] = []

    def look(send: SendState) -> None:
        seen.append(send)

    late = report(state, accepted("m-1"), bench.now)
    bench.settle(report(taken.state, accepted("m-1"), bench.now, via=Via.REPLAY), replace(late, decide=look))

    assert seen == [bench.state("k")]


def test_a_report_without_a_call_counts_only_while_the_claim_is_its_own(bench: Bench) -> None:
    first = claimed(bench)
    give_back = Report(first.id, first.fence, lambda send: release(send, again_at=bench.now))
    assert bench.settle(give_back)[0] is not None
    second = bench.claim_one()

    assert bench.settle(give_back) == [None]

    assert bench.state("k") == second
    assert (bench.row("k")["attempts"], bench.attempts("k")) == (0, [])


def test_a_send_that_is_given_back_has_spent_nothing(bench: Bench) -> None:
    state = claimed(bench)

    bench.settle(Report(state.id, state.fence, lambda send: release(send, again_at=bench.now + 5)))

    row = bench.row("k")
    assert (row["status"], row["attempts"], row["failures"], row["claimed_by"]) == ("pending", 0, 0, None)
    assert row["next_try_at"] == at(bench.now + 5)
    assert row["first_attempt_at"] is None


def test_a_send_that_cannot_be_rendered_fails_with_the_reason_and_no_attempt(bench: Bench) -> None:
    state = claimed(bench)

    bench.settle(Report(state.id, state.fence, lambda send: refuse(send, "its template is broken")))

    row = bench.row("k")
    assert (row["status"], row["last_error"], row["attempts"]) == ("failed", "its template is broken", 0)
    assert bench.store.ledger.story("k").body is not None


def test_a_look_up_is_recorded_but_is_no_call(bench: Bench) -> None:
    bench.settle(report(claimed(bench), lost(), bench.now))
    (taken,) = bench.store.queue.take_unknown(1, bench.worker, bench.now + 60, lease_s=30)
    facts = RouteFacts("main", can_look_up=True)
    answer = LookUp(FoundAtProvider.ACCEPTED, message_id="m-9")
    asked = report(taken.state, accepted("m-9"), bench.now + 61, via=Via.LOOK_UP)

    bench.settle(
        replace(
            asked,
            decide=lambda send: learned(
                send, taken.state.fence, answer, facts, RECEIPT, bench.now + 60, bench.now + 61, 0.5
            ),
        )
    )

    row = bench.row("k")
    assert (row["status"], row["message_id"], row["attempts"]) == ("accepted", "m-9", 1)
    assert [attempt["via"] for attempt in bench.attempts("k")] == ["send", "look-up"]
