"""What a body may ask of a message, `{to|object:Email,Name}`: the placeholders, and the filters that shape them.

`docs/providers/http.md` lists both.
"""

from __future__ import annotations

import base64
import difflib
import json
import mimetypes
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from posthouse.address import Address
from posthouse.attachment import AMP_TYPE, CALENDAR_TYPE, Alternative, Attachment
from posthouse.providers.mime import message_bytes
from posthouse.providers.port import OutgoingMessage

OUR_ID: Final = "posthouse_id"
"""The name of our id in the metadata that goes out."""

ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

_SKIPPED: Final = "-"
"""In place of a name: this member of an object is left out."""

_EXTENSIONS: Final = mimetypes.MimeTypes()  # Python's own table, the same on every machine


class Item(StrEnum):
    """What a value, or each value of a list, is."""

    ADDRESS = "addresses"
    TEXT = "text"
    PLAIN = "finished values"
    PAIRS = "names with values"
    FILE = "attachments"
    ALTERNATIVE = "alternatives"
    FLAG = "yes or no"


@dataclass(frozen=True, slots=True)
class Pipe:
    """How one placeholder gets its value from a message."""

    item: Item
    many: bool
    get: Callable[[OutgoingMessage], Any]
    takes_one: bool = False  # of several, the first alone
    carries: frozenset[str] = frozenset()  # the parts of an email that have their place here

    def each(self, function: Callable[[Any], Any], item: Item) -> Pipe:
        """Applies `function` to the value, or to each of the list, leaving out what is None."""
        get = self.get
        if self.many:
            return replace(self, item=item, get=lambda m: [y for x in get(m) if (y := function(x)) is not None])
        return replace(self, item=item, get=lambda m: None if (value := get(m)) is None else function(value))


def _metadata(message: OutgoingMessage) -> list[tuple[str, str]]:
    """In one order whatever the store made of it, so that a replay has the same bytes."""
    return sorted({**message.metadata, OUR_ID: message.idempotency_key}.items())


def _of_type(media_type: str) -> Callable[[OutgoingMessage], Alternative | None]:
    return lambda m: next((a for a in m.alternatives if a.media_type == media_type), None)


PLACEHOLDERS: Final = {
    "from": Pipe(Item.ADDRESS, False, lambda m: m.sender),
    "to": Pipe(Item.ADDRESS, True, lambda m: m.to),
    "cc": Pipe(Item.ADDRESS, True, lambda m: m.cc),
    "bcc": Pipe(Item.ADDRESS, True, lambda m: m.bcc),
    "recipients": Pipe(Item.ADDRESS, True, lambda m: m.recipients),
    "reply_to": Pipe(Item.ADDRESS, True, lambda m: m.reply_to),
    "envelope_sender": Pipe(Item.ADDRESS, False, lambda m: m.envelope_sender),
    "subject": Pipe(Item.TEXT, False, lambda m: m.subject),
    "text": Pipe(Item.TEXT, False, lambda m: m.text),
    "html": Pipe(Item.TEXT, False, lambda m: m.html),
    "amp": Pipe(Item.ALTERNATIVE, False, _of_type(AMP_TYPE), takes_one=True),
    "calendar": Pipe(Item.ALTERNATIVE, False, _of_type(CALENDAR_TYPE), takes_one=True),
    "alternatives": Pipe(Item.ALTERNATIVE, True, lambda m: m.alternatives),
    "attachments": Pipe(Item.FILE, True, lambda m: m.attachments),
    "files": Pipe(Item.FILE, True, lambda m: [a for a in m.attachments if not a.inline]),
    "inline": Pipe(Item.FILE, True, lambda m: [a for a in m.attachments if a.inline]),
    "raw": Pipe(Item.TEXT, False, lambda m: None if m.raw is None else _in_base64(m.raw)),
    "mime": Pipe(Item.TEXT, False, lambda m: _in_base64(message_bytes(m))),
    "headers": Pipe(Item.PAIRS, False, lambda m: m.headers),
    "tags": Pipe(Item.TEXT, True, lambda m: m.tags),
    "metadata": Pipe(Item.PAIRS, False, _metadata),
    "id": Pipe(Item.TEXT, False, lambda m: m.idempotency_key),
    "message_id": Pipe(Item.TEXT, False, lambda m: m.message_id),
    "track_opens": Pipe(Item.FLAG, False, lambda m: m.track_opens),
    "track_clicks": Pipe(Item.FLAG, False, lambda m: m.track_clicks),
}

