"""The mail catcher: what the sandbox accepted, for people to read in a browser.

What was caught is not trusted: every value is escaped, pages carry a policy without scripts, and an HTML body is shown
only inside a frame that may run nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from aiohttp import web
from jinja2 import DictLoader, Environment, StrictUndefined

from posthouse.sandbox.api import SandboxApi
from posthouse.sandbox.ledger import Acceptance
from posthouse.sandbox.received import shown_body

MESSAGES_A_PAGE: Final = 50

_PAGE_POLICY: Final = (
    "default-src 'none'; style-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_BODY_POLICY: Final = (
    "sandbox; default-src 'none'; img-src data: http: https:; style-src 'unsafe-inline' http: https:; "
    "font-src data: http: https:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)

_STYLE: Final = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1rem; margin-top: 2rem; }
table { width: 100%; border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid #8884; }
td { overflow-wrap: anywhere; } td.when { white-space: nowrap; font-variant-numeric: tabular-nums; }
tr.odd-one td { background: #e0a80022; }
pre, iframe { width: 100%; box-sizing: border-box; border: 1px solid #8884; border-radius: 4px; background: #8881; }
pre { padding: .8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
iframe { height: 36rem; background: #fff; }
nav a { margin-right: 1rem; } .quiet { color: #777; }
"""

_TEMPLATES: Final = {
    "layout": """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{% block title %}{% endblock %} · Posthouse sandbox</title>
<link rel="stylesheet" href="/style.css">
</head>
<body>
{% block main %}{% endblock %}
</body>
</html>
""",
    "list": """{% extends "layout" %}
{% block title %}Caught mail{% endblock %}
{% block main %}
<h1>Caught mail</h1>
<p>
{{ total }} accepted{% if duplicates %}, of them {{ duplicates }} duplicates{% endif %}. Nothing leaves the sandbox.
</p>
{% if messages %}
<table>
<thead><tr><th>Accepted (UTC)</th><th>To</th><th>Subject</th></tr></thead>
<tbody>
{% for message in messages %}
<tr>
<td class="when">{{ message.at|moment }}</td>
<td>{{ message.recipients|join(", ") }}</td>
<td><a href="/messages/{{ message.message_id|urlencode }}">{{ message.subject or "(no subject)" }}</a></td>
</tr>
{% endfor %}
</tbody>
</table>
{% else %}
<p class="quiet">No message yet. Send one to <code>/v1/send</code>.</p>
{% endif %}
<nav>
{% if page > 1 %}<a href="/?page={{ page - 1 }}">Newer</a>{% endif %}
{% if page < pages %}<a href="/?page={{ page + 1 }}">Older</a>{% endif %}
</nav>
{% endblock %}
""",
    "message": """{% extends "layout" %}
{% block title %}{{ message.subject or "(no subject)" }}{% endblock %}
{% block main %}
<nav><a href="/">All mail</a></nav>
<h1>{{ message.subject or "(no subject)" }}</h1>
<table>
{% for name, value in facts %}
<tr{% if name == "Accepted with this key" %} class="odd-one"{% endif %}><th>{{ name }}</th><td>{{ value }}</td></tr>
{% endfor %}
</table>
{% if body is none %}
<p class="quiet">Its content is no longer kept.</p>
{% else %}
{% if message.raw is not none %}
<nav><a href="/messages/{{ message.message_id|urlencode }}/source">Source</a></nav>
{% endif %}
{% if body.get("html") %}
<h2>HTML</h2>
<iframe sandbox="" title="HTML body" src="/messages/{{ message.message_id|urlencode }}/html"></iframe>
{% endif %}
{% if body.get("text") %}
<h2>Text</h2>
<pre>{{ body["text"] }}</pre>
{% endif %}
{% endif %}
{% endblock %}
""",
}


def page_routes(api: SandboxApi) -> list[web.RouteDef]:
    """The list at `/`, one page a message, and on their own its HTML body and its source."""
    pages = _Pages(api)
    return [
        web.get("/", pages.show_list),
        web.get("/style.css", pages.show_style),
        web.get("/messages/{message_id}", pages.show_message),
        web.get("/messages/{message_id}/html", pages.show_html),
        web.get("/messages/{message_id}/source", pages.show_source),
    ]


