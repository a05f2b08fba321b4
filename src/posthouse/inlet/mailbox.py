"""A mailbox that bounces come to, over IMAP (RFC 3501): each message is written down before it is marked as read.

Nothing is ever deleted but what was copied elsewhere before, and no message but the one that was read is touched.
"""

from __future__ import annotations

import imaplib
import logging
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from posthouse.config import MailboxSettings
from posthouse.errors import ConfigError, MailboxUnavailable, PosthouseError
from posthouse.inlet.messages import Inlet, Taken
from posthouse.returned.parts import READ_BYTES_MAX

log = logging.getLogger("posthouse.inlet")

_PORTS: Final = {"tls": 993, "starttls": 143}


def read_mailbox(place: str, settings: MailboxSettings, inlet: Inlet) -> Iterator[Taken]:
    """Takes in what is unread, one by one; a message that we stumble over stays unread, and holds up no other.

    Raises ConfigError, MailboxUnavailable, DatabaseUnavailable.
    """
    left = 0
    with _opened(place, settings) as mailbox:
        for uid in mailbox.unread():
            content = mailbox.content(uid)
            if content is None:  # somebody else has taken it away
                continue
            try:
                taken = inlet.take(content, route=settings.route)
            except PosthouseError:
                raise
            except Exception:
                log.exception("%s: the message with the UID %s could not be kept, and stays unread", place, uid)
                left += 1
                continue
            mailbox.done(uid, understood=not taken.quarantined)
            yield taken
    if left:
        raise MailboxUnavailable(f"{place}: {left} unread for a fault in Posthouse: see the log")


class _Mailbox:
    """A folder that is open for writing."""

    def __init__(self, connection: imaplib.IMAP4, settings: MailboxSettings) -> None:
        self._connection = connection
        self._can = frozenset(_checked(connection.capability())[-1].upper().split())
        self._move_to = settings.move_to
        if self._move_to is not None:  # one that isn't there is found out before anything is done
            _checked(connection.status(_quoted(self._move_to), "(MESSAGES)"))
        _checked(connection.select(_quoted(settings.folder)))

    def unread(self) -> list[str]:
        """The UIDs of what is unread."""
        found = self._uid("SEARCH", "UNSEEN")
        return found[0].decode().split() if found and found[0] else []

    def content(self, uid: str) -> bytes | None:
        """The beginning of a message, which stays unread; None where it is gone."""
        answer = self._uid("FETCH", uid, f"(BODY.PEEK[]<0.{READ_BYTES_MAX}>)")
        return next((part[1] for part in answer if isinstance(part, tuple)), None)

    def done(self, uid: str, *, understood: bool) -> None:
        """Marks it as read, and moves it where that is asked for."""
        self._uid("STORE", uid, "+FLAGS.SILENT", r"(\Seen)")
        if self._move_to is None or not understood:
            return
        if b"MOVE" in self._can:  # RFC 6851
            self._uid("MOVE", uid, _quoted(self._move_to))
            return
        self._uid("COPY", uid, _quoted(self._move_to))
        self._uid("STORE", uid, "+FLAGS.SILENT", r"(\Deleted)")
        if b"UIDPLUS" in self._can:  # RFC 4315; without it, EXPUNGE would take what others have marked as well
            self._uid("EXPUNGE", uid)

    def _uid(self, *command: str) -> list[Any]:
        return _checked(self._connection.uid(*command))


@contextmanager
def _opened(place: str, settings: MailboxSettings) -> Iterator[_Mailbox]:
    """The folder, let in. Raises ConfigError and MailboxUnavailable."""
    password = _password(place, settings)
    try:
        connection = _connected(settings)
        try:
            connection.authenticate("PLAIN", lambda _: f"\0{settings.user}\0{password}".encode())
            yield _Mailbox(connection, settings)
        finally:
            with suppress(imaplib.IMAP4.error, OSError):
                connection.logout()
    except (imaplib.IMAP4.error, OSError) as error:
        said = re.sub(r"\s+", " ", str(error).replace(password, "***") if password else str(error))
        raise MailboxUnavailable(f"{place}: {settings.host} can't be read: {said}") from None


def _connected(settings: MailboxSettings) -> imaplib.IMAP4:
    port = settings.port or _PORTS[settings.security]
    tls = ssl.create_default_context(cafile=settings.ca_file)
    if settings.security == "tls":
        return imaplib.IMAP4_SSL(settings.host, port, ssl_context=tls, timeout=settings.timeout)
    connection = imaplib.IMAP4(settings.host, port, timeout=settings.timeout)
    try:
        connection.starttls(tls)
    except BaseException:
        connection.shutdown()
        raise
    return connection


def _password(place: str, settings: MailboxSettings) -> str:
    try:
        return settings.password.reveal()
    except ConfigError as error:
        raise ConfigError(f"{place}.password", error.reason) from None


def _checked(answer: tuple[str, list[Any]]) -> list[Any]:
    """What the server says to a command. Raises IMAP4.error where that is no."""
    result, said = answer
    if result != "OK":
        words = b" ".join(part for part in said if isinstance(part, bytes))
        raise imaplib.IMAP4.error(words.decode("utf-8", "replace") or result)
    return said


def _quoted(folder: str) -> str:
    return '"' + folder.replace("\\", r"\\").replace('"', r"\"") + '"'
