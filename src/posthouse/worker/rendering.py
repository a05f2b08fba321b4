"""Turning a stored send into the message that a provider gets: templates, defaults, our id."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, TemplateNotFound, select_autoescape

from posthouse.address import Address
from posthouse.content import Content
from posthouse.errors import InvalidEmail
from posthouse.providers.port import OutgoingMessage
from posthouse.raw import SUBJECT_CHARS_MAX
from posthouse.text import refuse_control
from posthouse.unsubscribe import UnsubscribeLinks

NO_FILES: Final[Mapping[str, bytes]] = {}


class CannotRender(Exception):
    """This send can't become a message, whatever is tried; the text says why."""


class Renderer:
    """Renders templates from one folder: `NAME.subject.txt`, `NAME.txt`, `NAME.html`; the latter two are optional
    but one. Undefined variables are errors, and what goes into HTML is escaped. `links` go into what has them."""

    def __init__(self, folder: Path, sender: Address | None, links: UnsubscribeLinks | None = None) -> None:
        self._sender = sender
        self._links = links
        self._environment = Environment(
            loader=FileSystemLoader(folder),
            undefined=StrictUndefined,
            autoescape=select_autoescape(enabled_extensions=("html",), default=False),
            keep_trailing_newline=True,
        )

    def message(
        self, send_id: int, idempotency_key: str, content: Content, date: float, files: Mapping[str, bytes] = NO_FILES
    ) -> OutgoingMessage:
        """The message for one send, the same each time; `files` are the content's, by digest. Raises CannotRender."""
        sender = content.sender or self._sender
        if sender is None:
            raise CannotRender("it names no sender, and the configuration has none either")
        subject, text, html = content.subject, content.text, content.html
        if content.template is not None:
            subject, text, html = self._render(content.template, _variables(content), content.subject)
        return OutgoingMessage(
            send_id=send_id,
            idempotency_key=idempotency_key,
            sender=sender,
            to=content.to,
            cc=content.cc,
            bcc=content.bcc,
            reply_to=content.reply_to,
            subject=subject or "",
            text=text,
            html=html,
            alternatives=content.alternatives,
            attachments=[file.with_bytes(files[file.digest]) for file in content.attachments],
            raw=None if content.raw is None else files[content.raw.digest],
            headers=content.headers,
            tags=content.tags,
            metadata=content.metadata,
            envelope_sender=content.envelope_sender,
            envelope_to=content.envelope_to,
            message_id=content.message_id,
            date=date,
            track_opens=content.track_opens,
            track_clicks=content.track_clicks,
            options=content.options,
        )

    def content(self, body: str | None, type_: str, idempotency_key: str) -> Content:
        """The stored content of one send, with the sender and the link that it goes out with. Raises CannotRender."""
        if body is None:
            raise CannotRender("its content is no longer kept")
        try:
            content = Content.from_json(body, self._sender)
        except ValueError as error:
            raise CannotRender(f"its content can't be read: {error}") from error
        return content if self._links is None else self._links.added(content, type_, idempotency_key)

    def _render(
        self, name: str, variables: Mapping[str, Any], given_subject: str | None
    ) -> tuple[str, str | None, str | None]:
        text = self._part(f"{name}.txt", variables)
        html = self._part(f"{name}.html", variables)
        if text is None and html is None:
            raise CannotRender(f"template {name!r}: there is neither {name}.txt nor {name}.html")
        if given_subject is not None:
            return given_subject, text, html
        subject = self._part(f"{name}.subject.txt", variables)
        if subject is None:
            raise CannotRender(f"template {name!r}: there is no {name}.subject.txt, and the email gives no subject")
        return _one_line(name, subject), text, html

    def _part(self, file: str, variables: Mapping[str, Any]) -> str | None:
        try:
            template = self._environment.get_template(file)
        except TemplateNotFound as error:
            if error.name == file:
                return None
            raise CannotRender(f"template {file}: it includes {error.name}, which does not exist") from error
        except (TemplateError, UnicodeDecodeError, OSError) as error:
            raise CannotRender(f"template {file}: {error}") from error
        try:
            return template.render(variables)
        except Exception as error:  # whatever a template's expressions may raise
            raise CannotRender(f"template {file}: {type(error).__name__}: {error}") from error


def _variables(content: Content) -> Mapping[str, Any]:
    """What the template is given: beside the variables, what goes out together as `items`, and its `count`."""
    items = content.items or (content.variables,)
    together = {"items": items, "count": len(items)}
    # One that goes out alone may be of a type that gathers nothing and has such variables of its own.
    return {**content.variables, **together} if content.items else {**together, **content.variables}


def _one_line(name: str, rendered: str) -> str:
    subject = " ".join(rendered.split())
    try:
        refuse_control(subject, f"template {name}.subject.txt")
    except InvalidEmail as error:
        raise CannotRender(str(error)) from error
    if len(subject) > SUBJECT_CHARS_MAX:
        raise CannotRender(f"template {name}.subject.txt: {len(subject)} characters; at most {SUBJECT_CHARS_MAX}")
    return subject
