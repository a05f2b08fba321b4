"""The ground truth: what the sandbox accepted, when, how often and with what content, and every call made to it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from posthouse.sandbox.faults import CallKind, Fault
from posthouse.sandbox.news import News, NewsKind


class CallResult(StrEnum):
    """What became of one call, whatever its caller saw."""

    ACCEPTED = "accepted"  # a message was taken
    REPLAYED = "replayed"  # a known key: the earlier answer again, nothing was taken
    NOT_ACCEPTED = "not_accepted"  # a fault ended it before that
    ABANDONED = "abandoned"  # the caller was gone before a late acceptance
    KEY_REUSED = "key_reused"  # the key stands for other content
    KEY_IN_PROGRESS = "key_in_progress"  # the key's first call was still running
    INVALID = "invalid"  # the request made no sense
    UNAUTHORISED = "unauthorised"  # the bearer token was wrong
    TOO_MANY = "too_many"  # it did not fit into the window of the rate limit
    FOUND = "found"  # a look-up had an answer
    MISSING = "missing"  # a look-up had none
    HEALTHY = "healthy"  # a health call was answered
    PASSED = "passed"  # a step of a conversation went on, with a fault that let it


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call. `at` is when it arrived, in seconds since 1970."""

    at: float
    kind: CallKind
    result: CallResult
    key: str | None = None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class CaughtFile:
    """An attachment, with its bytes as they were given."""

    content: bytes
    filename: str = ""
    content_type: str = ""
    content_id: str = ""  # without angle brackets
    inline: bool = False


@dataclass(frozen=True, slots=True)
class Acceptance:
    """One message taken. More than one under the same key are duplicates."""

    message_id: str
    key: str | None  # the idempotency key, else the send's id in the metadata or in the message's headers
    at: float  # seconds since 1970
    recipients: tuple[str, ...]  # bare addresses, casefolded, in the order to, cc, bcc
    subject: str
    content_hash: str  # of the request's bytes
    body: Mapping[str, Any] | None  # the decoded request but for its files; None where there is none, or not any more
    files: tuple[CaughtFile, ...] = ()  # of the decoded request
    raw: bytes | None = None  # the message as it came over SMTP or finished; None where it didn't, or not any more
    envelope_sender: str | None = None  # where it was given; "" is the null sender
    size: int = 0  # of what came, in octets
    provider: str = ""  # whose form the call had; "" where it came over SMTP
    news: tuple[News, ...] = ()  # what has become of it, and what will

    def happened_at(self, news: News) -> float:
        """When a piece of its news happened, or will, in seconds since 1970."""
        return self.at + news.after_s

    def news_by(self, now: float, provider: str) -> list[News]:
        """What has become of it so far, for the log of this provider; nothing in that of another one."""
        return [one for one in self.news if self.provider == provider and self.happened_at(one) <= now]


class Ledger:
    """In memory, in the order of acceptance.

    `kept_max` bounds what is big: how many of the newest bodies and of the newest calls are kept; `kept_octets_max`
    how much these bodies are together, the newest always being kept. The facts of every acceptance and all counts
    stay until `clear`.
    """

    def __init__(self, *, kept_max: int | None = None, kept_octets_max: int | None = None) -> None:
        self._kept_max = kept_max
        self._kept_octets_max = kept_octets_max
        self.clear()

    def clear(self) -> None:
        """Forgets everything."""
        self._acceptances: list[Acceptance] = []
        self._kept_from = 0  # the place of the oldest one whose body is kept
        self._kept_octets = 0
        self._by_id: dict[str, int] = {}
        self._by_key: dict[str, list[int]] = {}
        self._by_recipient: dict[str, list[int]] = {}
        self._calls: deque[CallRecord] = deque(maxlen=self._kept_max)
        self._results: Counter[CallResult] = Counter()
        self._faults: Counter[Fault] = Counter()
        self._duplicates = 0

    def accept(self, acceptance: Acceptance) -> None:
        """Enters a message that was taken."""
        place = len(self._acceptances)
        self._acceptances.append(acceptance)
        self._by_id[acceptance.message_id] = place
        if acceptance.key is not None:
            places = self._by_key.setdefault(acceptance.key, [])
            self._duplicates += bool(places)
            places.append(place)
        for recipient in dict.fromkeys(acceptance.recipients):
            self._by_recipient.setdefault(recipient, []).append(place)
        self._kept_octets += acceptance.size
        while self._kept_from < place and self._keeps_too_much():
            stale = self._acceptances[self._kept_from]
            self._acceptances[self._kept_from] = replace(stale, body=None, files=(), raw=None)
            self._kept_octets -= stale.size
            self._kept_from += 1

    def _keeps_too_much(self) -> bool:
        count = len(self._acceptances) - self._kept_from
        too_many = self._kept_max is not None and count > self._kept_max
        return too_many or (self._kept_octets_max is not None and self._kept_octets > self._kept_octets_max)

    def add_news(self, message_id: str, kind: NewsKind, recipient: str, now: float) -> Acceptance:
        """Something more has become of a message now. Raises LookupError where there is no such message."""
        place = self._by_id[message_id]
        one = self._acceptances[place]
        added = News(len(one.news) + 1, kind, recipient, now - one.at)
        self._acceptances[place] = replace(one, news=(*one.news, added))
        return self._acceptances[place]

    def record_call(self, record: CallRecord) -> None:
        """Enters a call whose result is known."""
        self._calls.append(record)
        self._results[record.result] += 1
        if record.fault is not None:
            self._faults[record.fault] += 1

    @property
    def acceptances(self) -> Sequence[Acceptance]:
        """Everything accepted, oldest first."""
        return self._acceptances

    @property
    def calls(self) -> Sequence[CallRecord]:
        """The calls that are kept, oldest first."""
        return self._calls

    @property
    def results(self) -> Mapping[CallResult, int]:
        """How many calls ended in which way."""
        return self._results

    @property
    def faults(self) -> Mapping[Fault, int]:
        """How many calls each fault has hit."""
        return self._faults

    def by_id(self, message_id: str) -> Acceptance | None:
        """The message with the id that the caller was told."""
        place = self._by_id.get(message_id)
        return None if place is None else self._acceptances[place]

    def by_key(self, key: str) -> list[Acceptance]:
        """What was accepted under `key`: one, or duplicates."""
        return [self._acceptances[place] for place in self._by_key.get(key, ())]

    def by_recipient(self, address: str) -> list[Acceptance]:
        """What was accepted for `address`, in any case of its letters."""
        return [self._acceptances[place] for place in self._by_recipient.get(address.casefold(), ())]

    def times_accepted(self) -> dict[str, int]:
        """How often each key was accepted. Messages without a key are not counted."""
        return {key: len(places) for key, places in self._by_key.items()}

    @property
    def duplicates(self) -> int:
        """How many acceptances were one too many for their key."""
        return self._duplicates

    @property
    def distinct_keys(self) -> int:
        """How many keys were accepted at least once."""
        return len(self._by_key)
