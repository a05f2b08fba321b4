"""The message model: `Email` is what an application asks for.

Everything that can be wrong with an email is refused here, with the field and the reason, before anything is
written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from posthouse import fields
from posthouse.address import AddressesLike, AddressLike
from posthouse.attachment import Alternative, Attachment
from posthouse.content import Content, StoredFile
from posthouse.errors import InvalidEmail
from posthouse.header import HeaderPairs, header_pairs, message_id
from posthouse.raw import SUBJECT_CHARS_MAX, read_raw

HEADERS_MAX: Final = 100
RECIPIENTS_MAX: Final = 50
ATTACHMENTS_MAX: Final = 100
ALTERNATIVES_MAX: Final = 10
CONTENT_BYTES_MAX: Final = 10 * 1024 * 1024
LANE_WORDS_CHARS_MAX: Final = 160
"""Type, service and campaign together: they are the lane's name, with the mailbox group behind them."""

RESERVED_HEADERS: Final = frozenset(
    "from sender to cc bcc reply-to subject date message-id mime-version content-type content-transfer-encoding "
    "content-disposition return-path received dkim-signature".split()
)
"""Set from the email's own fields; naming them twice would make two of them."""

IMPORTANCE_HEADERS: Final[Mapping[str, HeaderPairs]] = {
    "high": (("Importance", "high"), ("Priority", "urgent"), ("X-Priority", "1")),
    "low": (("Importance", "low"), ("Priority", "non-urgent"), ("X-Priority", "5")),
}
"""Three headers (RFC 2156, and an older custom), as each mail program looks at another one."""


@dataclass(slots=True)
class Email:
    """What an application asks for.

    `key` is the dedupe key: one key, one email, whatever calls `enqueue` how often. `to`, `cc`, `bcc` and `reply_to`
    take one address or a list; an address is text (`"Ada <ada@example.com>"`) or an `Address`. Give `subject` and
    `text` and/or `html`, or `template` and its `variables` (a subject given as well wins over the template's), or in
    `raw` a finished message, whose own headers name the recipients where `to` doesn't.
    `send_at` and `expires` are aware datetimes; `after` is the key of an email that must be accepted first.
    `service` is the internal caller, `campaign` the bulk send that it belongs to; both may be paused by name. Emails of
    one `family` replace each other, such as the codes for one sign-in: the type's `cooldown` stands between them.
    `importance` is what the reader's program shows, "high" or "low"; how soon it is sent is its type's priority.
    `options` are what one provider alone knows, by the name of the route or the provider.
    """

    key: str
    to: AddressesLike = ()
    type: str = "default"
    subject: str | None = None
    text: str | None = None
    html: str | None = None
    template: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    alternatives: Sequence[Alternative] = ()
    attachments: Sequence[Attachment] = ()
    raw: bytes | None = None
    sender: AddressLike | None = None
    envelope_sender: AddressLike | None = None
    cc: AddressesLike = ()
    bcc: AddressesLike = ()
    reply_to: AddressesLike = ()
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = ()
    message_id: str | None = None
    importance: str | None = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    track_opens: bool | None = None
    track_clicks: bool | None = None
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    send_at: datetime | None = None
    expires: datetime | None = None
    after: str | None = None
    service: str | None = None
    campaign: str | None = None
    family: str | None = None

    def checked(self) -> CheckedEmail:
        """A frozen, validated copy: later changes to this object change nothing. Raises InvalidEmail."""
        key = fields.checked_key(self.key, "key")
        content, files = self._written() if self.raw is None else self._finished()
        after = None if self.after is None else fields.checked_key(self.after, "after")
        if after == key:
            raise InvalidEmail("after", "an email can't wait for itself")
        type_ = fields.lane_word(self.type, "type")
        service = None if self.service is None else fields.lane_word(self.service, "service")
        campaign = None if self.campaign is None else fields.lane_word(self.campaign, "campaign")
        _check_lane(type_, service, campaign)
        family = None if self.family is None else fields.family(self.family)
        send_at, expires = fields.moment(self.send_at, "send_at"), fields.moment(self.expires, "expires")
        if send_at is not None and expires is not None and expires <= send_at:
            raise InvalidEmail("expires", "it would expire before its send_at")
        stored = content.to_json()
        stored_bytes = stored.encode()
        if (size := len(stored_bytes)) > CONTENT_BYTES_MAX:
            raise InvalidEmail("content", f"{size} bytes; at most {CONTENT_BYTES_MAX} can be stored")
        alike = fingerprint(type_, service, campaign, after, stored_bytes)
        return CheckedEmail(
            key, type_, service, campaign, family, content, stored, send_at, expires, after, alike, files
        )

    def _written(self) -> tuple[Content, dict[str, bytes]]:
        """The content of an email that we build, and the bytes of its files by their digest."""
        alternatives = _alternatives(self.alternatives)
        attachments = _attachments(self.attachments, alternatives)
        stored = [StoredFile.of(attachment) for attachment in attachments]
        content = Content(
            **self._envelope(),
            sender=None if self.sender is None else fields.address(self.sender, "sender"),
            reply_to=fields.addresses(self.reply_to, "reply_to"),
            subject=fields.optional_line(self.subject, "subject", SUBJECT_CHARS_MAX),
            text=fields.optional_text(self.text, "text"),
            html=fields.optional_text(self.html, "html"),
            alternatives=alternatives,
            attachments=tuple(stored),
            template=None if self.template is None else fields.template_name(self.template),
            variables=fields.variables(self.variables),
            headers=header_pairs(self.headers, "headers", RESERVED_HEADERS, HEADERS_MAX) + self._importance(),
            message_id=None if self.message_id is None else message_id(self.message_id, "message_id"),
        )
        _check_recipients(content)
        _check_words(content)
        return content, {file.digest: attachment.content for file, attachment in zip(stored, attachments, strict=True)}

    def _finished(self) -> tuple[Content, dict[str, bytes]]:
        """The content of a finished message: its own headers name the recipients where the email doesn't."""
        for name in _NOT_BESIDE_RAW:
            if getattr(self, name) not in (None, (), [], {}):
                raise InvalidEmail(name, "stands in the finished message itself; give `raw` or this, not both")
        raw = read_raw(self.raw)
        file = Attachment(raw.content)
        envelope = self._envelope()
        if not (envelope["to"] or envelope["cc"] or envelope["bcc"]):
            envelope |= raw.recipients()
        stored = StoredFile.of(file)
        content = Content(**envelope, sender=raw.sender, subject=raw.subject, raw=stored)
        _check_recipients(content)
        return content, {stored.digest: file.content}

    def _envelope(self) -> dict[str, Any]:
        """What both kinds have, but for their words."""
        return {
            "to": fields.addresses(self.to, "to"),
            "cc": fields.addresses(self.cc, "cc"),
            "bcc": fields.addresses(self.bcc, "bcc"),
            "envelope_sender": None
            if self.envelope_sender is None
            else fields.address(self.envelope_sender, "envelope_sender"),
            "tags": fields.tags(self.tags),
            "metadata": fields.metadata(self.metadata),
            "track_opens": fields.yes_or_no(self.track_opens, "track_opens"),
            "track_clicks": fields.yes_or_no(self.track_clicks, "track_clicks"),
            "options": fields.options(self.options),
        }

    def _importance(self) -> HeaderPairs:
        if self.importance is None:
            return ()
        if self.importance not in IMPORTANCE_HEADERS:
            raise InvalidEmail("importance", f"{self.importance!r} is neither 'high' nor 'low'")
        return IMPORTANCE_HEADERS[self.importance]


