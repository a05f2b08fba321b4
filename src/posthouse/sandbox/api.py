"""The sandbox's email API without a network: what each call means, what it changes, and what its caller gets to see.

`begin` decides everything that happens when a call arrives; a shell carries the reply out, in real time or in a
simulation's, and then calls `finish`. Nothing here waits, so a fault that takes an hour is tested in no time.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from posthouse.sandbox.faults import Action, Call, CallKind, Chance, Fault, FaultPlan
from posthouse.sandbox.keys import KeyMemory, KeyState
from posthouse.sandbox.ledger import Acceptance, CallRecord, CallResult, Ledger
from posthouse.sandbox.limit import LimitCounter, SendLimit
from posthouse.sandbox.replies import Answer, Reply, error_answer, fault_reply, json_answer, plain_reply
from posthouse.sandbox.submission import Submission, Unusable, read_submission

SEND_PATH: Final = "/v1/send"
LOOK_UP_PATH: Final = "/v1/messages/by-key/"
HEALTH_PATH: Final = "/v1/health"

_UNAUTHORISED: Final = error_answer(401, "unauthorised", "the bearer token is wrong or missing")


@dataclass(frozen=True, slots=True)
class LateAcceptance:
    """What `finish` enters, unless the caller has left by then."""

    acceptance: Acceptance
    call: CallRecord


@dataclass(frozen=True, slots=True)
class Exchange:
    """A call under way: what the shell has to do, and what remains to be done when it ends."""

    reply: Reply
    running_key: str | None = None  # in progress until `finish`
    late: LateAcceptance | None = None


@dataclass(frozen=True, slots=True)
class _Handled:
    """What the provider itself makes of a call."""

    answer: Answer
    result: CallResult
    running_key: str | None = None
    late: Acceptance | None = None


class SandboxApi:
    """One provider account. Times are seconds since 1970; the schedule of `faults` begins at `started_at`.

    `api_key` is the bearer token that sends and look-ups must carry, None for any. `idempotency=False` is a provider
    that ignores keys; `look_up=False` one that can't be asked; `look_up_lag_s` is how long its index lies behind.
    `limit` is how many sends it takes, which its answers tell in their headers.
    """

    def __init__(
        self,
        ledger: Ledger,
        faults: FaultPlan,
        *,
        chance: Chance,
        started_at: float,
        api_key: str | None = None,
        idempotency: bool = True,
        look_up: bool = True,
        look_up_lag_s: float = 0.0,
        limit: SendLimit | None = None,
    ) -> None:
        self.ledger: Final = ledger
        self._faults = faults
        self._faults_since = started_at
        self._chance = chance
        self.api_key = api_key
        self._idempotency = idempotency
        self._look_up_on = look_up
        self._look_up_lag_s = look_up_lag_s
        self._limit = None if limit is None else LimitCounter(limit)
        self._keys = KeyMemory()
        # Ids of two runs differ, so that a database which outlives the sandbox never sees one twice.
        self._id_prefix = f"sandbox-{int(started_at * 1000):x}"
        self._ids_given = 0

    @property
    def faults(self) -> FaultPlan:
        """The plan in force."""
        return self._faults

    def elapsed_s(self, now: float) -> float:
        """Seconds since the faults' schedule began."""
        return now - self._faults_since

    def refuses(self, now: float) -> bool:
        """Whether no connection is to be taken at this moment."""
        return self._faults.refusal(self.elapsed_s(now)) is not None

    def draw(self, call: Call, now: float) -> Fault | None:
        """The fault that hits `call`, counted."""
        return self._faults.draw(call, self.elapsed_s(now), self._chance)

    def new_message_id(self) -> str:
        """What the provider calls the message that it is about to accept."""
        self._ids_given += 1
        return f"{self._id_prefix}-{self._ids_given}"

    def set_faults(self, faults: FaultPlan, now: float, seed: int | None = None) -> None:
        """Another plan, whose schedule and counters begin now; with a `seed`, its chance as well."""
        self._faults = faults
        self._faults_since = now
        if seed is not None:
            self._chance.seed(seed)

    def reset(self, now: float) -> None:
        """Forgets every message, call and key; the same faults begin again."""
        self.ledger.clear()
        self._keys = KeyMemory()
        self.set_faults(FaultPlan(self._faults.faults), now)

    def begin(self, method: str, path: str, headers: Mapping[str, str], body: bytes, now: float) -> Exchange:
        """A call arrives. `path` is still percent-encoded and has no query; names in `headers` are in lower case."""
        if path == SEND_PATH:
            return self._begin_send(headers, body, now) if method == "POST" else _wrong_method("POST")
        if path.startswith(LOOK_UP_PATH):
            key = unquote(path[len(LOOK_UP_PATH) :])
            return self._begin_look_up(headers, key, now) if method == "GET" else _wrong_method("GET")
        if path == HEALTH_PATH:
            return self._begin_health(now) if method == "GET" else _wrong_method("GET")
        return Exchange(plain_reply(error_answer(404, "not_found", f"there is nothing at {path}")))

    def finish(self, exchange: Exchange, now: float, *, client_gone: bool = False) -> None:
        """The call is over: its key is no longer in progress, and what was to be accepted late is. Once per call."""
        if (late := exchange.late) is not None:
            if client_gone:
                self.ledger.record_call(replace(late.call, result=CallResult.ABANDONED))
            else:
                self._accept(replace(late.acceptance, at=now), exchange.running_key)
                self.ledger.record_call(late.call)
        if exchange.running_key is not None:
            self._keys.end(exchange.running_key)

    def _begin_send(self, headers: Mapping[str, str], body: bytes, now: float) -> Exchange:
        idempotency_key = headers.get("idempotency-key") or None
        submission = read_submission(body)
        if isinstance(submission, Unusable):
            call = Call(CallKind.SEND, (), idempotency_key)
        else:
            call = Call(CallKind.SEND, submission.recipients, idempotency_key or submission.our_id)
        return self._run(call, now, lambda late: self._with_limit(headers, submission, call.key, now, late))

    def _begin_look_up(self, headers: Mapping[str, str], key: str, now: float) -> Exchange:
        return self._run(Call(CallKind.LOOK_UP, (), key), now, lambda _: self._handle_look_up(headers, key, now))

    def _begin_health(self, now: float) -> Exchange:
        healthy = _Handled(json_answer(200, {"status": "ok"}), CallResult.HEALTHY)
        return self._run(Call(CallKind.HEALTH), now, lambda _: healthy)

    def _run(self, call: Call, now: float, handle: Callable[[bool], _Handled]) -> Exchange:
        """Draws the fault, lets the provider do its part where the call gets so far, and shapes the reply."""
        fault = self.draw(call, now)
        effect = fault.effect if fault is not None else None
        if effect is not None and not effect.reaches_provider:
            self.ledger.record_call(CallRecord(now, call.kind, CallResult.NOT_ACCEPTED, call.key, fault))
            return Exchange(fault_reply(effect, None, now))
        handled = handle(effect is not None and effect.action is Action.SLOW and not effect.accepted)
        record = CallRecord(now, call.kind, handled.result, call.key, fault)
        reply = plain_reply(handled.answer) if effect is None else fault_reply(effect, handled.answer, now)
        if handled.late is not None:
            return Exchange(reply, handled.running_key, LateAcceptance(handled.late, record))
        self.ledger.record_call(record)
        return Exchange(reply, handled.running_key)

    def _with_limit(
        self, headers: Mapping[str, str], submission: Submission | Unusable, key: str | None, now: float, late: bool
    ) -> _Handled:
        """A send, where it fits into the rate limit; its answer says what else does."""
        if self._limit is None or not self._authorised(headers):
            return self._handle_send(headers, submission, key, now, late)
        if self._limit.takes(now):
            handled = self._handle_send(headers, submission, key, now, late)
        else:
            handled = _Handled(error_answer(429, "too_many_requests"), CallResult.TOO_MANY)
        told = {**handled.answer.headers, **self._limit.headers(now)}
        return replace(handled, answer=replace(handled.answer, headers=told))

    def _handle_send(
        self, headers: Mapping[str, str], submission: Submission | Unusable, key: str | None, now: float, late: bool
    ) -> _Handled:
        if not self._authorised(headers):
            return _Handled(_UNAUTHORISED, CallResult.UNAUTHORISED)
        if isinstance(submission, Unusable):
            return _Handled(error_answer(422, submission.error, submission.message), CallResult.INVALID)
        running_key = (headers.get("idempotency-key") or None) if self._idempotency else None
        if running_key is not None:
            state, message_id = self._keys.state(running_key, submission.content_hash, now)
            if state is not KeyState.NEW:
                return _known_key(state, message_id)
            self._keys.start(running_key, submission.content_hash)
        acceptance = self._acceptance(submission, key, now)
        if not late:
            self._accept(acceptance, running_key)
        return _Handled(
            _accepted_answer(acceptance.message_id), CallResult.ACCEPTED, running_key, acceptance if late else None
        )

    def _handle_look_up(self, headers: Mapping[str, str], key: str, now: float) -> _Handled:
        if not self._authorised(headers):
            return _Handled(_UNAUTHORISED, CallResult.UNAUTHORISED)
        if not self._look_up_on:
            return _Handled(error_answer(501, "no_look_up", "this provider can't be asked"), CallResult.INVALID)
        for acceptance in self.ledger.by_key(key):
            if acceptance.at + self._look_up_lag_s <= now:
                return _Handled(json_answer(200, {"id": acceptance.message_id, "status": "accepted"}), CallResult.FOUND)
        return _Handled(error_answer(404, "unknown_key"), CallResult.MISSING)

    def _authorised(self, headers: Mapping[str, str]) -> bool:
        if self.api_key is None:
            return True
        given = headers.get("authorization", "").encode(errors="replace")
        return hmac.compare_digest(given, f"Bearer {self.api_key}".encode())

    def _acceptance(self, submission: Submission, key: str | None, now: float) -> Acceptance:
        return Acceptance(
            message_id=self.new_message_id(),
            key=key,
            at=now,
            recipients=submission.recipients,
            subject=submission.subject,
            content_hash=submission.content_hash,
            body=submission.body,
            files=submission.files,
            raw=submission.raw,
            envelope_sender=submission.body.get("envelope_sender"),
            size=submission.size,
        )

    def _accept(self, acceptance: Acceptance, running_key: str | None) -> None:
        self.ledger.accept(acceptance)
        if running_key is not None:
            self._keys.accept(running_key, acceptance.content_hash, acceptance.message_id, acceptance.at)


def _accepted_answer(message_id: str) -> Answer:
    return json_answer(200, {"id": message_id})


def _known_key(state: KeyState, message_id: str) -> _Handled:
    if state is KeyState.REPLAY:
        return _Handled(_accepted_answer(message_id), CallResult.REPLAYED)
    if state is KeyState.REUSED:
        message = "this key was used with another body"
        return _Handled(error_answer(409, "idempotency_key_reused", message), CallResult.KEY_REUSED)
    message = "the first call with this key is still running"
    return _Handled(error_answer(409, "idempotency_key_in_progress", message), CallResult.KEY_IN_PROGRESS)


def _wrong_method(method: str) -> Exchange:
    return Exchange(plain_reply(error_answer(405, "method_not_allowed", f"use {method}")))
