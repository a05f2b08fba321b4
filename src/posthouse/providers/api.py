"""One route to an HTTP email API. What tells one API from another is an `Api`: data and a few pure functions.

`docs/ADDING_A_PROVIDER.md` says how one is written.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, TypeVar

from posthouse.config import RouteSettings
from posthouse.content import Content
from posthouse.core.answers import Answer, Kind, Rule
from posthouse.core.http_rules import judge, judge_failure, raw_of, read_json
from posthouse.core.outcome import Found, LookUp, Outcome, Subject, Verdict
from posthouse.core.policy import RouteFacts
from posthouse.errors import ConfigError
from posthouse.providers.answer_paths import ABSENT, at, id_at, message_id_in
from posthouse.providers.auth import Auth
from posthouse.providers.batch import BatchCall, fitting, for_each
from posthouse.providers.batch import Payload as Payload
from posthouse.providers.body import Body, encoded
from posthouse.providers.carrying import Mail, Room, not_carried, refused_by_settings
from posthouse.providers.credential import Credential
from posthouse.providers.logs import LOG_BYTES_MAX, LogPage, LogQuestion, OpenLog, ProviderLog, TooMuch
from posthouse.providers.look_ups import LookUpSteps, Question
from posthouse.providers.options import own_options
from posthouse.providers.port import OutgoingMessage
from posthouse.providers.remaining import for_those_left
from posthouse.providers.suppression_lists import ListCall, OpenLists, SuppressionLists
from posthouse.providers.transport import ANSWER_BYTES_MAX, HttpAnswer, HttpFailure, HttpRequest, Transport

T = TypeVar("T")

Options = Mapping[str, Any]
"""What an email asks of this route alone: its own `options`, joined."""


def as_json(fields: Any, _: OutgoingMessage) -> Payload:
    """The usual form of a body."""
    return Payload("application/json", encoded(fields))


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpCall:
    """How the API is asked, with one GET, whether it has a send.

    `read` gets the answer, its decoded JSON (None where it is none) and the message; it gives None where the answer
    says neither yes nor no. A no must be certain: the message is sent again for it.
    """

    url: Callable[[OutgoingMessage, Options], str]
    read: Callable[[Answer, Any, OutgoingMessage], LookUp | None]
    lag_s: float  # how long after a call the API may not know the message yet
    kept_s: float = math.inf  # how long it knows a message: about an older one its no means nothing

    def first(self, message: OutgoingMessage, options: Options) -> Question:
        """The only call."""
        return Question(self.url(message, options), lambda answer, document: self.read(answer, document, message))


def _nothing_more(_: Mail, __: Options) -> Iterable[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """What tells one HTTP API from another."""

    kind: str  # the provider's name
    url: str  # where messages are handed in
    method: str = "POST"
    auth: Auth
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # of every call
    body: Body  # where each part of a message goes; what has no place there is refused at enqueue
    ignore: frozenset[str] = frozenset()  # parts that may be left out all the same
    encode: Callable[[Any, OutgoingMessage], Payload] = as_json  # the filled body, as it leaves
    refuses: Callable[[Mail, Options], Iterable[str]] = _nothing_more  # its limits: reasons that begin with the field
    key_header: str | None = None  # that carries the idempotency key
    key_lifetime_s: float = 0.0  # how long it dedupes the key; 0 = it doesn't
    rules: Sequence[Rule] = ()  # what it means otherwise than the general rules say; asked before them
    message_id: str = "id"  # where the answer has it: `messages.0.id` or `header:x-message-id`
    complete: Callable[[Verdict, Any, OutgoingMessage], Verdict] | None = None  # an acceptance, with the answer's JSON
    look_up: LookUpCall | LookUpSteps | None = None
    batch: BatchCall | None = None  # several messages by one call, where they may differ in everything
    log: ProviderLog | None = None  # what became of messages, where it can be read
    lists: SuppressionLists | None = None  # its own suppression lists, where they have an API
    health_url: str | None = None


class ApiProvider:
    """One route to an `Api`. `now` gives seconds since 1970; the transport is opened by the first call."""

    def __init__(
        self,
        name: str,
        route: RouteSettings,
        api: Api,
        open_transport: Callable[[], Transport],
        now: Callable[[], float],
    ) -> None:
        self._api = api
        self._open_transport = open_transport
        self._now = now
        self._room = Room(api.body, api.ignore)
        self._route = route
        self._credential = Credential(f"routes.{name}", api.auth, now)
        self._headers = _with_defaults(api.headers)
        self._facts = RouteFacts(
            name=name,
            key_lifetime_s=api.key_lifetime_s,
            can_look_up=api.look_up is not None,
            look_up_lag_s=api.look_up.lag_s if api.look_up else 0.0,
            timeout_s=route.timeout,
            concurrency=route.concurrency,
            total_concurrency=route.total_concurrency,
            kind=api.kind,
            batch_max=api.batch.most if api.batch else 1,
        )

    @cached_property
    def _transport(self) -> Transport:
        return self._open_transport()

    @property
    def facts(self) -> RouteFacts:
        """What the deciding functions need to know of the route."""
        return self._facts

    def refusals(self, content: Content) -> list[str]:
        """Why this route can't carry `content`, one reason a line."""
        return [*self._lost(content), *refused_by_settings(content, self._route)]

    async def send(self, message: OutgoingMessage) -> Verdict:
        """Makes one call."""
        message = for_those_left(message)
        if lost := self._lost(message):
            return not_carried(lost)
        api, payload = self._api, self._payload(message)
        headers = {"Content-Type": payload.content_type}
        if api.key_header:
            headers[api.key_header] = message.idempotency_key
        verdict, answer = await self._call(api.method, api.url, headers, payload.content)
        return verdict if answer is None else self._completed(verdict, answer, message)

    async def send_together(self, messages: Sequence[OutgoingMessage]) -> Sequence[Verdict | None]:
        """Makes one call for as many of the messages as fit into it."""
        batch = self._api.batch
        if batch is None:
            raise AssertionError(f"the API of {self._api.kind} takes one message a call")
        told: list[Verdict | None] = [None] * len(messages)
        going: dict[int, tuple[OutgoingMessage, Payload]] = {}
        for place, message in enumerate(map(for_those_left, messages)):
            with suppress(Exception):  # a fault that this one alone meets: its own call will tell of it
                if lost := self._lost(message):
                    told[place] = not_carried(lost)
                else:
                    going[place] = message, self._payload(message)
        places = fitting({place: len(payload.content) for place, (_, payload) in going.items()}, batch.bytes_max)
        for place, verdict in zip(places, await self._shared(batch, [going[p] for p in places]), strict=True):
            told[place] = verdict
        return told

    async def _shared(
        self, batch: BatchCall, going: Sequence[tuple[OutgoingMessage, Payload]]
    ) -> Sequence[Verdict | None]:
        """The one call, and what it means for each of its messages."""
        if not going:
            return []
        payload = batch.join([payload for _, payload in going])
        verdict, answer = await self._call(
            self._api.method,
            batch.url,
            {"Content-Type": payload.content_type},
            payload.content,
            max(ANSWER_BYTES_MAX, len(going) * batch.answer_bytes_each),
        )
        messages = [message for message, _ in going]
        results = None if answer is None else batch.results(answer, messages)
        if answer is None or results is None:
            return [for_each(verdict)] * len(going)
        return [self._result(result, answer, message) for result, message in zip(results, messages, strict=True)]

    def _result(self, result: Answer | None, whole: HttpAnswer, message: OutgoingMessage) -> Verdict:
        """What a shared call means for one of its messages, by the rules for an answer of its own."""
        if result is None:
            said = "the answer to the call for several has no usable result for this one"
            return Verdict(Outcome.UNKNOWN, maybe_accepted=True, code=str(whole.status), text=said, rule="no result")
        answer = HttpAnswer(result.status, whole.headers, result.text.encode())
        return self._completed(self._judged(answer), answer, message)

    async def look_up(self, message: OutgoingMessage) -> LookUp:
        """Asks for the message under our id."""
        asked = self._api.look_up
        if asked is None:
            return LookUp(Found.UNSURE, text="this route can't be asked")
        step: Question | LookUp | None = asked.first(message, own_options(message.options, self._facts))
        if step is None:
            return LookUp(Found.UNSURE, text="this route can't be asked for such an address")
        try:
            async with asyncio.timeout(self._facts.timeout_s):  # of all steps together: a lease is held for no longer
                while isinstance(step, Question):
                    step = await self._ask(step)
        except TimeoutError:
            return LookUp(Found.UNSURE, text="no end to the look-up within the timeout")
        if step.found is Found.MISSING and self._now() - message.date > asked.kept_s:
            return LookUp(Found.UNSURE, text="the send is older than what the provider keeps")
        return step

    async def health(self) -> Verdict | None:
        """Asks the health URL; accepted means that the provider is well."""
        if self._api.health_url is None:
            return None
        verdict, answer = await self._call("GET", self._api.health_url)
        if answer is not None and answer.status // 100 == 2:  # any page will do
            return Verdict(Outcome.ACCEPTED, code=str(answer.status), rule="the health URL answers")
        return verdict

    @property
    def log(self) -> OpenLog | None:
        """The API's own log."""
        return None if self._api.log is None else OpenLog(self._api.log, self._ask_log)

    @property
    def lists(self) -> OpenLists | None:
        """The API's own suppression lists."""
        return None if self._api.lists is None else OpenLists(self._api.lists, self._ask_lists)

    def credential_changed(self) -> bool:
        """Whether the credential reads otherwise than what was refused last."""
        return self._credential.changed()

    async def limit_connections(self, count: int) -> int:
        """None: over HTTP it is calls that count."""
        return 0

    async def close(self) -> None:
        """Closes its connections."""
        if "_transport" in vars(self):
            await self._transport.close()

    def _payload(self, message: OutgoingMessage) -> Payload:
        fields = self._api.body.fields(message, own_options(message.options, self._facts))
        return self._api.encode(fields, message)

    def _completed(self, verdict: Verdict, answer: HttpAnswer, message: OutgoingMessage) -> Verdict:
        """An acceptance with all that its answer has; any other verdict as it is."""
        if verdict.outcome is not Outcome.ACCEPTED:
            return verdict
        if verdict.message_id is None:
            said = f"the answer has no message id at {self._api.message_id}"
            raw = raw_of(_text(answer), self._credential.secrets)
            verdict = replace(verdict, text=verdict.text or said, raw=raw)
        complete = self._api.complete
        return verdict if complete is None else complete(verdict, read_json(_text(answer)), message)

    def _lost(self, mail: Mail) -> list[str]:
        options = own_options(mail.options, self._facts)
        replaced = (
            f"options: {place} says who gets the message or which one it is" for place in self._api.body.taken(options)
        )
        return [*self._room.lost(mail), *replaced, *self._api.refuses(mail, options)]

    async def _ask(self, question: Question) -> Question | LookUp:
        """One call of a look-up: what it says, or the next one."""
        headers = {"Content-Type": "application/json"} if question.body else {}
        verdict, answer = await self._call("POST" if question.body else "GET", question.url, headers, question.body)
        if answer is None:
            return LookUp(Found.UNSURE, text=f"{verdict.code} {verdict.text}")
        text = _text(answer)
        step = question.read(Answer(answer.status, text, answer.headers, answer.complete), read_json(text))
        return step or LookUp(Found.UNSURE, text=f"{verdict.code} {verdict.text or 'no usable answer'}")

    async def _ask_log(self, question: LogQuestion) -> LogPage | TooMuch | Verdict:
        """One call of a log."""
        method = "POST" if question.body else "GET"
        return await self._read_long(method, question.url, question.body, question.read)

    async def _ask_lists(self, call: ListCall[Any]) -> Any | Verdict:
        """One call of a suppression list."""
        return await self._read_long(call.method, call.url, call.body, call.read)

    async def _read_long(
        self, method: str, url: str, body: bytes, read: Callable[[Answer, Any], T | None]
    ) -> T | Verdict:
        """One call whose answer is long: what `read` has of it, or why it told nothing."""
        headers = {"Content-Type": "application/json"} if body else {}
        verdict, answer = await self._call(method, url, headers, body, LOG_BYTES_MAX)
        if answer is None:
            return verdict
        text = _text(answer)
        document = read_json(text) if answer.complete else None
        found = read(Answer(answer.status, text, answer.headers, answer.complete), document)
        if found is None and answer.status // 100 == 2:
            said = f"the answer is not as documented{verdict.text and ': '}{verdict.text}"
            return replace(verdict, text=said)
        return verdict if found is None else found

    async def _call(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] = {},
        body: bytes = b"",
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> tuple[Verdict, HttpAnswer | None]:
        """One call, judged; and its answer, where one came."""
        try:
            let_in = self._credential.let_in()
        except ConfigError as error:
            return _no_credential(error), None
        request = HttpRequest(method, url, {**self._headers, **headers}, body, answer_bytes_max)
        request = let_in.admitted(request, self._now())
        answer = await self._transport.request(request, timeout_s=self._facts.timeout_s)
        if isinstance(answer, HttpFailure):
            return judge_failure(answer.phase, answer.code, answer.text, secrets=self._credential.secrets), None
        verdict = self._judged(answer)
        if verdict.outcome is Outcome.MISCONFIGURED:  # not every API says 401 or 403 of a key that it refuses
            self._credential.forget(let_in)
        return verdict, answer

    def _judged(self, answer: HttpAnswer) -> Verdict:
        text = _text(answer)
        return judge(
            answer.status,
            answer.headers,
            text,
            answer.complete,
            self._now(),
            extra_rules=self._api.rules,
            secrets=self._credential.secrets,
            message_id=message_id_in(answer.headers, text, self._api.message_id),
        )


