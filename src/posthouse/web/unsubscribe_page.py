"""The page behind a link in a message: plain HTML that loads nothing, and works without a script or a cookie."""

from __future__ import annotations

import string
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from typing import Final

from aiohttp import web

from posthouse.unsubscribe import LIST_UNSUBSCRIBE, ONE_CLICK, Unsubscription

UNDO: Final = "undo"
"""The field of the form that takes it back."""

_STYLE: Final = """
body { font: 1.125rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 12vh auto; padding: 0 1rem;
  color: #1c1c1c; background: #fff; overflow-wrap: anywhere }
h1 { font-size: 1.5rem; line-height: 1.25 }
button { font: inherit; padding: .6rem 1.2rem; border: 2px solid #1a4f9c; border-radius: .4rem;
  color: #fff; background: #1a4f9c; cursor: pointer }
button:focus-visible { outline: 3px solid #e08a00; outline-offset: 2px }
@media (prefers-color-scheme: dark) { body { color: #eee; background: #161616 } }
"""

_PAGE: Final = string.Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>$title</title>
<style>$style</style>
</head>
<body>
<main>
<h1>$title</h1>
<p>$text</p>
$form</main>
</body>
</html>
""")

_FORM: Final = string.Template("""\
<form method="post"><button name="$name" value="$value">$label</button></form>
""")

_STYLE_HASH: Final = b64encode(sha256(_STYLE.encode()).digest()).decode()

HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",  # the address of the page lets whoever has it unsubscribe
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow",
}


def asks(wish: Unsubscription, status: int = 200, title: str = "Unsubscribe?") -> web.Response:
    """Asks whether it is meant: programs open links too."""
    text = f"With this button we send no more {_what(wish)} to {_who(wish)}."
    return _page(status, title, text, _form(LIST_UNSUBSCRIBE, ONE_CLICK, "Unsubscribe"))


def unsubscribed(wish: Unsubscription) -> web.Response:
    """Says that it is done, and offers to take it back."""
    text = f"{_who(wish)} gets no more {_what(wish)} from us. What was on its way already may still arrive."
    return _page(200, "Unsubscribed", text, _form(UNDO, "1", "That was a mistake: undo it"))


def undone(wish: Unsubscription) -> web.Response:
    """Says that it is as before."""
    text = f"{_who(wish)} is no longer unsubscribed from {_what(wish)}."
    return _page(200, "Undone", text, _form(LIST_UNSUBSCRIBE, ONE_CLICK, "Unsubscribe"))


def unknown_link() -> web.Response:
    """Nobody has signed this."""
    text = (
        "Nothing was changed. The link may have been cut off: open it from the message again, as a whole. If that "
        "doesn't help, answer the message and ask to be unsubscribed."
    )
    return _page(400, "This link is not complete", text)


def try_again(status: int, text: str) -> web.Response:
    """It could not be done; nothing was written. The person's browser asks again with the same form."""
    return _page(status, "That didn't work", f"{text} Nothing was changed. Please try again.")


def _who(wish: Unsubscription) -> str:
    return f"<strong>{escape(wish.address)}</strong>"


def _what(wish: Unsubscription) -> str:
    name = wish.scope.partition(" ")[2]
    return f"<strong>{escape(name)}</strong> mail"


def _form(name: str, value: str, label: str) -> str:
    """It goes to the page's own address, wherever a server in front of ours has put that."""
    return _FORM.substitute(name=name, value=value, label=label)


def _page(status: int, title: str, text: str, form: str = "") -> web.Response:
    html = _PAGE.substitute(title=title, style=_STYLE, text=text, form=form)
    response = web.Response(status=status, text=html, content_type="text/html", headers=HEADERS)
    if status == 503:
        response.headers["Retry-After"] = "60"
    return response
