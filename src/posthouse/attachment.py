"""What goes along with an email's words: files, inline images, and other forms of the words such as an invitation."""

from __future__ import annotations

import hashlib
import mimetypes
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from posthouse.errors import InvalidEmail
from posthouse.header import HeaderPairs, content_id, content_type, header_pairs
from posthouse.text import one_line, plain_text

FILENAME_CHARS_MAX: Final = 255
PART_HEADERS_MAX: Final = 20
CALENDAR_TYPE: Final = "text/calendar"
AMP_TYPE: Final = "text/x-amp-html"
UNNAMED_TYPE: Final = "application/octet-stream"

_GUESSES: Final = mimetypes.MimeTypes()  # Python's own table: the machine's files would make each guess a local one

_SET_BY_US: Final = frozenset({"name", "boundary"})
_OF_TEXT_SET_BY_US: Final = _SET_BY_US | {"charset"}
_PART_HEADERS_SET_BY_US: Final = frozenset(
    {"content-type", "content-disposition", "content-transfer-encoding", "content-id", "mime-version"}
)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that goes along. Its bytes are stored once, however many emails they go with.

    `content_type` is guessed from the name where it is left out. With a `content_id` the file is part of the HTML,
    which shows it as `<img src="cid:CONTENT_ID">`; without one it stands beside the words. `headers` are further
    headers of its part.
    """

    content: bytes = field(repr=False)
    filename: str = ""
    content_type: str = ""
    content_id: str = ""
    headers: HeaderPairs = ()

    @staticmethod
    def from_file(path: str | Path, *, content_type: str = "", content_id: str = "") -> Attachment:
        """The file at `path` as it is now. Raises InvalidEmail where it can't be read."""
        place = Path(path)
        try:
            content = place.read_bytes()
        except OSError as error:
            raise InvalidEmail("attachments", f"{place} can't be read: {error.strerror}") from None
        return Attachment(content, place.name, content_type, content_id)

    @property
    def inline(self) -> bool:
        """Whether the HTML shows it."""
        return bool(self.content_id)

    @property
    def digest(self) -> str:
        """What tells its bytes from others: SHA-256 in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()

    def checked(self, field_name: str) -> Attachment:
        """The same attachment, validated, with its content type. Raises InvalidEmail."""
        if not isinstance(self.content, bytes | bytearray | memoryview):
            raise InvalidEmail(f"{field_name}.content", f"must be bytes, not {type(self.content).__name__}")
        filename = one_line(self.filename, f"{field_name}.filename", FILENAME_CHARS_MAX)
        kind = content_type(self.content_type or _guess(filename), f"{field_name}.content_type", _SET_BY_US)
        if kind.startswith("multipart/"):
            raise InvalidEmail(f"{field_name}.content_type", "a multipart is no file; attach its parts, or give `raw`")
        return Attachment(
            bytes(self.content),
            filename,
            kind,
            content_id(self.content_id, f"{field_name}.content_id"),
            header_pairs(self.headers, f"{field_name}.headers", _PART_HEADERS_SET_BY_US, PART_HEADERS_MAX),
        )


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another form of the same words, for programs that know it: `Alternative.amp(…)`, `Alternative.calendar(…)`."""

    content: str
    content_type: str  # with its parameters; the charset is ours

    @staticmethod
    def amp(html: str) -> Alternative:
        """AMP for email."""
        return Alternative(html, AMP_TYPE)

    @staticmethod
    def calendar(ics: str, method: str = "REQUEST") -> Alternative:
        """An invitation, its answer or its withdrawal (RFC 5546); it goes along as the file `invite.ics` too."""
        return Alternative(ics, f"{CALENDAR_TYPE}; method={method.upper()}")

    @property
    def media_type(self) -> str:
        """The content type without its parameters."""
        return self.content_type.partition(";")[0]

    @property
    def is_calendar(self) -> bool:
        """Whether it is an invitation or the like."""
        return self.media_type == CALENDAR_TYPE

    def as_file(self) -> Attachment:
        """An invitation as the file that some programs want beside it."""
        return Attachment(self.content.encode(), "invite.ics", "application/ics")

    def checked(self, field_name: str) -> Alternative:
        """The same alternative, validated. Raises InvalidEmail."""
        content = plain_text(self.content, f"{field_name}.content")
        checked = Alternative(
            content, content_type(self.content_type, f"{field_name}.content_type", _OF_TEXT_SET_BY_US)
        )
        if checked.media_type in ("text/plain", "text/html"):
            raise InvalidEmail(f"{field_name}.content_type", f"{checked.media_type} is a field of its own")
        if checked.media_type.startswith(("multipart/", "message/")):
            raise InvalidEmail(f"{field_name}.content_type", "an alternative is words in one part")
        return checked


def _guess(filename: str) -> str:
    guessed, encoding = _GUESSES.guess_type(filename, strict=False)
    return guessed if guessed and not encoding else UNNAMED_TYPE
