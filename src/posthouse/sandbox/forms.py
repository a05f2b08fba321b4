"""Reads what came as a form: with files in it (RFC 7578), or as one line (`application/x-www-form-urlencoded`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_string
from urllib.parse import parse_qsl

from posthouse.sandbox.json_parts import Misfit


@dataclass(frozen=True, slots=True)
class FormField:
    """One value, which may be a file."""

    name: str
    octets: bytes
    filename: str = ""
    content_type: str = ""

    @property
    def text(self) -> str:
        """The value as people typed it."""
        return self.octets.decode(errors="replace")


def read_form(content_type: str, body: bytes) -> list[FormField]:
    """The fields in their order. Raises Misfit."""
    about = message_from_string(f"Content-Type: {content_type}\n\n")
    if about.get_content_type() == "application/x-www-form-urlencoded":
        return [FormField(name, text.encode()) for name, text in parse_qsl(body.decode(errors="replace"), True)]
    boundary = about.get_boundary()
    if about.get_content_type() != "multipart/form-data" or boundary is None:
        raise Misfit("invalid_form", "the body is not a form")
    return list(_parts(b"\r\n--" + boundary.encode(), body))


def _parts(delimiter: bytes, body: bytes) -> Iterator[FormField]:
    for piece in (b"\r\n" + body).split(delimiter)[1:]:
        if piece.startswith(b"--"):  # what follows is not part of it
            return
        head, _, content = piece.partition(b"\r\n\r\n")
        about = message_from_string(head.decode(errors="replace").lstrip().replace("\r\n", "\n"))
        name = about.get_param("name", "", header="content-disposition")
        yield FormField(str(name), content, _unquoted(about.get_filename() or ""), about.get("content-type", ""))


def _unquoted(filename: str) -> str:
    """As browsers quote what would end the name."""
    return filename.replace("%22", '"').replace("%0D", "\r").replace("%0A", "\n")
