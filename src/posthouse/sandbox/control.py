"""The control API: the ledger as JSON, and faults that are changed while the sandbox runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Final, TypeVar
from urllib.parse import quote

from aiohttp import web

from posthouse.errors import ConfigError
from posthouse.sandbox.api import SandboxApi
from posthouse.sandbox.downloads import described
from posthouse.sandbox.fault_text import FaultSettings, fault_text, parse_fault_settings
from posthouse.sandbox.faults import Action, Fault, FaultPlan
from posthouse.sandbox.ledger import Acceptance, CallRecord, Ledger
from posthouse.sandbox.news import NewsKind
from posthouse.sandbox.received import shown

PAGE_DEFAULT: Final = 100
PAGE_MAX: Final = 1000


class _Refused(Exception):
    """A request that can't be served; the text says why."""

    status = 422
    error = "invalid"


class _NotFound(_Refused):
    """A request for what isn't there."""

    status = 404
    error = "not_found"


def control_routes(api: SandboxApi, clock: Callable[[], float]) -> list[web.RouteDef]:
    """Everything under `/_sandbox/`."""
    control = _Control(api, clock)
    return [
        web.get("/_sandbox/ledger", _guarded(control.get_ledger)),
        web.get("/_sandbox/messages/{message_id}", _guarded(control.get_message)),
        web.get("/_sandbox/calls", _guarded(control.get_calls)),
        web.get("/_sandbox/stats", _guarded(control.get_stats)),
        web.get("/_sandbox/faults", _guarded(control.get_faults)),
        web.put("/_sandbox/faults", _guarded(control.put_faults)),
        web.get("/_sandbox/webhooks", _guarded(control.get_webhooks)),
        web.post("/_sandbox/messages/{message_id}/news", _guarded(control.post_news)),
        web.post("/_sandbox/reset", _guarded(control.post_reset)),
    ]


_Row = TypeVar("_Row")
_Handler = Callable[[web.Request], Any]


def _guarded(handler: _Handler) -> _Handler:
    """Turns refusals into answers, and keeps other sites' pages in the same browser from asking."""

    async def guarded(request: web.Request) -> web.Response:
        if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return web.json_response({"error": "cross_site", "message": "other sites may not ask"}, status=403)
        try:
            return web.json_response(await handler(request))
        except _Refused as refused:
            return web.json_response({"error": refused.error, "message": str(refused)}, status=refused.status)

    return guarded


