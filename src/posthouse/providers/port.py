"""The port that every provider fills: one call for one send, judged; one look-up; and what it can carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from posthouse.address import Address
from posthouse.attachment import Alternative, Attachment
from posthouse.content import Content
from posthouse.core.outcome import LookUp, Verdict
from posthouse.core.policy import RouteFacts
from posthouse.header import HeaderPairs
from posthouse.providers.logs import OpenLog
from posthouse.providers.suppression_lists import OpenLists
from posthouse.values import value


@value
class OutgoingMessage:
    """One send, rendered: what a provider turns into a call. The same send gives the same message every time."""

    send_id: int
    idempotency_key: str  # the same on every call for this send; also our id in the provider's metadata
    sender: Address
    to: Sequence[Address]
    cc: Sequence[Address]
    bcc: Sequence[Address]
    reply_to: Sequence[Address]
    subject: str
    text: str | None
    html: str | None
    alternatives: Sequence[Alternative] = ()
    attachments: Sequence[Attachment] = ()
    raw: bytes | None = None  # a finished message, which goes out as it is; its words are not among the fields above
    headers: HeaderPairs = ()
    tags: Sequence[str] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    envelope_sender: Address | None = None  # where bounces go, if not to the route's own or the sender
    envelope_to: Sequence[str] = ()  # the recipients who still get a copy; empty: all of them
    message_id: str | None = None  # in angle brackets, where the application or an earlier send has set it
    date: float = 0.0  # of its first call, in seconds since 1970; the same on every call
    track_opens: bool | None = None  # None: as the provider's account says
    track_clicks: bool | None = None
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by the name of a route or a provider

    @property
    def recipients(self) -> list[Address]:
        """Everybody who gets a copy of this call, in the order to, cc, bcc."""
        everybody = [*self.to, *self.cc, *self.bcc]
        return [a for a in everybody if a.email in self.envelope_to] if self.envelope_to else everybody


class Provider(Protocol):
    """One configured route's way out.

    `send`, `send_together` and `look_up` never raise for what the network or the provider does: that is a verdict.
    What they raise is a fault in our code, and the worker treats it as an unknown outcome.
    """

    @property
    def facts(self) -> RouteFacts:
        """What the deciding functions need to know of the route."""

    def refusals(self, content: Content) -> list[str]:
        """Why this route can't carry `content`, one reason a line; empty when it can. Asked at enqueue."""

    async def send(self, message: OutgoingMessage) -> Verdict:
        """Makes one call. Returns within the route's connect and total timeouts."""

    async def send_together(self, messages: Sequence[OutgoingMessage]) -> Sequence[Verdict | None]:
        """Makes one call for several messages, at most `facts.batch_max`: what it means for each, in their order.

        None where it means nothing for a message, which was certainly not accepted: it could not go into the call, or
        the call was refused as a whole, for whichever of them. It is to be sent by itself, with a leave of its own.
        """

    async def look_up(self, message: OutgoingMessage) -> LookUp:
        """Asks the provider whether it has this send. Called only where `facts.can_look_up`."""

    async def health(self) -> Verdict | None:
        """Asks the provider's health URL, None where there is none. Never sends mail."""

    @property
    def log(self) -> OpenLog | None:
        """The provider's own log of what became of messages, None where it has none. To read it sends nothing."""

    @property
    def lists(self) -> OpenLists | None:
        """The provider's own suppression lists, None where they have no API."""

    def credential_changed(self) -> bool:
        """Whether what lets us in reads otherwise than what was refused last; said once for each change.

        Asked once a second while the route is stopped: cheap, and never shows what it read.
        """

    async def limit_connections(self, count: int) -> int:
        """From now on at most so many connections: idle ones beyond are closed. How many are open all the same.

        A provider that counts calls, not connections, has none between two of them: 0.
        """

    async def close(self) -> None:
        """Closes its connections."""


Json = dict[str, Any]
"""A decoded JSON object."""
