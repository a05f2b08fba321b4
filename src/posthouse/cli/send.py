"""`posthouse send`: asks for one email from the shell."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer

from posthouse.app import Outbox
from posthouse.attachment import Attachment
from posthouse.cli.invocation import Invocation
from posthouse.cli.moments import read_moment
from posthouse.cli.output import Answer
from posthouse.cli.story import command
from posthouse.email import Email
from posthouse.errors import InvalidEmail

STDIN: Final = "-"
_KEY_DIGITS: Final = 12

Texts = list[str] | None


def send(
    call: Invocation,
    to: Annotated[Texts, typer.Option(help="A recipient: ada@example.com or 'Ada <ada@example.com>'.")] = None,
    subject: Annotated[str | None, typer.Option(help="The subject.")] = None,
    text: Annotated[str | None, typer.Option(help="The text, or - to read it from standard input.")] = None,
    html: Annotated[Path | None, typer.Option(help="A file with the HTML.", metavar="FILE")] = None,
    attach: Annotated[Texts, typer.Option(help="A file that goes along.", metavar="FILE")] = None,
    inline: Annotated[Texts, typer.Option(help="An image that the HTML shows.", metavar="CID=FILE")] = None,
    eml: Annotated[str | None, typer.Option(help="A finished message instead, or -.", metavar="FILE")] = None,
    template: Annotated[str | None, typer.Option(help="A template instead of subject, text and html.")] = None,
    var: Annotated[Texts, typer.Option(help="A variable of the template.", metavar="NAME=VALUE")] = None,
    type_: Annotated[str, typer.Option("--type", help="The message type.")] = "default",
    key: Annotated[str | None, typer.Option(help="The dedupe key. Default: one that is new.")] = None,
    cc: Annotated[Texts, typer.Option(help="A recipient of a copy.")] = None,
    bcc: Annotated[Texts, typer.Option(help="A recipient of a copy whom nobody else sees.")] = None,
    from_: Annotated[str | None, typer.Option("--from", help="The sender instead of the configured one.")] = None,
    send_at: Annotated[str | None, typer.Option(help="Not before: 2026-08-01T09:00+02:00, or 10m from now.")] = None,
    expires: Annotated[str | None, typer.Option(help="Not after; written alike.")] = None,
    after: Annotated[str | None, typer.Option(help="Only once the email with this key is accepted.")] = None,
    campaign: Annotated[str | None, typer.Option(help="The campaign that it belongs to.")] = None,
    family: Annotated[str | None, typer.Option(help="Its type's cooldown stands between those of one.")] = None,
    tag: Annotated[Texts, typer.Option(help="A tag.")] = None,
    meta: Annotated[Texts, typer.Option(help="Metadata.", metavar="NAME=VALUE")] = None,
) -> Answer:
    """Ask for one email; a worker sends it.

    The same key never sends a second one, however often this is run. A finished message goes to those whom its
    headers name, unless --to names others. Options for recipients, files, variables, tags and metadata may be given
    several times.
    """
    app, now = call.app, call.app.clock()
    email = Email(
        key=key or f"shell-{app.new_key()[:_KEY_DIGITS]}",
        to=to or (),
        cc=cc or (),
        bcc=bcc or (),
        sender=from_,
        type=type_,
        subject=subject,
        text=_stdin() if text == STDIN else text,
        html=None if html is None else _file(html),
        attachments=[*map(Attachment.from_file, attach or ()), *map(_inline, inline or ())],
        raw=None if eml is None else _finished(eml),
        template=template,
        variables=_pairs(var or (), "variables"),
        tags=tag or (),
        metadata=_pairs(meta or (), "metadata"),
        send_at=None if send_at is None else read_moment(send_at, "send_at", now),
        expires=None if expires is None else read_moment(expires, "expires", now),
        after=after,
        campaign=campaign,
        family=family,
    )
    outbox = Outbox(app.config)
    with app.database.write() as connection:
        stored = outbox.enqueue(connection, email)
    said = "is written down; a worker sends it" if stored.created else "was asked for before; nothing was changed"
    follow = command("show", stored.key)
    document = {"id": stored.id, "key": stored.key, "created": stored.created}
    return Answer(document, [f"{stored.key} (id {stored.id}) {said}.", f"  follow it with: {follow}"])


def _stdin() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise InvalidEmail("text", "standard input is not UTF-8 text") from None


def _file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidEmail("html", f"{path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidEmail("html", f"{path} is not UTF-8 text") from None


def _finished(path: str) -> bytes:
    if path == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidEmail("raw", f"{path} can't be read: {error.strerror}") from None


def _inline(given: str) -> Attachment:
    content_id, equals, path = given.partition("=")
    if not equals or not content_id:
        raise InvalidEmail("attachments", f"{given!r} is not of the form CID=FILE")
    return Attachment.from_file(path, content_id=content_id)


def _pairs(given: Iterable[str], field: str) -> dict[str, str]:
    pairs = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidEmail(field, f"{pair!r} is not of the form NAME=VALUE")
        if name in pairs:
            raise InvalidEmail(field, f"{name} is given twice")
        pairs[name] = value
    return pairs
