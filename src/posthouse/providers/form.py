"""Forms with files in them (RFC 7578): the same fields give the same bytes every time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b


@dataclass(frozen=True, slots=True)
class FormFile:
    """A field whose value is a file."""

    name: str
    filename: str
    content_type: str
    content: bytes


def form(fields: Iterable[tuple[str, str]], files: Iterable[FormFile], seed: str) -> tuple[str, bytes]:
    """Its content type and its bytes; `seed` decides the boundary."""
    parts = [(f'form-data; name="{_quoted(name)}"', value.encode()) for name, value in fields]
    parts += [
        (
            f'form-data; name="{_quoted(file.name)}"; filename="{_quoted(file.filename)}"\r\n'
            f"Content-Type: {file.content_type}",
            file.content,
        )
        for file in files
    ]
    boundary = _boundary(seed, [content for _, content in parts])
    pieces = [
        b"--%s\r\nContent-Disposition: %s\r\n\r\n%s\r\n" % (boundary, head.encode(), content) for head, content in parts
    ]
    return f"multipart/form-data; boundary={boundary.decode()}", b"".join([*pieces, b"--%s--\r\n" % boundary])


def _boundary(seed: str, contents: list[bytes]) -> bytes:
    """In none of the values, and the same for the same form."""
    boundary = blake2b(seed.encode(), digest_size=12).hexdigest().encode()
    while any(boundary in content for content in contents):
        boundary = blake2b(boundary, digest_size=12).hexdigest().encode()
    return boundary


def _quoted(name: str) -> str:
    """As browsers do it, and servers read it."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
