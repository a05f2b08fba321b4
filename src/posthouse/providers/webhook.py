"""The port of webhooks: how a provider's calls to us are verified, and what they tell. Data and pure functions.

A call is verified over its bytes as they came, before anything of it is read. `docs/ADDING_A_PROVIDER.md` says how
the webhooks of one more provider are added.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from posthouse.core.events import Cause, Event, EventKind
from posthouse.core.http_rules import read_json
from posthouse.setting_values import Secret

NEEDS_CRYPTOGRAPHY: Final = "needs the package cryptography: pip install 'posthouse[webhooks]'"
"""Why a secret can't be read without that extra."""

TRY_AGAIN: Final = 503
"""What most providers take for: not now, send it again."""


@dataclass(frozen=True, slots=True)
class WebhookCall:
    """One call of a provider, as it came."""

    headers: Mapping[str, str]  # by their names in small letters
    body: bytes


@dataclass(frozen=True, slots=True)
class Genuine:
    """It comes from somebody who knows a secret."""

    token: str | None = None  # where the signature doesn't cover the body: this may come with one body alone
    visit: str | None = None  # an address that the provider wants called before it tells anything


@dataclass(frozen=True, slots=True)
class Refused:
    """Nobody can say whom it comes from. `reason` names what is wrong with it, and shows no secret."""

    reason: str


@dataclass(frozen=True, slots=True)
class CertificateNeeded:
    """That can be said with the certificate at an address; `decide` gets it in PEM."""

    url: str
    decide: Callable[[bytes], Genuine | Refused]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a provider's own word for something stands for."""

    kind: EventKind
    cause: Cause = Cause.NONE
    hard: bool = False


class Unreadable(ValueError):
    """An item that is no news as its provider's documentation has it. The text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """What tells the webhooks of one provider from those of another, as one route has them.

    `verify` gets the call, the keys that count now (several while they are rotated), and the time in seconds since
    1970. `read` gets one item of a genuine call and the call's headers: it yields the item's events, none for what is
    no news of a message, and raises Unreadable.
    """

    setting: str = "webhook_secrets"  # where the secrets stand
    secrets: Sequence[Secret] = field(repr=False)
    key: Callable[[str], Any]  # a secret as `verify` takes it; raises ConfigError
    verify: Callable[[WebhookCall, Sequence[Any], float], Genuine | Refused | CertificateNeeded]
    read: Callable[[Any, Mapping[str, str]], Iterable[Event]]
    again: int = TRY_AGAIN  # the status that makes the provider send a call again
    challenge: str = "Signature"  # what one that is not let in is asked for (RFC 9110 section 11.6.1)


@dataclass(frozen=True, slots=True)
class Unread:
    """An item that is kept for a person."""

    item: str  # as it came
    reason: str


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything that a call told."""

    events: tuple[Event, ...] = ()
    unread: tuple[Unread, ...] = ()

    def unread_by_reason(self) -> dict[str, dict[str, str]]:
        """What could not be read, by the reason and then by its digest."""
        found: dict[str, dict[str, str]] = defaultdict(dict)
        for one in self.unread:
            found[one.reason][hashlib.sha256(one.item.encode("utf-8", "replace")).hexdigest()] = one.item
        return found


def reading(webhook: Webhook, call: WebhookCall) -> Reading:
    """What a genuine call tells. One bad item spoils none beside it. Never raises for what came."""
    text = call.body.decode("utf-8", "replace")
    document = read_json(text)
    if not isinstance(document, dict | list):
        return Reading(unread=(Unread(text, "the body is no JSON"),))
    items = document if isinstance(document, list) else [document]
    return reading_of(items, lambda item: webhook.read(item, call.headers))


def reading_of(items: Iterable[Any], read: Callable[[Any], Iterable[Event]]) -> Reading:
    """What items tell, each read by itself."""
    events: list[Event] = []
    unread: list[Unread] = []
    for item in items:
        try:
            events += _events(item, read)
        except Unreadable as error:
            unread.append(Unread(_text(item), str(error)))
    return Reading(tuple(events), tuple(unread))


def _events(item: Any, read: Callable[[Any], Iterable[Event]]) -> Iterator[Event]:
    if not isinstance(item, dict):
        raise Unreadable("it is no object")
    for event in read(item):
        if not (event.recipient or event.key or event.message_id):
            raise Unreadable("it names neither a message nor a recipient")
        yield _explained(event)


def _explained(event: Event) -> Event:
    """Where the provider says little of why it failed, the receiver's words say it."""
    from posthouse.core.causes import closer  # many rules, which nobody needs to send

    return replace(event, cause=closer(event.cause, event.code, event.text))


def _text(item: Any) -> str:
    try:
        return json.dumps(item)
    except RecursionError:  # it can be read a little deeper than it can be written
        return "nested too deep to be kept"
