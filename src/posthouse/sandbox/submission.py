"""One send in the sandbox's own words, whoever's words it came in: whom it is for, its subject, our id, its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from posthouse.sandbox.json_parts import Misfit, Unusable, a_flag, a_text, an_object, in_base64, objects, unfit
from posthouse.sandbox.ledger import CaughtFile

OUR_ID: Final = "posthouse_id"
"""The metadata field that carries the send's id where no idempotency header does."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A send that can be taken."""

    recipients: tuple[str, ...]  # bare addresses, casefolded, in the order to, cc, bcc
    subject: str
    our_id: str | None
    content_hash: str
    size: int  # in octets
    body: dict[str, Any]  # without what follows
    files: tuple[CaughtFile, ...] = ()
    raw: bytes | None = None
    id_domain: str = ""  # what the id of its acceptance ends with, behind an @


def submission_of(
    words: Mapping[str, Any],
    octets: bytes,
    *,
    required: Iterable[str] = (),
    envelope: Mapping[str, Any] | None = None,
    id_domain: str = "",
) -> Submission:
    """What `words` say; a field that the sandbox doesn't know is taken as it comes. `octets` is how they came.

    `envelope` has `to`, `cc` and `bcc` where those of `words` are only what people see. Raises Misfit.
    """
    body = dict(words)
    recipients = _recipients(body if envelope is None else envelope)
    for name in required:
        if not body.get(name):
            raise Misfit("missing_field", f"give {name}", name)
    for name, check in _CHECKS.items():
        if name in body:
            check(body[name], name)
    files = tuple(_files(body.pop("attachments", [])))
    finished = in_base64(body.pop("raw"), "raw") if "raw" in body else None
    subject = body.get("subject")
    metadata = body.get("metadata")
    our_id = metadata.get(OUR_ID) if isinstance(metadata, dict) else None
    return Submission(
        recipients=recipients,
        subject=subject if isinstance(subject, str) else "",
        our_id=str(our_id) if our_id is not None else None,
        content_hash=blake2b(octets, digest_size=16).hexdigest(),
        size=len(octets),
        body=body,
        files=files,
        raw=finished,
        id_domain=id_domain,
    )


def each_usable(read: Callable[[dict[str, Any]], Submission], documents: Iterable[Any]) -> list[Submission | Unusable]:
    """Every message of a call, or what is wrong with it."""

    def one(document: Any, place: str) -> Submission | Unusable:
        try:
            return read(an_object(document, place))
        except Misfit as misfit:
            return misfit.unusable

    return [one(document, f"[{number}]") for number, document in enumerate(documents)]


def rest(document: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """What else a call has, under names that mean nothing to the sandbox itself."""
    return {name: value for name, value in document.items() if name not in known and name not in _OWN_WORDS}


_OWN_WORDS: Final = frozenset(
    "from to cc bcc reply_to subject text html headers tags metadata attachments alternatives raw envelope_sender "
    "message_id track_opens track_clicks".split()
)


def given(words: Mapping[str, Any]) -> dict[str, Any]:
    """Those words that have a value."""
    return {name: value for name, value in words.items() if value is not None}


def _recipients(body: Mapping[str, Any]) -> tuple[str, ...]:
    found: list[str] = []
    for field in ("to", "cc", "bcc"):
        some = body.get(field) or ()
        listed = some if isinstance(some, (list, tuple)) else [some]
        found.extend(bare(address, field) for address in listed)
    if not found:
        raise Misfit("missing_recipients", "give at least one recipient in to, cc or bcc", "to")
    return tuple(found)


def bare(address: object, field: str) -> str:
    """The address in `ada@example.com`, `Ada <ada@example.com>` or `{"email": ..., "name": ...}`, casefolded."""
    text = address.get("email") if isinstance(address, dict) else address
    if isinstance(text, str):
        if text.endswith(">"):
            text = text[text.rfind("<") + 1 : -1]
        local, at, domain = text.strip().rpartition("@")
        if local and at and domain:
            return f"{local}@{domain}".casefold()
    raise Misfit("invalid_recipient", f"{field} holds something that is not an address", field)


def _files(value: object) -> list[CaughtFile]:
    return [_file(one, f"attachments[{place}]") for place, one in enumerate(objects(value, "attachments"))]


def _file(file: dict[str, Any], place: str) -> CaughtFile:
    text = {name: a_text(file.get(name, ""), f"{place}.{name}") for name in _FILE_TEXTS}
    if text["disposition"] not in ("", "attachment", "inline"):
        raise unfit(f"{place}.disposition", "neither attachment nor inline")
    return CaughtFile(
        content=in_base64(file.get("content"), f"{place}.content"),
        filename=text["filename"],
        content_type=text["content_type"],
        content_id=text["content_id"],
        inline=text["disposition"] == "inline",
    )


_FILE_TEXTS: Final = ("filename", "content_type", "content_id", "disposition")


def renamed_files(value: object, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Files whose fields have other names; a `content_id` makes one inline where nothing is said about it."""
    return [_renamed(file, names) for file in objects(value or [], "attachments")]


def _renamed(file: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    found = {ours: file[theirs] for theirs, ours in names.items() if file.get(theirs) is not None}
    inline = {"disposition": "inline"} if "content_id" in found else {}
    return inline | found


def _alternatives(value: object, place: str) -> None:
    for number, one in enumerate(objects(value, place)):
        for name in ("content_type", "content"):
            a_text(one.get(name), f"{place}[{number}].{name}")


_CHECKS: Final[dict[str, Callable[[object, str], object]]] = {
    "alternatives": _alternatives,
    "envelope_sender": a_text,
    "message_id": a_text,
    "track_opens": a_flag,
    "track_clicks": a_flag,
}
