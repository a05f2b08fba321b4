"""What an attempt's outcome does to its send.

`settle` is asked under the row's lock with the row as it stands, which may no longer be the row the worker
claimed: then only the truth that survives is applied (a late *accepted*, or a certain *not accepted* for the very
call that made the send unknown).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from posthouse.core.lifecycle import TERMINAL, Happening, Status, after, sources
from posthouse.core.outcome import Outcome, Subject, Verdict
from posthouse.core.policy import REPLAY_BACKOFF, Category, Failover, TypePolicy
from posthouse.core.retry import asked_wait_s
from posthouse.core.sends import Attempt, Change, SendState, Split, Via

H = Happening


def settle(send: SendState, attempt: Attempt, policy: TypePolicy, now: float, chance: float) -> Change | None:
    """The change that `attempt` makes to `send`, or None when it comes too late to change anything."""
    if attempt.verdict.outcome is Outcome.ACCEPTED:
        return _accepted(send, attempt, policy, now, chance)
    if send.fence != attempt.fence or send.status not in (Status.SENDING, Status.UNKNOWN):
        return None
    if attempt.verdict.maybe_accepted:
        # A dispatcher's call whose send is unknown already was reaped: its lost answer adds nothing.
        told = send.status is Status.UNKNOWN and attempt.via is Via.SEND
        return None if told else _outcome_lost(send, attempt, now, chance)
    return _not_accepted(send, attempt, policy, now, chance)


def _accepted(send: SendState, attempt: Attempt, policy: TypePolicy, now: float, chance: float) -> Change | None:
    if send.status is Status.ACCEPTED:
        return None if _same_acceptance(send, attempt) else _second_acceptance(attempt)
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
        splits=_splits(send, attempt, policy, now, chance) if own or send.status in _UNTOUCHED else (),
    )


_UNTOUCHED: Final = frozenset({Status.PENDING, Status.UNKNOWN})
"""Where nobody else is sending, or has sent, to those whom a late acceptance left out, and nobody withdrew the send."""


def _splits(send: SendState, attempt: Attempt, policy: TypePolicy, now: float, chance: float) -> tuple[Split, ...]:
    """A send of its own for each remainder: one whose first call this was, settled like any other."""
    splits = []
    for remainder in attempt.verdict.remainders:
        rest = SendState(0, send.type, Status.SENDING, attempt.fence, 0, 0, send.expires_at, attempt.route)
        own = replace(attempt, verdict=remainder.verdict, via=Via.SEND)
        change = settle(rest, own, policy, now, chance)
        if change is None:
            raise AssertionError("the first attempt of a new send always changes it")
        splits.append(Split(remainder.addresses, remainder.message_id, own, change))
    return tuple(splits)


def _same_acceptance(send: SendState, attempt: Attempt) -> bool:
    """Whether an accepted send hears of the acceptance it knows: a replay's is the provider repeating itself."""
    said = attempt.verdict.message_id
    return attempt.via is not Via.SEND or attempt.fence == send.fence or (said is not None and said == send.message_id)


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
        next_try_at=now + _wait_to_ask_s(send, attempt.verdict, chance),
        spends_attempt=attempt.verdict.spends_attempt,
        last_error=error_text(attempt.verdict, attempt.route),
        keep_open=True,
        # A replay stands for the call it repeats: the life of its key and the time to find out go on.
        opened=None if send.unresolved and attempt.via is Via.REPLAY else (attempt.started_at, attempt.fence),
    )


def _wait_to_ask_s(send: SendState, verdict: Verdict, chance: float) -> float:
    return max(REPLAY_BACKOFF.delay_s(send.tries_since_lost, chance), verdict.retry_after_s or 0.0)


def _not_accepted(send: SendState, attempt: Attempt, policy: TypePolicy, now: float, chance: float) -> Change | None:
    verdict = attempt.verdict
    if _leaves_earlier_call_open(send, attempt):
        return _not_accepted_but_unresolved(send, attempt, policy, now, chance)
    if verdict.outcome is Outcome.REJECTED:
        return _refused(send, error_text(verdict, attempt.route))
    if _exhausts(send, verdict, policy):
        return _refused(
            send, f"gave up after {send.failures + 1} attempts; the last: {error_text(verdict, attempt.route)}"
        )
    return _change(
        send,
        H.PUT_BACK,
        next_try_at=next_try_at(send, verdict, policy, now, chance),
        spends_attempt=verdict.spends_attempt,
        last_error=error_text(verdict, attempt.route),
    )


def _exhausts(send: SendState, verdict: Verdict, policy: TypePolicy) -> bool:
    return verdict.spends_attempt and send.failures + 1 >= policy.max_attempts


def _leaves_earlier_call_open(send: SendState, attempt: Attempt) -> bool:
    """Whether a certain "not accepted" still says nothing about an earlier call of this send.

    Only the late answer to that very call says something. The refusal of a replay doesn't: providers check a
    request before they look at its key.
    """
    return send.unknown_fence is not None and send.unknown_fence != attempt.fence


