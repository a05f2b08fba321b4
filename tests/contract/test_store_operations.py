"""What a person does to a send: allowed or refused by its state, written together with who did it and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import delete, func, select

from posthouse.core import intervention
from posthouse.core.intervention import Intervention, Verdict
from posthouse.core.lifecycle import Status
from posthouse.core.sends import SendState
from posthouse.errors import NotPossible, UnknownSend
from posthouse.store.schema import audit, contents
from tests.contract.store_support import DAY_S, Bench, at

S = Status

Decision = Callable[[SendState, float], Intervention]


def _resolve(verdict: Verdict) -> Decision:
    return lambda send, now: intervention.resolve(send, verdict, now)


DECISIONS: dict[str, Decision] = {
    "cancel": lambda send, _now: intervention.cancel(send),
    "retry": intervention.retry,
    "resolve --accepted": _resolve(Verdict.ACCEPTED),
    "resolve --failed": _resolve(Verdict.FAILED),
    "resolve --resend": _resolve(Verdict.RESEND),
}
BECOMES: dict[tuple[str, Status], Status] = {
    ("cancel", S.WAITING): S.CANCELLED,
    ("cancel", S.PENDING): S.CANCELLED,
    ("retry", S.PENDING): S.PENDING,
    ("retry", S.FAILED): S.PENDING,
    ("retry", S.EXPIRED): S.PENDING,
    ("retry", S.CANCELLED): S.PENDING,
    ("resolve --accepted", S.UNKNOWN): S.ACCEPTED,
    ("resolve --failed", S.UNKNOWN): S.FAILED,
    ("resolve --resend", S.UNKNOWN): S.PENDING,
}
"""What is possible; everything else is refused."""


def lines(bench: Bench) -> int:
    with bench.store.database.read() as connection:
        return connection.scalar(select(func.count()).select_from(audit)) or 0


def decide(bench: Bench, action: str) -> Callable[[SendState], Intervention]:
    return lambda send: DECISIONS[action](send, bench.now)


@pytest.mark.parametrize("action", DECISIONS)
@pytest.mark.parametrize("status", Status)
def test_each_state_allows_what_it_allows_and_refuses_the_rest_unchanged(
    bench: Bench, status: Status, action: str
) -> None:
    bench.bring_to(status, "k")
    before, audited = bench.row("k"), lines(bench)
    becomes = BECOMES.get((action, status))

    if becomes is None:
        with pytest.raises(NotPossible):
            bench.intervene("k", decide(bench, action), action=action)
        assert bench.row("k") == before
        assert lines(bench) == audited
        return

    assert bench.intervene("k", decide(bench, action), action=action) is becomes
    assert bench.status("k") is becomes
    last = bench.store.ledger.story("k").audit[-1]
    assert (last["who"], last["action"], last["detail"], last["subject"]) == ("grace", action, "because", "k")
    assert last["at"] == at(bench.now)
    assert lines(bench) == audited + 1


def test_nothing_can_be_done_to_a_send_that_does_not_exist(bench: Bench) -> None:
    arguments: dict[str, Any] = {"action": "x", "who": "x", "detail": "x", "now": bench.now, "max_age_s": 1.0}
    with pytest.raises(UnknownSend):
        bench.store.operations.intervene(4711, intervention.cancel, **arguments, new_key=str)
    assert lines(bench) == 0


def test_a_failed_send_that_is_retried_gets_new_attempts_time_date_and_key(bench: Bench) -> None:
    bench.bring_to(S.FAILED, "k")
    bench.edit("k", expires_at=bench.now + 5)
    before = bench.row("k")

    bench.intervene("k", decide(bench, "retry"))

    row = bench.row("k")
    assert row["idempotency_key"] != before["idempotency_key"]
    assert (row["failures"], row["attempts"], row["fence"]) == (0, before["attempts"], before["fence"])
    assert (row["expires_at"], row["next_try_at"]) == at((bench.now + DAY_S, bench.now))
    (claimed,) = bench.claim(1, "receipt/k", now=bench.now + 3600)
    assert (claimed.state.fence, claimed.date) == (before["fence"] + 1, at(bench.now + 3600))


def test_a_retry_never_shortens_a_life(bench: Bench) -> None:
    bench.bring_to(S.FAILED, "k")
    bench.edit("k", expires_at=bench.now + 9 * DAY_S)

    bench.intervene("k", decide(bench, "retry"), max_age_s=60.0)

    assert bench.row("k")["expires_at"] == at(bench.now + 9 * DAY_S)


def test_an_unknown_send_that_is_sent_again_keeps_its_key_and_is_marked(bench: Bench) -> None:
    bench.bring_to(S.UNKNOWN, "k")
    before = bench.row("k")

    bench.intervene("k", decide(bench, "resolve --resend"))

    row = bench.row("k")
    assert row["idempotency_key"] == before["idempotency_key"]
    assert (row["maybe_duplicate"], row["failures"], row["next_try_at"]) == (True, 0, at(bench.now))
    assert (row["unknown_since"], row["unknown_fence"]) == (before["unknown_since"], before["unknown_fence"])


def test_a_pending_send_that_is_hurried_keeps_its_key_its_failures_and_its_time(bench: Bench) -> None:
    bench.bring_to(S.PENDING, "k")
    bench.edit("k", next_try_at=bench.now + 900, failures=3)
    before = bench.row("k")

    bench.intervene("k", decide(bench, "retry"))

    row = bench.row("k")
    assert row["next_try_at"] == at(bench.now)
    assert all(row[name] == before[name] for name in ("idempotency_key", "failures", "expires_at", "fence"))


@pytest.mark.parametrize(
    ("status", "action"), [(S.FAILED, "retry"), (S.EXPIRED, "retry"), (S.UNKNOWN, "resolve --resend")]
)
def test_a_send_whose_content_is_gone_cannot_be_sent_again(bench: Bench, status: Status, action: str) -> None:
    bench.bring_to(status, "k")
    with bench.store.database.write() as connection:
        connection.execute(delete(contents))
    before = bench.row("k")

    with pytest.raises(NotPossible, match="content is no longer kept"):
        bench.intervene("k", decide(bench, action))

    assert (bench.row("k"), lines(bench)) == (before, 0)


def test_a_cancelled_send_is_never_claimed(bench: Bench) -> None:
    bench.bring_to(S.PENDING, "k")

    bench.intervene("k", decide(bench, "cancel"))

    assert (bench.row("k")["next_try_at"], bench.claim(10, "receipt/k", now=bench.now + DAY_S)) == (None, [])


def test_cancelling_a_send_with_an_open_call_holds_it_for_a_person(bench: Bench) -> None:
    bench.bring_to(S.UNKNOWN, "k")
    bench.intervene("k", decide(bench, "resolve --resend"))

    assert bench.intervene("k", decide(bench, "cancel")) is S.UNKNOWN

    row = bench.row("k")
    assert (row["next_try_at"], row["unknown_fence"]) == (None, 1)
    assert bench.store.ledger.held_unknown() == 1
    assert bench.claim(10, "receipt/k") == []


def test_an_acceptance_by_a_person_ends_the_uncertainty(bench: Bench) -> None:
    bench.bring_to(S.UNKNOWN, "k")

    bench.intervene("k", decide(bench, "resolve --accepted"))

    row = bench.row("k")
    assert (row["accepted_at"], row["next_try_at"]) == (at(bench.now), None)
    assert (row["unknown_since"], row["unknown_fence"], row["last_error"]) == (None, None, None)
    assert row["attempts"] == 1


def test_a_line_of_audit_can_stand_for_itself(bench: Bench) -> None:
    bench.store.operations.audit("grace", "paused", "route main", "maintenance", bench.now)

    assert lines(bench) == 1