CARRIES: Final[Mapping[str, frozenset[str]]] = {
    "recipients": frozenset({"to", "cc", "bcc"}),
    "alternatives": frozenset({"amp", "calendar", "alternatives"}),
    "attachments": frozenset({"files", "inline"}),
    "mime": frozenset(
        "from reply_to subject text html alternatives amp calendar files inline part_headers headers raw "
        "message_id".split()
    ),
}
"""Placeholders that carry more than the part they are named for."""


def wire(address: Address) -> str:
    """The bare address with its domain in ASCII, which every API takes."""
    local, _, domain = address.email.rpartition("@")
    return address.email if domain.isascii() else f"{local}@{_ascii_domain(address.email)}"


def _ascii_domain(email: str) -> str:
    from email_validator import validate_email  # large, and hardly an address needs it

    return validate_email(email, check_deliverability=False, globally_deliverable=False).ascii_domain


def as_text(address: Address) -> str:
    """`"Ada" <ada@example.com>`."""
    return str(address if address.email.isascii() else Address(wire(address), address.name))


def _as_object(email: str = "email", name: str = "name") -> Callable[[Address], dict[str, str]]:
    return lambda a: {email: wire(a), name: a.name} if a.name else {email: wire(a)}


def _in_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _file_object(*names: str) -> Callable[[Attachment], dict[str, str]]:
    """`names` are those of its name, content, type, content id and disposition; what is empty is left out."""
    filename, content, content_type, content_id, disposition = [*names, *[_SKIPPED] * 5][:5]

    def make(file: Attachment) -> dict[str, str]:
        members = {
            filename: file.filename or _stand_in(file),
            content: _in_base64(file.content),
            content_type: file.content_type,
            content_id: file.content_id,
            disposition: "inline" if file.inline else "",
        }
        return {name: value for name, value in members.items() if name != _SKIPPED and (value or name == content)}

    return make


def _stand_in(file: Attachment) -> str:
    """A name for a file that has none: most APIs want one."""
    extension = _EXTENSIONS.guess_extension(file.content_type.partition(";")[0], strict=False)
    return f"{file.content_id.partition('@')[0] or 'attachment'}{extension or ''}"


_FILE_NAMES: Final = ("filename", "content", "content_type", "content_id", "disposition")
_CONTENT_ID: Final = _FILE_NAMES.index("content_id")


def _files(pipe: Pipe, *names: str) -> Pipe:
    """Without a member for its content id, an inline file is no longer what the HTML shows."""
    chosen = names or _FILE_NAMES
    made = pipe.each(_file_object(*chosen), Item.PLAIN)
    identified = len(chosen) > _CONTENT_ID and chosen[_CONTENT_ID] != _SKIPPED
    return made if identified else replace(made, carries=made.carries - {"inline"})


def _with_scheme(file: Attachment) -> Attachment:
    return replace(file, content_id=f"cid:{file.content_id}") if file.inline else file


def _alternative_object(
    content_type: str = "content_type", content: str = "content"
) -> Callable[[Alternative], dict[str, str]]:
    return lambda a: {content_type: a.content_type, content: a.content}


def finished(pipe: Pipe, address_format: str) -> Pipe:
    """The pipe as it ends where no filter says otherwise."""
    if pipe.item is Item.ADDRESS:
        return pipe.each(as_text if address_format == "text" else _as_object(), Item.PLAIN)
    if pipe.item is Item.FILE:
        return _files(pipe)
    if pipe.item is Item.ALTERNATIVE:
        return pipe.each(_alternative_object(), Item.PLAIN)
    return pipe.each(dict, Item.PLAIN) if pipe.item is Item.PAIRS else pipe


def _first(pipe: Pipe) -> Pipe:
    get = pipe.get
    return replace(pipe, many=False, takes_one=True, get=lambda m: next(iter(get(m)), None))


def _join(pipe: Pipe) -> Pipe:
    texts = pipe.each(as_text, Item.TEXT) if pipe.item is Item.ADDRESS else pipe
    return replace(texts, many=False, get=lambda m: ", ".join(texts.get(m)) or None)


def _pairs(pipe: Pipe, name: str = "name", value: str = "value") -> Pipe:
    get = pipe.get
    return replace(pipe, item=Item.PLAIN, many=True, get=lambda m: [{name: n, value: v} for n, v in get(m)])