def answered(answer: Answer) -> str:
    """What a look-up's line in the time-line says where the status is all there is to say."""
    return f"it answered {answer.status}"


def found_at(found: str | None, message_id: str | None) -> Callable[[Answer, Any, OutgoingMessage], LookUp | None]:
    """Reads look-ups by our id: 404 is a no; a path leads to something where the message is there.

    Without a path only an object that has something in it is a yes: an empty list may be a no.
    """

    def read(answer: Answer, document: Any, _: OutgoingMessage) -> LookUp | None:
        if answer.status == 404 and answer.kind is not Kind.HTML:
            return LookUp(Found.MISSING, text=answered(answer))
        if answer.status // 100 != 2 or not isinstance(document, dict | list):
            return None
        there = document if found is None else at(document, found)
        if there is ABSENT or (found is None and not (isinstance(document, dict) and document)):
            return None
        if not there:
            return LookUp(Found.MISSING, text=answered(answer))
        return LookUp(Found.ACCEPTED, id_at(document, message_id) if message_id else None, text=answered(answer))

    return read


DEFAULT_HEADERS: Final = {"Accept": "application/json", "User-Agent": "posthouse"}
"""Some APIs refuse a call that doesn't say who it is and what it can read."""


def _with_defaults(headers: Mapping[str, str]) -> dict[str, str]:
    given = {name.lower() for name in headers}
    return {**{name: value for name, value in DEFAULT_HEADERS.items() if name.lower() not in given}, **headers}


def _no_credential(error: ConfigError) -> Verdict:
    return Verdict(
        Outcome.MISCONFIGURED,
        spends_attempt=False,
        subject=Subject.ROUTE,
        code="no_credential",
        text=str(error),
        rule="the credential can't be read",
    )


def _text(answer: HttpAnswer) -> str:
    return answer.body.decode("utf-8", "replace")
