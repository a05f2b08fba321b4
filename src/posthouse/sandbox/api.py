"""The sandbox's email APIs without a network: what each call means, what it changes, and what its caller gets to see.

`begin` decides everything that happens when a call arrives; a shell carries the reply out, in real time or in a
simulation's, and then calls `finish`. Nothing here waits, so a fault that takes an hour is tested in no time.

There is one provider behind all its shapes: one ledger, one plan of faults, one limit, one memory of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from posthouse.errors import ConfigError
from posthouse.sandbox.faults import Action, Call, CallKind, Chance, Fault, FaultPlan
from posthouse.sandbox.json_parts import Misfit, Unusable
from posthouse.sandbox.keys import KeyMemory, KeyState
from posthouse.sandbox.ledger import Acceptance, CallRecord, CallResult, Ledger
from posthouse.sandbox.limit import LimitCounter, SendLimit
from posthouse.sandbox.news import NewsKind, fates_of
from posthouse.sandbox.replies import Answer, Refusal, Reply, fault_reply, plain_reply
from posthouse.sandbox.shape import Headers, Health, LookUp, Map, Send, Shape
from posthouse.sandbox.shapes import OWN, SHAPES
from posthouse.sandbox.shapes.own import LOOK_UP_PATH as LOOK_UP_PATH
from posthouse.sandbox.shapes.own import SEND_PATH as SEND_PATH
from posthouse.sandbox.submission import Submission
from posthouse.sandbox.webhooks import Address, Webhooks

_MAP: Final = Map(SHAPES)

WEBHOOK_SECRET: Final = "sandbox"  # noqa: S105
"""What nobody has to guess: a sandbox tells nothing that is true."""


@dataclass(frozen=True, slots=True)
class LateAcceptance:
    """What `finish` enters, unless the caller has left by then."""

    acceptances: tuple[Acceptance, ...]
    call: CallRecord


@dataclass(frozen=True, slots=True)
class Running:
    """A call that is in progress under its idempotency key until `finish`."""

    key: str
    content_hash: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """A call under way: what the shell has to do, and what remains to be done when it ends."""

    reply: Reply
    running: Running | None = None
    late: LateAcceptance | None = None


@dataclass(frozen=True, slots=True)
class _Handled:
    """What the provider itself makes of a call."""

    answer: Answer
    result: CallResult
    running: Running | None = None
    late: tuple[Acceptance, ...] = ()


@dataclass(frozen=True, slots=True)
class _Visit:
    """A call that has found its place."""

    shape: Shape
    headers: Headers
    now: float

    @property
    def idempotency_key(self) -> str | None:
        return self.headers.get(self.shape.key_header or "") or None

    def refused(self, refusal: Refusal, result: CallResult) -> _Handled:
        return _Handled(self.shape.refused(refusal), result)


class SandboxApi:
    """One provider account. Times are seconds since 1970; the schedule of `faults` begins at `started_at`.

    `api_key` is the credential that sends and look-ups must carry, None for any. `idempotency=False` is a provider
    that ignores keys; `look_up=False` one that can't be asked; `look_up_lag_s` is how long its index lies behind.
    `limit` is how many calls to send it takes. `webhooks` are addresses by the names of their providers, whose keys are
    made of `webhook_secret`; faults hit them by a chance of their own, `webhook_chance`, so that calls meet the same.
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
        webhooks: Mapping[str, str] = MappingProxyType({}),
        webhook_secret: str = WEBHOOK_SECRET,
        webhook_chance: Chance | None = None,
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
        self._webhook_chance = chance if webhook_chance is None else webhook_chance
        self.webhooks: Final = Webhooks(_addresses(webhooks), secret=webhook_secret, draw=self._draw_for_webhook)
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

    def _draw_for_webhook(self, call: Call, now: float) -> Fault | None:
        return self._faults.draw(call, self.elapsed_s(now), self._webhook_chance)

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
            self._webhook_chance.seed(seed)

    def reset(self, now: float) -> None:
        """Forgets every message, call and key, and what is to be told; the same faults begin again."""
        self.ledger.clear()
        self.webhooks.clear()
        self._keys = KeyMemory()
        self.set_faults(FaultPlan(self._faults.faults), now)

    def tell(self, message_id: str, kind: NewsKind, recipient: str, now: float) -> None:
        """Something more becomes of a message now, and is told. Raises LookupError where there is no such message."""
        acceptance = self.ledger.add_news(message_id, kind, recipient, now)
        self.webhooks.tell(acceptance, acceptance.news[-1])

    def begin(self, method: str, path: str, headers: Mapping[str, str], body: bytes, now: float) -> Exchange:
        """A call arrives. `path` is still percent-encoded, with its query; names in `headers` are in lower case."""
        path, _, query = path.partition("?")
        place = _MAP.at(path)
        if place is None:
            return Exchange(plain_reply(OWN.refused(Refusal(404, "not_found", f"there is nothing at {path}"))))
        read = place.calls.get(method)
        if read is None:
            refusal = Refusal(405, "method_not_allowed", f"use {' or '.join(place.calls)}")
            return Exchange(plain_reply(place.shape.refused(refusal)))
        request = place.request(headers, query, body, now)
        visit = _Visit(place.shape, headers, now)
        try:
            asked = read(request)
        except Misfit as misfit:
            return self._begin_send(visit, misfit.unusable)
        if isinstance(asked, LookUp):
            return self._run(visit, Call(CallKind.LOOK_UP, (), asked.key), lambda _: self._handle_look_up(visit, asked))
        if isinstance(asked, Health):
            return self._run(visit, Call(CallKind.HEALTH), lambda _: _Handled(asked.answer, CallResult.HEALTHY))
        return self._begin_send(visit, asked)

    def finish(self, exchange: Exchange, now: float, *, client_gone: bool = False) -> None:
        """The call is over: its key is no longer in progress, and what was to be accepted late is. Once per call."""
        if (late := exchange.late) is not None:
            if client_gone:
                self.ledger.record_call(replace(late.call, result=CallResult.ABANDONED))
            else:
                self._accept(tuple(replace(one, at=now) for one in late.acceptances), exchange.running, now)
                self.ledger.record_call(late.call)
        if exchange.running is not None:
            self._keys.end(exchange.running.key)

    def _begin_send(self, visit: _Visit, asked: Send | Unusable) -> Exchange:
        usable = _usable(asked)
        recipients = tuple(address for message in usable for address in message.recipients)
        our_id = usable[0].our_id if usable else None
        call = Call(CallKind.SEND, recipients, visit.idempotency_key or our_id)
        return self._run(visit, call, lambda late: self._with_limit(visit, asked, late))

    def _run(self, visit: _Visit, call: Call, handle: Callable[[bool], _Handled]) -> Exchange:
        """Draws the fault, lets the provider do its part where the call gets so far, and shapes the reply."""
        now = visit.now
        fault = self.draw(call, now)
        effect = fault.effect if fault is not None else None
        if effect is not None and not effect.reaches_provider:
            self.ledger.record_call(CallRecord(now, call.kind, CallResult.NOT_ACCEPTED, call.key, fault))
            return Exchange(fault_reply(effect, None, visit.shape.refused, now))
        handled = handle(effect is not None and effect.action is Action.SLOW and not effect.accepted)
        record = CallRecord(now, call.kind, handled.result, call.key, fault)
        if effect is None:
            reply = plain_reply(handled.answer)
        else:
            reply = fault_reply(effect, handled.answer, visit.shape.refused, now)
        if handled.late:
            return Exchange(reply, handled.running, LateAcceptance(handled.late, record))
        self.ledger.record_call(record)
        return Exchange(reply, handled.running)

    def _with_limit(self, visit: _Visit, asked: Send | Unusable, late: bool) -> _Handled:
        """A send, where it fits into the rate limit; its answer says what else does."""
        if (refusal := visit.shape.refuses(visit.headers, self.api_key)) is not None:
            return visit.refused(refusal, CallResult.UNAUTHORISED)
        if self._limit is None:
            return self._handle_send(visit, asked, late)
        if self._limit.takes(visit.now):
            handled = self._handle_send(visit, asked, late)
        else:
            handled = visit.refused(Refusal(429, "too_many_requests"), CallResult.TOO_MANY)
        told = {**handled.answer.headers, **visit.shape.limit_headers(self._limit.standing(visit.now))}
        return replace(handled, answer=replace(handled.answer, headers=told))

    def _handle_send(self, visit: _Visit, asked: Send | Unusable, late: bool) -> _Handled:
        if isinstance(asked, Unusable):
            return visit.refused(_refusal(asked), CallResult.INVALID)
        unusable = next((one for one in asked.messages if isinstance(one, Unusable)), None)
        if unusable is not None and asked.together:
            return visit.refused(_refusal(unusable), CallResult.INVALID)
        running = None
        if self._idempotency and visit.idempotency_key is not None:
            running = Running(visit.idempotency_key, _hash_of(_usable(asked)))
            state, message_ids = self._keys.state(running.key, running.content_hash, visit.now)
            if state is not KeyState.NEW:
                return self._known_key(visit, asked, state, message_ids)
            self._keys.start(running.key, running.content_hash)
        acceptances = self._acceptances(visit, asked)
        if not late:
            self._accept(acceptances, running, visit.now)
        result = CallResult.ACCEPTED if acceptances else CallResult.INVALID
        return _Handled(_answer(asked, acceptances), result, running, acceptances if late else ())

    def _known_key(self, visit: _Visit, asked: Send, state: KeyState, message_ids: Sequence[str]) -> _Handled:
        if state is KeyState.REPLAY:
            taken = [found for one in message_ids if (found := self.ledger.by_id(one)) is not None]
            return _Handled(_answer(asked, taken), CallResult.REPLAYED)
        return visit.refused(*_CONFLICTS[state])

    def _handle_look_up(self, visit: _Visit, asked: LookUp) -> _Handled:
        if (refusal := visit.shape.refuses(visit.headers, self.api_key)) is not None:
            return visit.refused(refusal, CallResult.UNAUTHORISED)
        if not self._look_up_on:
            return visit.refused(Refusal(501, "no_look_up", "this provider can't be asked"), CallResult.INVALID)
        try:
            found = [one for one in asked.among(self.ledger) if one.at + self._look_up_lag_s <= visit.now]
        except Misfit as misfit:
            return visit.refused(_refusal(misfit.unusable), CallResult.INVALID)
        return _Handled(asked.answer(found), CallResult.FOUND if found else CallResult.MISSING)

    def _acceptances(self, visit: _Visit, asked: Send) -> tuple[Acceptance, ...]:
        """Of several messages in one call each is known by its own id: the call's key is not that of one of them."""
        usable = _usable(asked)
        of_call = visit.idempotency_key if len(asked.messages) == 1 else None
        return tuple(self._acceptance(visit, one, of_call or one.our_id) for one in usable)

    def _acceptance(self, visit: _Visit, submission: Submission, key: str | None) -> Acceptance:
        return Acceptance(
            message_id="@".join(filter(None, [self.new_message_id(), submission.id_domain])),
            key=key,
            at=visit.now,
            recipients=submission.recipients,
            subject=submission.subject,
            content_hash=submission.content_hash,
            body=submission.body,
            files=submission.files,
            raw=submission.raw,
            envelope_sender=submission.body.get("envelope_sender"),
            size=submission.size,
            provider=visit.shape.name,
            news=fates_of(submission.recipients),
        )

    def _accept(self, acceptances: Sequence[Acceptance], running: Running | None, now: float) -> None:
        for acceptance in acceptances:
            self.ledger.accept(acceptance)
            self.webhooks.accepted(acceptance)
        if running is not None:
            self._keys.accept(running.key, running.content_hash, tuple(one.message_id for one in acceptances), now)