@dataclass(frozen=True, slots=True)
class _Filter:
    """What follows a `|`: what it takes, how many words after its colon, and what it makes."""

    takes: frozenset[Item]
    apply: Callable[..., Pipe]
    words: frozenset[int] = frozenset({0})
    of_lists: bool = False


_ADDRESS: Final = frozenset({Item.ADDRESS})
_FILE: Final = frozenset({Item.FILE})
_ALTERNATIVE: Final = frozenset({Item.ALTERNATIVE})

FILTERS: Final[Mapping[str, tuple[_Filter, ...]]] = {
    "text": (_Filter(_ADDRESS, lambda pipe: pipe.each(as_text, Item.TEXT)),),
    "email": (_Filter(_ADDRESS, lambda pipe: pipe.each(wire, Item.TEXT)),),
    "name": (_Filter(_ADDRESS, lambda pipe: pipe.each(lambda a: a.name or None, Item.TEXT)),),
    "object": (
        _Filter(_ADDRESS, lambda pipe, *names: pipe.each(_as_object(*names), Item.PLAIN), words=frozenset({0, 2})),
        _Filter(_FILE, _files, words=frozenset({0, 2, 3, 4, 5})),
        _Filter(
            _ALTERNATIVE,
            lambda pipe, *names: pipe.each(_alternative_object(*names), Item.PLAIN),
            words=frozenset({0, 2}),
        ),
    ),
    "cid": (_Filter(_FILE, lambda pipe: pipe.each(_with_scheme, Item.FILE)),),
    "content": (_Filter(_ALTERNATIVE, lambda pipe: pipe.each(lambda a: a.content, Item.TEXT)),),
    "wrap": (
        _Filter(
            frozenset({Item.TEXT, Item.PLAIN}),
            lambda pipe, name: pipe.each(lambda value: {name: value}, Item.PLAIN),
            words=frozenset({1}),
        ),
    ),
    "first": (_Filter(frozenset({Item.ADDRESS, Item.TEXT, Item.PLAIN}), _first, of_lists=True),),
    "join": (_Filter(frozenset({Item.ADDRESS, Item.TEXT}), _join, of_lists=True),),
    "pairs": (_Filter(frozenset({Item.PAIRS}), _pairs, words=frozenset({0, 2})),),
    "json": (
        _Filter(
            frozenset({Item.PAIRS}),
            lambda pipe: pipe.each(lambda pairs: ENCODER.encode(dict(pairs)) if pairs else None, Item.TEXT),
        ),
    ),
    "choose": (
        _Filter(
            frozenset({Item.FLAG}),
            lambda pipe, yes, no: pipe.each(lambda value: yes if value else no, Item.TEXT),
            words=frozenset({2}),
        ),
    ),
}


def pipe_of(expression: str, place: str) -> tuple[str, Pipe]:
    """The placeholder's name and its pipe. Raises ValueError that names the place."""
    name, *filters = (part.strip() for part in expression.split("|"))
    if name not in PLACEHOLDERS:
        raise ValueError(f"{place}: there is no placeholder {{{name}}}{_nearest(name, PLACEHOLDERS)}")
    pipe = replace(PLACEHOLDERS[name], carries=CARRIES.get(name, frozenset({name})))
    for text in filters:
        pipe = _filtered(pipe, text, f"{place}: {{{expression}}}")
    return name, pipe


def _filtered(pipe: Pipe, text: str, place: str) -> Pipe:
    name, _, rest = text.partition(":")
    words = [word.strip() for word in rest.split(",")] if rest else []
    if name not in FILTERS:
        raise ValueError(f"{place}: there is no filter {name!r}{_nearest(name, FILTERS)}")
    chosen = next((one for one in FILTERS[name] if pipe.item in one.takes), None)
    if chosen is None:
        raise ValueError(f"{place}: {name!r} can't be used on {pipe.item}")
    if len(words) not in chosen.words or not all(words):
        wanted = " or ".join(map(str, sorted(chosen.words)))
        raise ValueError(f"{place}: {name!r} takes {wanted} names after a colon, such as object:Email,Name")
    if chosen.of_lists and not pipe.many:
        raise ValueError(f"{place}: {name!r} is for lists")
    return chosen.apply(pipe, *words)


def _nearest(word: str, words: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(words), n=1)
    return f"; did you mean {near[0]!r}?" if near else f" (there are: {', '.join(words)})"
