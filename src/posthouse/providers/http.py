"""The `http` provider: any HTTP email API that takes JSON, by configuration alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from posthouse.config import RouteSettings
from posthouse.content import Content
from posthouse.core.answers import Answer, Kind
from posthouse.core.http_rules import ID_CHARS_MAX, judge, judge_failure, one_line, raw_of, read_json
from posthouse.core.outcome import Found, LookUp, Outcome, Subject, Verdict
from posthouse.core.policy import RouteFacts
from posthouse.errors import ConfigError
from posthouse.providers.body import Body
from posthouse.providers.carrying import Mail, Room, not_carried, refused_by_settings
from posthouse.providers.credential import Credential
from posthouse.providers.http_settings import HttpSettings
from posthouse.providers.options import own_options
from posthouse.providers.port import OutgoingMessage
from posthouse.providers.remaining import for_those_left
from posthouse.providers.transport import HttpAnswer, HttpFailure, HttpRequest, Transport

HEADER_PREFIX: Final = "header:"

_ABSENT: Final = object()


class HttpProvider:
    """One `http` route. `now` gives seconds since 1970."""

    def __init__(
        self, name: str, route: RouteSettings, settings: HttpSettings, transport: Transport, now: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._transport = transport
        self._now = now
        self._body = Body(settings.body, settings.address_format)
        self._room = Room(self._body, settings.ignore)
        self._route = route
        self._credential = Credential(f"routes.{name}", settings, now)
        self._headers = _with_defaults(settings.headers)
        self._facts = RouteFacts(
            name=name,
            key_lifetime_s=settings.key_lifetime_s,
            can_look_up=settings.look_up_url is not None,
            look_up_lag_s=settings.look_up_lag,
            timeout_s=route.timeout,
            concurrency=route.concurrency,
            total_concurrency=route.total_concurrency,
            kind="http",
        )

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
        headers = {"Content-Type": "application/json"}
        if self._settings.idempotency_header:
            headers[self._settings.idempotency_header] = message.idempotency_key
        body = self._body.render(message, own_options(message.options, self._facts))
        verdict, answer = await self._call(self._settings.method, self._settings.url, headers, body, has_id=True)
        if verdict.outcome is Outcome.ACCEPTED and verdict.message_id is None and answer is not None:
            said = f"the answer has no message id at {self._settings.message_id}"
            raw = raw_of(_text(answer), self._credential.secrets)
            return replace(verdict, text=verdict.text or said, raw=raw)
        return verdict

    async def look_up(self, message: OutgoingMessage) -> LookUp:
        """Asks for the message under our id."""
        if self._settings.look_up_url is None:
            return LookUp(Found.UNSURE, text="this route can't be asked")
        url = self._settings.look_up_url.replace("{id}", quote(message.idempotency_key, safe=""))
        verdict, answer = await self._call("GET", url)
        if answer is None:
            return LookUp(Found.UNSURE, text=f"{verdict.code} {verdict.text}")
        return self._looked_up(answer, verdict)

    async def health(self) -> Verdict | None:
        """Asks the health URL; accepted means that the provider is well."""
        if self._settings.health_url is None:
            return None
        verdict, answer = await self._call("GET", self._settings.health_url)
        if answer is not None and answer.status // 100 == 2:  # any page will do
            return Verdict(Outcome.ACCEPTED, code=str(answer.status), rule="the health URL answers")
        return verdict

    def credential_changed(self) -> bool:
        """Whether the credential reads otherwise than what was refused last."""
        return self._credential.changed()

    async def limit_connections(self, count: int) -> int:
        """None: over HTTP it is calls that count."""
        return 0

    async def close(self) -> None:
        """Closes its connections."""
        await self._transport.close()

    def _lost(self, mail: Mail) -> list[str]:
        taken = self._body.taken(own_options(mail.options, self._facts))
        replaced = (f"options: {place} says who gets the message or which one it is" for place in taken)
        return [*self._room.lost(mail), *replaced]

    async def _call(
        self, method: str, url: str, headers: Mapping[str, str] = {}, body: bytes = b"", *, has_id: bool = False
    ) -> tuple[Verdict, HttpAnswer | None]:
        """One call, judged; and its answer, where one came."""
        try:
            credential = self._credential.header()
        except ConfigError as error:
            return _no_credential(error), None
        request = HttpRequest(method, url, {**self._headers, **headers, **credential}, body)
        answer = await self._transport.request(request, timeout_s=self._facts.timeout_s)
        secrets = self._credential.secrets
        if isinstance(answer, HttpFailure):
            return judge_failure(answer.phase, answer.code, answer.text, secrets=secrets), None
        text = _text(answer)
        verdict = judge(
            answer.status,
            answer.headers,
            text,
            answer.complete,
            self._now(),
            secrets=secrets,
            message_id=self._message_id(answer, text) if has_id and answer.status // 100 == 2 else None,
        )
        if answer.status in (401, 403) and verdict.outcome is Outcome.MISCONFIGURED:
            self._credential.forget(credential)
        return verdict, answer

    def _message_id(self, answer: HttpAnswer, text: str) -> str | None:
        where = self._settings.message_id
        if where.startswith(HEADER_PREFIX):
            return _id(answer.headers.get(where.removeprefix(HEADER_PREFIX)))
        return _id(_at(read_json(text), where))

    def _looked_up(self, answer: HttpAnswer, verdict: Verdict) -> LookUp:
        text = _text(answer)
        if answer.status == 404 and Answer(404, text).kind is not Kind.HTML:
            return LookUp(Found.MISSING, text="404")
        document = read_json(text)
        if answer.status // 100 != 2 or not isinstance(document, dict | list):
            return LookUp(Found.UNSURE, text=f"{verdict.code} {verdict.text or 'no JSON'}")
        found = self._found_in(document)
        path = self._settings.look_up_message_id
        message_id = _id(_at(document, path)) if path and found is Found.ACCEPTED else None
        return LookUp(found, message_id, text=verdict.code)

    def _found_in(self, document: Any) -> Found:
        """Without `look_up_found`, only an object that has something in it is a yes: an empty list may be a no."""
        path = self._settings.look_up_found
        if path is None:
            return Found.ACCEPTED if isinstance(document, dict) and document else Found.UNSURE
        value = _at(document, path)
        if value is _ABSENT:
            return Found.UNSURE
        return Found.ACCEPTED if value else Found.MISSING


def _with_defaults(headers: Mapping[str, str]) -> dict[str, str]:
    """Some APIs refuse a call that doesn't say who it is and what it can read."""
    given = {name.lower() for name in headers}
    defaults = {"Accept": "application/json", "User-Agent": "posthouse"}
    return {**{name: value for name, value in defaults.items() if name.lower() not in given}, **headers}


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


def _at(document: Any, path: str) -> Any:
    """The value at a dotted path; None where a list is too short or a null ends it; absent where there is no place."""
    for step in path.split("."):
        if document is None:
            return None
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list) and step.isdecimal():
            document = document[int(step)] if int(step) < len(document) else None
        else:
            return _ABSENT
    return document


def _id(value: Any) -> str | None:
    """A provider's id as text that can be stored and found again, else None."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = str(value).strip()
    return text if 0 < len(text) <= ID_CHARS_MAX and one_line(text, ID_CHARS_MAX) == text else None