class _Pages:
    def __init__(self, api: SandboxApi) -> None:
        self._api = api
        self._templates = Environment(
            loader=DictLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        self._templates.filters["moment"] = _moment

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
        body = shown_body(message)
        facts = _facts(message, body or {}, self._times_accepted(message))
        return self._page("message", message=message, body=body, facts=facts)

    async def show_html(self, request: web.Request) -> web.Response:
        """An HTML body as it came, under a policy that lets it run nothing, in a frame or on its own."""
        body = shown_body(self._message(request)) or {}
        return _html(str(body.get("html") or ""), _BODY_POLICY)

    async def show_source(self, request: web.Request) -> web.Response:
        """A message that came over SMTP, octet by octet."""
        raw = self._message(request).raw
        if raw is None:
            raise web.HTTPNotFound(text="this message has no source, or it is no longer kept")
        return web.Response(body=raw, content_type="text/plain", headers={**_GUARDS, **_policy(_BODY_POLICY)})

    async def show_style(self, request: web.Request) -> web.Response:
        """The style of every page."""
        return web.Response(text=_STYLE, content_type="text/css")

    def _message(self, request: web.Request) -> Acceptance:
        message = self._api.ledger.by_id(request.match_info["message_id"])
        if message is None:
            raise web.HTTPNotFound(text="there is no such message")
        return message

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
        headers={**_GUARDS, **_policy(policy)},
    )


_GUARDS: Final = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}


def _policy(policy: str) -> dict[str, str]:
    return {"Content-Security-Policy": policy}


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _facts(message: Acceptance, body: Mapping[str, Any], times_accepted: int) -> list[tuple[str, str]]:
    """What the message page lists above the bodies: names and values, empty ones left out."""
    facts = [
        ("Accepted (UTC)", _moment(message.at)),
        ("Accepted with this key", f"{times_accepted} times" if times_accepted > 1 else ""),
        ("Message id", message.message_id),
        ("Key", message.key or ""),
        ("Recipients", ", ".join(message.recipients)),
        ("Envelope sender", _envelope_sender(message)),
        *((name, _shown(body.get(field))) for name, field in _ADDRESS_FIELDS),
        ("Tags", _shown(body.get("tags"))),
        *(("Attachment", _attachment(one)) for one in _listed(body.get("attachments"))),
        *((f"Metadata: {name}", value) for name, value in _pairs(body.get("metadata"))),
        *((f"Header: {name}", value) for name, value in _pairs(body.get("headers"))),
    ]
    return [(name, value) for name, value in facts if value]


_ADDRESS_FIELDS: Final = (("From", "from"), ("To", "to"), ("Cc", "cc"), ("Bcc", "bcc"), ("Reply-To", "reply_to"))


def _envelope_sender(message: Acceptance) -> str:
    if message.envelope_sender is None:
        return ""
    return message.envelope_sender or "<> (none: this message asks for no bounces)"


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _attachment(value: Any) -> str:
    """Its name, type and, where it is known, size."""
    if not isinstance(value, Mapping):
        return _shown(value)
    size = f"{value['size']} octets" if "size" in value else ""
    named = value.get("filename") or value.get("name") or "(no name)"
    return ", ".join(filter(None, [str(named), _shown(value.get("content_type")), size]))


def _shown(value: object) -> str:
    """Addresses and words in any shape that the API takes."""
    if isinstance(value, Mapping) and "email" in value:
        return f"{value['name']} <{value['email']}>" if value.get("name") else str(value["email"])
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_shown(one) for one in value)
    return "" if value is None else str(value)


def _pairs(value: Any) -> list[tuple[str, str]]:
    """Names and values of a table, or of a list of pairs or of `{"name": ..., "value": ...}`."""
    if isinstance(value, Mapping):
        return [(str(name), _shown(one)) for name, one in value.items()]
    return [pair for one in _listed(value) if (pair := _pair(one)) is not None]


def _pair(value: Any) -> tuple[str, str] | None:
    if isinstance(value, Mapping) and "name" in value:
        return str(value["name"]), _shown(value.get("value"))
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:
        return str(value[0]), _shown(value[1])
    return None
