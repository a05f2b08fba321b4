"""The mail catcher: what the sandbox accepted, for people to read in a browser.

What was caught is not trusted: every value is escaped, pages carry a policy without scripts, and an HTML body is shown
only inside a frame that may run nothing.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web
from jinja2 import DictLoader, Environment, StrictUndefined

from posthouse.sandbox.api import SandboxApi
from posthouse.sandbox.downloads import GUARDS, described, download, with_images
from posthouse.sandbox.ledger import Acceptance
from posthouse.sandbox.page_facts import facts_of, moment, size
from posthouse.sandbox.page_templates import STYLE, TEMPLATES
from posthouse.sandbox.received import Shown, shown

MESSAGES_A_PAGE: Final = 50

_PAGE_POLICY: Final = (
    "default-src 'none'; style-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_BODY_POLICY: Final = (
    "sandbox; default-src 'none'; img-src data: http: https:; style-src 'unsafe-inline' http: https:; "
    "font-src data: http: https:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)


def page_routes(api: SandboxApi) -> list[web.RouteDef]:
    """The list at `/`, one page a message, and on their own its HTML body, its source and its files."""
    pages = _Pages(api)
    return [
        web.get("/", pages.show_list),
        web.get("/style.css", pages.show_style),
        web.get("/messages/{message_id}", pages.show_message),
        web.get("/messages/{message_id}/html", pages.show_html),
        web.get("/messages/{message_id}/source", pages.show_source),
        web.get("/messages/{message_id}/source.eml", pages.give_source),
        web.get(r"/messages/{message_id}/attachments/{number:[0-9]{1,6}}", pages.give_attachment),
    ]


class _Pages:
    def __init__(self, api: SandboxApi) -> None:
        self._api = api
        self._templates = Environment(
            loader=DictLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        self._templates.filters |= {"moment": moment, "size": size}

    async def show_list(self, request: web.Request) -> web.Response:
        """The newest first."""
        ledger = self._api.ledger
        total = len(ledger.acceptances)
        pages = max(1, -(-total // MESSAGES_A_PAGE))
        asked = request.query.get("page", "1")
        page = min(max(1, int(asked)), pages) if asked.isascii() and asked.isdecimal() else 1
        newest = total - (page - 1) * MESSAGES_A_PAGE
        messages = ledger.acceptances[max(0, newest - MESSAGES_A_PAGE) : newest][::-1]
        return self._page("list", messages=messages, total=total, duplicates=ledger.duplicates, page=page, pages=pages)

    async def show_message(self, request: web.Request) -> web.Response:
        """One message: its facts and its bodies."""
        message = self._message(request)
        caught = shown(message)
        facts = facts_of(message, caught.body if caught else {}, self._times_accepted(message))
        files = described(message.message_id, caught.files if caught else ())
        return self._page("message", message=message, body=caught and caught.body, files=files, facts=facts)

    async def show_html(self, request: web.Request) -> web.Response:
        """An HTML body as it came, under a policy that lets it run nothing, in a frame or on its own."""
        caught = self._shown(request)
        return _html(with_images(str(caught.body.get("html") or ""), caught.files), _BODY_POLICY)

    async def show_source(self, request: web.Request) -> web.Response:
        """A message that came as it is, octet by octet."""
        source = self._source(request)
        return web.Response(body=source, content_type="text/plain", headers={**GUARDS, **_policy(_BODY_POLICY)})

    async def give_source(self, request: web.Request) -> web.Response:
        """The same as a file that mail programs open."""
        return download(self._source(request), f"{request.match_info['message_id']}.eml", "message/rfc822")

    async def give_attachment(self, request: web.Request) -> web.Response:
        """One file of a message, to be saved."""
        files = self._shown(request).files
        number = int(request.match_info["number"])
        if number >= len(files):
            raise web.HTTPNotFound(text="there is no such attachment")
        return download(files[number].content, files[number].filename or f"attachment-{number}")

    async def show_style(self, request: web.Request) -> web.Response:
        """The style of every page."""
        return web.Response(text=STYLE, content_type="text/css")

    def _message(self, request: web.Request) -> Acceptance:
        message = self._api.ledger.by_id(request.match_info["message_id"])
        if message is None:
            raise web.HTTPNotFound(text="there is no such message")
        return message

    def _shown(self, request: web.Request) -> Shown:
        caught = shown(self._message(request))
        if caught is None:
            raise web.HTTPNotFound(text="this message is no longer kept")
        return caught

    def _source(self, request: web.Request) -> bytes:
        raw = self._message(request).raw
        if raw is None:
            raise web.HTTPNotFound(text="this message has no source, or it is no longer kept")
        return raw

    def _times_accepted(self, message: Acceptance) -> int:
        return len(self._api.ledger.by_key(message.key)) if message.key is not None else 1

    def _page(self, template: str, **values: object) -> web.Response:
        return _html(self._templates.get_template(template).render(values), _PAGE_POLICY)


def _html(text: str, policy: str) -> web.Response:
    # JSON may carry lone surrogates, which UTF-8 can't.
    return web.Response(
        body=text.encode(errors="replace"),
        content_type="text/html",
        charset="utf-8",
        headers={**GUARDS, **_policy(policy)},
    )


def _policy(policy: str) -> dict[str, str]:
    return {"Content-Security-Policy": policy}
