"""The files of a caught message: where they are found, given out as downloads, and put into its HTML.

No browser runs any of them: a file is always a download without a type of its own, and only images get into the HTML,
as `data:` addresses, which can run nothing there.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from html import unescape
from typing import Any, Final
from urllib.parse import quote, unquote

from aiohttp import web

from posthouse.sandbox.ledger import CaughtFile

GUARDS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of whatever was caught."""

_IMAGES: Final = frozenset(f"image/{kind}" for kind in "png jpeg gif webp avif bmp x-icon svg+xml".split())
_CID: Final = re.compile(r"""(?<=["'=(])cid:([^\s"'<>)]+)""", re.IGNORECASE)  # RFC 2392


def described(message_id: str, files: Sequence[CaughtFile]) -> list[dict[str, Any]]:
    """What is told of each file in its place; `url` gives its bytes."""
    return [
        {
            "filename": file.filename,
            "content_type": file.content_type,
            "content_id": file.content_id,
            "disposition": "inline" if file.inline else "attachment",
            "size": len(file.content),
            "url": f"/messages/{quote(message_id, safe='')}/attachments/{number}",
        }
        for number, file in enumerate(files)
    ]


def download(content: bytes, filename: str, content_type: str = "application/octet-stream") -> web.Response:
    """Something that a browser saves, whatever is in it."""
    name = quote(filename.encode(errors="replace"), safe="")  # JSON may carry lone surrogates, which UTF-8 can't
    headers = {
        **GUARDS,
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
    return web.Response(body=content, content_type=content_type, headers=headers)


def with_images(html: str, files: Sequence[CaughtFile]) -> str:
    """The HTML with the images that it shows from among the files (`cid:`)."""
    images = {file.content_id: file for file in files if file.content_id and _media_type(file) in _IMAGES}

    def image(found: re.Match[str]) -> str:
        file = images.get(unquote(unescape(found[1])))
        return found[0] if file is None else _data_address(file)

    return _CID.sub(image, html)


def _media_type(file: CaughtFile) -> str:
    return file.content_type.partition(";")[0].strip().lower()


def _data_address(file: CaughtFile) -> str:
    return f"data:{_media_type(file)};base64,{base64.b64encode(file.content).decode()}"
