"""What the properties of the core draw from: sends, verdicts, policies and routes, all of them reachable.

Times stand in seconds around `NOW`; a send's fields agree with each other as they do in the table.
"""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from posthouse.core.lifecycle import Status
from posthouse.core.outcome import Outcome, Subject, Verdict
from posthouse.core.policy import Category, Failover, OnUnknown, RouteFacts, TypePolicy
from posthouse.core.sends import Attempt, SendState, Via

NOW: Final = 1_800_000_000.0
ROUTES: Final = ("main", "standby", "third")

chances = st.floats(0.0, 1.0, exclude_max=True)
waits = st.floats(0.0, 90_000.0)


@st.composite
def policies(draw: st.DrawFn) -> TypePolicy:
    """Any message type."""
    return TypePolicy(
        name="receipt",
        routes=ROUTES[: draw(st.integers(1, 3))],
        category=draw(st.sampled_from(Category)),
        max_attempts=draw(st.integers(1, 12)),
        on_unknown=draw(st.sampled_from(OnUnknown)),
        unknown_wait_s=draw(st.floats(0.0, 7200.0)),
        unknown_may_change_route=draw(st.booleans()),
        failover=draw(st.sampled_from(Failover)),
        standby_share=draw(st.sampled_from([0, 100, 5000])),
    )


@st.composite
def route_facts(draw: st.DrawFn) -> RouteFacts:
    """Any route: with or without a key, with or without a look-up."""
    return RouteFacts(
        name=draw(st.sampled_from(ROUTES)),
        key_lifetime_s=draw(st.sampled_from([0.0, 30.0, 600.0, 86_400.0])),
        can_look_up=draw(st.booleans()),
        look_up_lag_s=draw(st.sampled_from([0.0, 5.0, 600.0])),
        timeout_s=draw(st.sampled_from([1.0, 15.0, 60.0])),
    )


@st.composite
def sends(draw: st.DrawFn, *statuses: Status, unresolved: bool | None = None) -> SendState:
    """A send as some history may have left it; only in `statuses` where any are given."""
    status = draw(st.sampled_from(statuses or tuple(Status)))
    may_be_open = status in (Status.PENDING, Status.SENDING)
    if status is Status.UNKNOWN or not may_be_open:
        unresolved = status is Status.UNKNOWN
    elif unresolved is None:
        unresolved = draw(st.booleans())
    fence = 0 if status is Status.WAITING else draw(st.integers(1 if unresolved or _was_claimed(status) else 0, 40))
    attempts = draw(st.integers(0, fence))
    return SendState(
        id=1,
        type="receipt",
        status=status,
        fence=fence,
        attempts=attempts,
        failures=draw(st.integers(0, attempts)),
        expires_at=NOW + draw(st.floats(-86_400.0, 86_400.0)),
        route=draw(st.sampled_from(ROUTES)) if attempts or unresolved else None,
        claimed_by=7 if status is Status.SENDING else None,
        unknown_since=NOW - draw(waits) if unresolved else None,
        unknown_fence=draw(st.integers(1, fence)) if unresolved else None,
    )


def _was_claimed(status: Status) -> bool:
    return status in (Status.SENDING, Status.UNKNOWN, Status.ACCEPTED)


@st.composite
def verdicts(draw: st.DrawFn, *outcomes: Outcome) -> Verdict:
    """A verdict as the rules make them: outages and throttles spend nothing, doubt stands where it may."""
    outcome = draw(st.sampled_from(outcomes or tuple(Outcome)))
    doubtful = outcome is Outcome.UNKNOWN or (outcome is Outcome.TRANSIENT and draw(st.booleans()))
    outage = outcome in (Outcome.THROTTLED, Outcome.MISCONFIGURED) or (
        outcome is Outcome.TRANSIENT and not doubtful and draw(st.booleans())
    )
    return Verdict(
        outcome,
        maybe_accepted=doubtful,
        spends_attempt=not outage,
        subject=draw(st.sampled_from(Subject)),
        code=draw(st.sampled_from(["", "429", "503", "connect_refused"])),
        text=draw(st.sampled_from(["", "no such mailbox", "try again later"])),
        message_id="m-1" if outcome is Outcome.ACCEPTED else None,
        retry_after_s=draw(st.none() | st.floats(0.0, 86_400.0)),
    )


@st.composite
def attempts_on(draw: st.DrawFn, send: SendState, verdict: st.SearchStrategy[Verdict]) -> Attempt:
    """A call on `send`: its own worker's, or one under a fence that was taken over long ago."""
    late = send.fence > 1 and draw(st.booleans())
    ended = NOW - draw(st.floats(0.0, 600.0))
    return Attempt(
        send_id=send.id,
        fence=draw(st.integers(1, send.fence - 1)) if late else send.fence,
        route=send.route or draw(st.sampled_from(ROUTES)),
        started_at=ended - draw(st.floats(0.0, 60.0)),
        ended_at=ended,
        verdict=draw(verdict),
        # The reconciler's calls leave a send unknown; a dispatcher's have made it `sending`.
        via=Via.SEND if send.status is Status.SENDING and not late else draw(st.sampled_from([Via.SEND, Via.REPLAY])),
    )