_NOT_BESIDE_RAW: Final = (
    "subject text html template variables alternatives attachments sender reply_to headers".split()
    + "message_id importance".split()
)


@dataclass(frozen=True, slots=True)
class CheckedEmail:
    """An email that passed every check. Times are seconds since 1970, UTC."""

    key: str
    type: str
    service: str | None
    campaign: str | None
    family: str | None
    content: Content
    stored: str  # the content's stored form
    send_at: float | None
    expires: float | None
    after: str | None
    fingerprint: str  # see `fingerprint`
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # the content's files, by their digest


def fingerprint(type_: str, service: str | None, campaign: str | None, after: str | None, stored: bytes) -> str:
    """Tells whether two emails under one key are the same: type, service, campaign, dependency and content.

    Not the times: a caller that tries again computes them anew, and means the same email. NUL is in none of the parts,
    and no campaign begins as the content does.
    """
    parts = (type_, service or "", after or "", *filter(None, [campaign]), "")
    return hashlib.sha256("\0".join(parts).encode() + stored).hexdigest()


def _check_lane(type_: str, service: str | None, campaign: str | None) -> None:
    if campaign and len(type_) + len(service or "") + len(campaign) > LANE_WORDS_CHARS_MAX:
        raise InvalidEmail("campaign", f"with type and service it has more than {LANE_WORDS_CHARS_MAX} characters")


def _alternatives(value: object) -> tuple[Alternative, ...]:
    if not value:
        return ()
    given = fields.several(value, "alternatives", Alternative, ALTERNATIVES_MAX)
    return tuple(item.checked(f"alternatives[{place}]") for place, item in enumerate(given))


def _attachments(value: object, alternatives: Sequence[Alternative]) -> tuple[Attachment, ...]:
    """The files, and each invitation as one too, unless the application gives it itself."""
    given = fields.several(value, "attachments", Attachment, ATTACHMENTS_MAX) if value else ()
    checked = [item.checked(f"attachments[{place}]") for place, item in enumerate(given)]
    shown = [item.content_id for item in checked if item.content_id]
    if twice := next((content_id for content_id in shown if shown.count(content_id) > 1), None):
        raise InvalidEmail("attachments", f"two of them have the content id {twice!r}")
    if not any(item.filename.lower().endswith(".ics") for item in checked):
        checked += [item.as_file() for item in alternatives if item.is_calendar]
    return tuple(checked)


def _check_recipients(content: Content) -> None:
    if not content.recipients:
        raise InvalidEmail("to", "no recipient")
    if len(content.recipients) > RECIPIENTS_MAX:
        raise InvalidEmail("to", f"{len(content.recipients)} recipients; at most {RECIPIENTS_MAX} in one email")


def _check_words(content: Content) -> None:
    written = content.text is not None or content.html is not None
    if content.template is not None and written:
        raise InvalidEmail("template", "give a template, or text and html, not both")
    if content.template is None and not written:
        raise InvalidEmail("text", "nothing to send: give text, html or a template")
    if content.template is None and content.subject is None:
        raise InvalidEmail("subject", "is missing (an empty subject is given as '')")
    if content.variables and content.template is None:
        raise InvalidEmail("variables", "are for a template, and there is none")
