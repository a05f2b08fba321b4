"""Which caps a configuration sets, and what they say about the backlog as it was counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from posthouse.config import Config
from posthouse.core.caps import Admission, Cap, admit
from posthouse.core.lanes import ORDER, type_of
from posthouse.core.policy import Priority

OUTBOX: Final = "outbox.max_pending"

Gate = tuple[str, Priority]
"""A cap, by its setting's name, for mail of one priority."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is pending, counted no further than the caps need it."""

    priorities: Mapping[Priority, int] = field(default_factory=dict)
    types: Mapping[str, int] = field(default_factory=dict)  # those that have a cap of their own

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.priorities.values())


@dataclass(frozen=True, slots=True)
class Full:
    """A cap that has no room for mail of one priority."""

    setting: str
    cap: Cap
    pending: int
    priority: Priority
    count: int = 1  # how many more were asked for

    @property
    def gate(self) -> Gate:
        """What is closed."""
        return self.setting, self.priority


@dataclass(frozen=True, slots=True)
class CapPolicy:
    """All caps of a configuration. False where there is none."""

    outbox: Cap | None = None
    types: Mapping[str, Cap] = field(default_factory=dict)
    priorities: Mapping[str, Priority] = field(default_factory=dict)  # of every type

    def __bool__(self) -> bool:
        return self.outbox is not None or bool(self.types)

    def priority(self, type_: str) -> Priority:
        """A type's priority; of one that is not configured here, normal."""
        return self.priorities.get(type_, Priority.NORMAL)

    def applies(self, type_: str) -> bool:
        """Whether mail of this type can be refused."""
        return self.priority(type_) is not Priority.URGENT and (self.outbox is not None or type_ in self.types)

    def refusal(
        self, backlog: Backlog, wanted: Mapping[str, int], refusing: AbstractSet[Gate] = frozenset()
    ) -> Full | None:
        """What has no room for so many more of these types, all together; None where they are accepted.

        `refusing`: the gates that were closed the last time.
        """
        for type_, count in wanted.items():
            if (cap := self.types.get(type_)) is not None:
                full = Full(setting_of(type_), cap, backlog.types.get(type_, 0), self.priority(type_), count)
                if _refuses(full, {full.priority: full.pending}, refusing):
                    return full
        if self.outbox is None:
            return None
        pending = dict(backlog.priorities)
        for priority in ORDER:
            count = sum(n for type_, n in wanted.items() if self.priority(type_) is priority)
            full = Full(OUTBOX, self.outbox, sum(pending.values()), priority, count)
            if count and _refuses(full, pending, refusing):
                return full
            pending[priority] = pending.get(priority, 0) + count
        return None

    def grown(self, backlog: Backlog, added: Mapping[str, int]) -> Backlog:
        """The backlog with so many more of these types."""
        priorities, types = dict(backlog.priorities), dict(backlog.types)
        for type_, count in added.items():
            priority = self.priority(type_)
            priorities[priority] = priorities.get(priority, 0) + count
            if type_ in self.types:
                types[type_] = types.get(type_, 0) + count
        return Backlog(priorities, types)

    def gates(self, types: Iterable[str]) -> set[Gate]:
        """What mail of these types has to pass."""
        passed = {(OUTBOX, self.priority(type_)) for type_ in types}
        return passed | {(setting_of(type_), self.priority(type_)) for type_ in types}

    def full(self, backlog: Backlog) -> list[Full]:
        """Every cap that refuses somebody now; of the outbox, the highest priority that is refused."""
        own = [
            Full(setting_of(type_), cap, backlog.types.get(type_, 0), self.priority(type_))
            for type_, cap in self.types.items()
        ]
        found = [full for full in own if _refuses(full, {full.priority: full.pending})]
        if self.outbox is not None:
            shared = [Full(OUTBOX, self.outbox, backlog.total, priority) for priority in ORDER]
            found += [full for full in shared if _refuses(full, backlog.priorities)][:1]
        return found

    def count(self, lanes: Iterable[tuple[str, int]]) -> Backlog:
        """The backlog of these lanes, of each its name and what is pending there."""
        added: dict[str, int] = {}
        for lane, pending in lanes:
            added[type_of(lane)] = added.get(type_of(lane), 0) + pending
        return self.grown(Backlog(), added)

    def lanes_of(self, lanes: Sequence[str], priority: Priority) -> list[str]:
        """Those of one priority."""
        return [lane for lane in lanes if self.priority(type_of(lane)) is priority]


def setting_of(type_: str) -> str:
    """The name of a type's own cap."""
    return f"types.{type_}.max_pending"


def refused_words(full: Full) -> str:
    """Which mail a full cap refuses, in words that go on with "refused"."""
    if full.setting != OUTBOX:
        return "more of it is"
    return "bulk mail is" if full.priority is Priority.BULK else "normal and bulk mail are"


def _refuses(full: Full, pending: Mapping[Priority, int], refusing: AbstractSet[Gate] = frozenset()) -> bool:
    admission = admit(full.cap, pending, full.priority, count=full.count, refusing=full.gate in refusing)
    return admission is Admission.REFUSE


def cap_policy(config: Config) -> CapPolicy:
    """The caps that a configuration sets."""
    whole = config.outbox
    return CapPolicy(
        outbox=None if whole.max_pending is None else Cap(whole.max_pending, sheds=whole.when_full == "shed"),
        types={
            name: Cap(settings.max_pending, shared=False)
            for name, settings in config.types.items()
            if settings.max_pending is not None
        },
        priorities={name: Priority(settings.priority) for name, settings in config.types.items()},
    )