def _not_accepted_but_unresolved(
    send: SendState, attempt: Attempt, policy: TypePolicy, now: float, chance: float
) -> Change:
    """A later call failed for certain, an earlier one is still open: ask again, or leave it to a person.

    It never goes straight back to the queue: before each further call it is asked anew what became of the open one.
    """
    verdict, text = attempt.verdict, error_text(attempt.verdict, attempt.route)
    replayed = send.status is Status.UNKNOWN  # a replay that didn't get through spends nothing
    spends = verdict.spends_attempt and not replayed
    if verdict.outcome is Outcome.REJECTED or (spends and _exhausts(send, verdict, policy)):
        reason = f"an earlier attempt may have been accepted, and the latest was not: {text}"
        return _change(send, H.LEFT_UNRESOLVED, None, spends, last_error=reason, keep_open=True)
    again = now + _wait_to_ask_s(send, verdict, chance) if replayed else next_try_at(send, verdict, policy, now, chance)
    return _change(send, H.OUTCOME_LOST, again, spends, last_error=text, keep_open=True)


def next_try_at(send: SendState, verdict: Verdict, policy: TypePolicy, now: float, chance: float) -> float:
    """When to try again: the type's backoff, but not before what the answer asked for; by another route, at once."""
    if _another_route_is_next(send, verdict, policy):
        return now
    # A route at fault holds its lanes itself; its sends stay close behind.
    tries = 1 if verdict.outcome is Outcome.MISCONFIGURED else send.attempts + 1
    wait = policy.backoff.delay_s(tries, chance)
    if (asked := asked_wait_s(verdict.retry_after_s)) is not None:
        asked *= 1.0 + 0.1 * chance
        wait = asked if verdict.outcome is Outcome.THROTTLED else max(wait, asked)
    return now + wait


def _another_route_is_next(send: SendState, verdict: Verdict, policy: TypePolicy) -> bool:
    """Whether the fault is the route's, and this round through the type's routes hasn't come to its last one.

    What waits is a whole round: a provider that is down is no reason to keep a code from the one that is not.
    """
    of_the_route = verdict.subject is Subject.ROUTE or verdict.outcome in (Outcome.THROTTLED, Outcome.MISCONFIGURED)
    more = (send.attempts + 1) % len(policy.routes) if policy.routes else 0
    return of_the_route and policy.failover is Failover.AUTOMATIC and more > 0 and not send.unresolved


def refuse(send: SendState, reason: str) -> Change | None:
    """A send that can't be sent at all (unrenderable, unreadable): failed, unless an earlier call is open."""
    if send.status not in (Status.SENDING, Status.UNKNOWN):
        return None
    if send.unresolved:
        return _change(send, H.LEFT_UNRESOLVED, None, last_error=reason, keep_open=True)
    return _refused(send, reason, spends_attempt=False)


def release(send: SendState, again_at: float) -> Change | None:
    """Its worker gives it back: no call had begun, nothing is spent.

    That is the truth also where a reaper has taken the claim for a call meanwhile.
    """
    reaped = send.status is Status.UNKNOWN and send.unknown_fence == send.fence
    if send.status is not Status.SENDING and not reaped:
        return None
    return _change(send, H.RELEASED, again_at, keep_open=not reaped)


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


def suppress(send: SendState, reason: str) -> Change | None:
    """Nobody may get it: suppressed, or held where an earlier call may have been accepted."""
    if send.status not in sources(H.SUPPRESSED):
        return None
    if send.unresolved:
        text = f"{reason}; and nobody knows whether an earlier attempt was accepted"
        return _change(send, H.LEFT_UNRESOLVED, None, last_error=text, keep_open=True)
    return _change(send, H.SUPPRESSED, None, last_error=reason)


def revive(send: SendState, reason: str, now: float) -> Change | None:
    """The route was at fault, not the send that failed on it: another life, if there is time for one."""
    if send.status is not Status.FAILED or send.expires_at <= now:
        return None
    return replace(_change(send, H.REVIVED, now, last_error=reason), returns_attempt=send.failures > 0)


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
    """A change by the table. `opened` (start, fence) is a call with an unknown outcome: its start counts from now
    on for whoever finds out, and the first such call's fence stays."""
    status = after(send.status, happening)
    if status is None:
        raise AssertionError(f"{happening} can't happen to a send that is {send.status}")
    since, fence = (send.unknown_since, send.unknown_fence) if keep_open or opened else (None, None)
    if opened is not None:
        since, fence = opened[0], opened[1] if fence is None else fence
    return Change(
        happening=happening,
        status=status,
        next_try_at=None if status in TERMINAL else next_try_at,
        spends_attempt=spends_attempt,
        last_error=last_error,
        unknown_since=since,
        unknown_fence=fence,
    )
