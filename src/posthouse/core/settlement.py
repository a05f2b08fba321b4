"""What an attempt's outcome does to its send.

`settle` is asked under the row's lock with the row as it stands, which may no longer be the row the worker
claimed: then only the truth that survives is applied (a late *accepted*, or a certain *not accepted* for the very
call that made the send unknown).
"""

from __future__ import annotations

from posthouse.core.lifecycle import TERMINAL, Happening, Status, after
from posthouse.core.outcome import Outcome, Verdict
from posthouse.core.policy import REPLAY_BACKOFF, Category, TypePolicy
from posthouse.core.sends import Attempt, Change, SendState, Via

H = Happening


def settle(send: SendState, attempt: Attempt, policy: TypePolicy, now: float, chance: float) -> Change | None:
    """The change that `attempt` makes to `send`, or None when it comes too late to change anything."""
    if attempt.verdict.outcome is Outcome.ACCEPTED:
        return _accepted(send, attempt, policy)
    if send.fence != attempt.fence or send.status not in (Status.SENDING, Status.UNKNOWN):
        return None
    if attempt.verdict.maybe_accepted:
        return _outcome_lost(send, attempt, now, chance)
    return _not_accepted(send, attempt, policy, now, chance)


def _accepted(send: SendState, attempt: Attempt, policy: TypePolicy) -> Change | None:
    if send.status is Status.ACCEPTED:
        # A replay's "accepted" is the provider repeating itself; any other is a second copy.
        return None if attempt.via is not Via.SEND else _second_acceptance(attempt)
    own = send.fence == attempt.fence and send.status in (Status.SENDING, Status.UNKNOWN)
    return Change(
        happening=H.ACCEPTED if own else H.ACCEPTED_LATE,
        status=Status.ACCEPTED,
        next_try_at=None,
        message_id=attempt.verdict.message_id,
        spends_attempt=True,
        # Somebody else has claimed it meanwhile and may be calling right now.
        maybe_duplicate=send.status is Status.SENDING and not own,
        delete_content=policy.category is Category.SECURITY,
    )


def _second_acceptance(attempt: Attempt) -> Change:
    return Change(
        happening=H.ACCEPTED_LATE,
        status=Status.ACCEPTED,
        next_try_at=None,
        maybe_duplicate=True,
        last_error=f"accepted twice: a call on {attempt.route} that had been given up was accepted too",
    )


def _outcome_lost(send: SendState, attempt: Attempt, now: float, chance: float) -> Change:
    return _change(
        send,
        H.OUTCOME_LOST,
        next_try_at=now + REPLAY_BACKOFF.delay_s(_tries_since_lost(send), chance),
        spends_attempt=attempt.verdict.spends_attempt,
        last_error=error_text(attempt.verdict, attempt.route),
        opened=(attempt.started_at, attempt.fence),
    )


def _tries_since_lost(send: SendState) -> int:
    return 1 if send.unknown_fence is None else max(1, send.fence - send.unknown_fence)


def _not_accepted(send: SendState, attempt: Attempt, policy: TypePolicy, now: float, chance: float) -> Change | None:
    verdict = attempt.verdict
    if _leaves_earlier_call_open(send, attempt):
        return _not_accepted_but_unresolved(send, attempt, policy, now, chance)
    if verdict.outcome is Outcome.REJECTED:
        return _refused(send, error_text(verdict, attempt.route))
    failures = send.failures + verdict.spends_attempt
    if failures >= policy.max_attempts:
        reason = f"gave up after {failures} attempts; the last: {error_text(verdict, attempt.route)}"
        return _refused(send, reason, spends_attempt=verdict.spends_attempt)
    return _change(
        send,
        H.PUT_BACK,
        next_try_at=next_try_at(send, verdict, policy, now, chance),
        spends_attempt=verdict.spends_attempt,
        last_error=error_text(verdict, attempt.route),
    )


def _leaves_earlier_call_open(send: SendState, attempt: Attempt) -> bool:
    """Whether a certain "not accepted" still says nothing about an earlier call of this send.

    It does say something when it is the answer to that very call, come late, or a refusal of a replay: a provider
    that honours the key would have repeated an earlier acceptance.
    """
    if send.unknown_fence is None or send.unknown_fence == attempt.fence:
        return False
    return not (attempt.via is Via.REPLAY and attempt.verdict.outcome is Outcome.REJECTED)