def _addresses(urls: Mapping[str, str]) -> dict[str, Address]:
    tellers = {shape.name: shape.teller for shape in SHAPES if shape.teller is not None}
    if unknown := set(urls) - set(tellers):
        raise ConfigError("webhook", f"{min(unknown)!r} tells nothing; there are: {', '.join(sorted(tellers))}")
    return {name: Address(tellers[name], url) for name, url in urls.items()}


def _usable(asked: Send | Unusable) -> list[Submission]:
    return [] if isinstance(asked, Unusable) else [one for one in asked.messages if isinstance(one, Submission)]


def _hash_of(messages: Sequence[Submission]) -> str:
    return "".join(message.content_hash for message in messages)


def _answer(asked: Send, acceptances: Sequence[Acceptance]) -> Answer:
    """What the call is told: of each message, in their order."""
    taken = iter(acceptances)
    return asked.answer([one if isinstance(one, Unusable) else next(taken) for one in asked.messages])


def _refusal(unusable: Unusable) -> Refusal:
    return Refusal(422, unusable.error, unusable.message, unusable.field)


_CONFLICTS: Final = {
    KeyState.REUSED: (
        Refusal(409, "idempotency_key_reused", "this key was used with another body"),
        CallResult.KEY_REUSED,
    ),
    KeyState.IN_PROGRESS: (
        Refusal(409, "idempotency_key_in_progress", "the first call with this key is still running"),
        CallResult.KEY_IN_PROGRESS,
    ),
}