class _Control:
    def __init__(self, api: SandboxApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock

    async def get_ledger(self, request: web.Request) -> dict[str, Any]:
        """What was accepted, oldest first; `key` or `recipient` narrows it down."""
        chosen = _chosen(self._api.ledger, request)
        return {**_page(request, chosen), "acceptances": [_acceptance_shown(one) for one in _slice(request, chosen)]}

    async def get_message(self, request: web.Request) -> dict[str, Any]:
        """One of them."""
        return _acceptance_shown(self._message(request))

    def _message(self, request: web.Request) -> Acceptance:
        acceptance = self._api.ledger.by_id(request.match_info["message_id"])
        if acceptance is None:
            raise _NotFound("there is no such message")
        return acceptance

    async def get_calls(self, request: web.Request) -> dict[str, Any]:
        """The calls that are kept, oldest first."""
        calls = list(self._api.ledger.calls)
        return {**_page(request, calls), "calls": [_call_shown(call) for call in _slice(request, calls)]}

    async def get_stats(self, request: web.Request) -> dict[str, Any]:
        """The counts."""
        ledger = self._api.ledger
        return {
            "elapsed_s": self._api.elapsed_s(self._clock()),
            "accepted": len(ledger.acceptances),
            "distinct_keys": ledger.distinct_keys,
            "duplicates": ledger.duplicates,
            "calls": {result.value: count for result, count in ledger.results.items()},
            "faults": {fault_text(fault): count for fault, count in ledger.faults.items()},
        }

    async def get_webhooks(self, request: web.Request) -> dict[str, Any]:
        """To whom what is told, oldest first: each try that has ended."""
        webhooks = self._api.webhooks
        records = list(webhooks.records)
        return {
            "addresses": webhooks.shown(),
            "waiting": webhooks.waiting,
            **_page(request, records),
            "tries": [asdict(record) for record in _slice(request, records)],
        }

    async def post_news(self, request: web.Request) -> dict[str, Any]:
        """Something more becomes of a message, such as `{"kind": "complained"}`; of several recipients name one."""
        acceptance = self._message(request)
        kind, recipient = _news_asked(await request.text(), acceptance)
        self._api.tell(acceptance.message_id, kind, recipient, self._clock())
        return _acceptance_shown(self._message(request))

    async def get_faults(self, request: web.Request) -> dict[str, Any]:
        """The faults in force, in order."""
        return {"faults": [fault_text(fault) for fault in self._api.faults.faults]}

    async def put_faults(self, request: web.Request) -> dict[str, Any]:
        """Replaces them; the schedule begins now."""
        settings = _fault_settings(await request.text())
        self._api.set_faults(FaultPlan(settings.faults), self._clock(), settings.seed)
        return await self.get_faults(request)

    async def post_reset(self, request: web.Request) -> dict[str, Any]:
        """Forgets messages, calls and keys; the schedule begins again."""
        self._api.reset(self._clock())
        return await self.get_stats(request)


def _news_asked(text: str, acceptance: Acceptance) -> tuple[NewsKind, str]:
    asked = _json(text)
    kinds = [kind.value for kind in NewsKind]
    kind = asked.get("kind") if isinstance(asked, dict) else None
    if kind not in kinds:
        raise _Refused(f'give a kind, such as {{"kind": "complained"}}; there are: {", ".join(kinds)}')
    recipient = asked.get("recipient", acceptance.recipients[0])
    if recipient not in acceptance.recipients:
        raise _Refused(f"the message is not for {recipient!r}, but for {', '.join(acceptance.recipients)}")
    return NewsKind(kind), recipient


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _Refused(f"the body is not JSON: {error}") from None


def _fault_settings(text: str) -> FaultSettings:
    try:
        settings = parse_fault_settings(_json(text))
    except ConfigError as error:
        raise _Refused(str(error)) from None
    if any(_never_ends(fault) for fault in settings.faults):
        raise _Refused("refuse would close this port for good; say for how long, such as refuse:until=30s")
    return settings


def _never_ends(fault: Fault) -> bool:
    return fault.on and fault.effect.action is Action.REFUSE and fault.target.until_s is None


def _chosen(ledger: Ledger, request: web.Request) -> Sequence[Acceptance]:
    if (key := request.query.get("key")) is not None:
        return ledger.by_key(key)
    if (recipient := request.query.get("recipient")) is not None:
        return ledger.by_recipient(recipient)
    return ledger.acceptances


def _call_shown(call: CallRecord) -> dict[str, Any]:
    return {
        "at": call.at,
        "kind": call.kind.value,
        "result": call.result.value,
        "key": call.key,
        "fault": fault_text(call.fault) if call.fault is not None else None,
    }


def _acceptance_shown(acceptance: Acceptance) -> dict[str, Any]:
    caught = shown(acceptance)
    files = described(acceptance.message_id, caught.files) if caught else []
    return {
        "message_id": acceptance.message_id,
        "key": acceptance.key,
        "at": acceptance.at,
        "recipients": acceptance.recipients,
        "subject": acceptance.subject,
        "news": [
            {"kind": one.kind, "recipient": one.recipient, "at": acceptance.happened_at(one)} for one in acceptance.news
        ],
        "content_hash": acceptance.content_hash,
        "envelope_sender": acceptance.envelope_sender,
        "body": caught and {**caught.body, **({"attachments": files} if files else {})},
        "source": f"/messages/{quote(acceptance.message_id, safe='')}/source" if acceptance.raw is not None else None,
    }


def _page(request: web.Request, rows: Sequence[object]) -> dict[str, int]:
    return {"total": len(rows), "offset": _number(request, "offset", 0), "limit": _limit(request)}


def _slice(request: web.Request, rows: Sequence[_Row]) -> Sequence[_Row]:
    offset = _number(request, "offset", 0)
    return rows[offset : offset + _limit(request)]


def _limit(request: web.Request) -> int:
    return min(_number(request, "limit", PAGE_DEFAULT), PAGE_MAX)


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    if not (text.isascii() and text.isdecimal()):
        raise _Refused(f"{name} must be a whole number, not {text!r}")
    return int(text)