def _not_accepted_but_unresolved(
    send: SendState, attempt: Attempt, policy: TypePolicy, now: float, chance: float
) -> Change:
    """A later call failed for certain, an earlier one is still open: try on, or leave it to a person."""
    verdict, text = attempt.verdict, error_text(attempt.verdict, attempt.route)
    if send.status is Status.UNKNOWN:
        wait = max(REPLAY_BACKOFF.delay_s(_tries_since_lost(send), chance), verdict.retry_after_s or 0.0)
        return _change(send, H.OUTCOME_LOST, next_try_at=now + wait, last_error=text, keep_open=True)
    exhausted = send.failures + verdict.spends_attempt >= policy.max_attempts
    if verdict.outcome is Outcome.REJECTED or exhausted:
        reason = f"an earlier attempt may have been accepted, and the latest was not: {text}"
        return _change(send, H.LEFT_UNRESOLVED, None, verdict.spends_attempt, last_error=reason, keep_open=True)
    again = next_try_at(send, verdict, policy, now, chance)
    return _change(send, H.PUT_BACK, again, verdict.spends_attempt, last_error=text, keep_open=True)


def next_try_at(send: SendState, verdict: Verdict, policy: TypePolicy, now: float, chance: float) -> float:
    """When to try again: the type's backoff, but not before what the answer asked for."""
    # A route at fault holds its lanes itself; its sends stay close behind.
    tries = 1 if verdict.outcome is Outcome.MISCONFIGURED else send.attempts + 1
    wait = policy.backoff.delay_s(tries, chance)
    if verdict.retry_after_s is not None:
        asked = verdict.retry_after_s * (1.0 + 0.1 * chance)
        wait = asked if verdict.outcome is Outcome.THROTTLED else max(wait, asked)
    return now + wait


def refuse(send: SendState, reason: str) -> Change | None:
    """A send that can't be sent at all (unrenderable, unreadable): failed, unless an earlier call is open."""
    if send.status is not Status.SENDING:
        return None
    if send.unresolved:
        return _change(send, H.LEFT_UNRESOLVED, None, last_error=reason, keep_open=True)
    return _refused(send, reason, spends_attempt=False)


def end_life(send: SendState) -> Change | None:
    """The send's expiry passed: expired, or held where an earlier call may have been accepted."""
    if send.status not in (Status.PENDING, Status.WAITING, Status.SENDING):
        return None
    if send.unresolved:
        return _change(
            send,
            H.LEFT_UNRESOLVED,
            None,
            last_error="it expired before anybody could say whether an earlier attempt was accepted",
            keep_open=True,
        )
    return _change(send, H.LIFE_ENDED, None)


def reap(send: SendState, claimed_at: float, now: float) -> Change:
    """The send's worker died: a call may have been made, so nobody knows."""
    return _change(
        send,
        H.WORKER_DIED,
        next_try_at=now,
        spends_attempt=True,
        last_error="its worker died; a call may have been made",
        opened=(claimed_at, send.fence),
    )


def error_text(verdict: Verdict, route: str) -> str:
    """One line for `last_error`: the outcome, where, and what was said."""
    said = " ".join(part for part in (verdict.code, verdict.text) if part)
    return f"{verdict.outcome} on {route}: {said}" if said else f"{verdict.outcome} on {route}"


def _refused(send: SendState, reason: str, spends_attempt: bool = True) -> Change:
    return _change(send, H.REFUSED, None, spends_attempt, last_error=reason)


def _change(
    send: SendState,
    happening: Happening,
    next_try_at: float | None,
    spends_attempt: bool = False,
    last_error: str | None = None,
    *,
    keep_open: bool = False,
    opened: tuple[float, int] | None = None,
) -> Change:
    """A change by the table. `opened` (start, fence) is a call with an unknown outcome; the first one stays."""
    status = after(send.status, happening)
    if status is None:
        raise AssertionError(f"{happening} can't happen to a send that is {send.status}")
    since, fence = (send.unknown_since, send.unknown_fence) if keep_open or opened else (None, None)
    if opened is not None and since is None:
        since, fence = opened
    return Change(
        happening=happening,
        status=status,
        next_try_at=None if status in TERMINAL else next_try_at,
        spends_attempt=spends_attempt,
        last_error=last_error,
        unknown_since=since,
        unknown_fence=fence,
    )
