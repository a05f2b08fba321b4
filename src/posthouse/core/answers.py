"""What an HTTP answer is to the rules, and what a rule is: data with examples.

A rule names the answers it decides and carries at least one that it must match and one that it must not. The first
rule that matches decides. `rule_faults` finds what a list of rules has wrong: public rule files carry dead and
shadowed rules that nobody noticed for years.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol, TypeVar

from posthouse.core.outcome import Outcome, Subject, Verdict
from posthouse.values import value

_HTML = re.compile(r"\s*<(?:!doctype\s+html|!--|(?:html|head|title|body|center|h1)\b)", re.IGNORECASE)
_FIRST = re.compile(r"\S")


class Kind(StrEnum):
    """What a body is, judged by its beginning: content types lie too often."""

    JSON = "json"  # begins like an object or a list, complete or not
    HTML = "html"  # a page, from a proxy or a web site rather than from an API
    EMPTY = "empty"
    TEXT = "text"  # anything else


class FailurePhase(StrEnum):
    """How far a request without an answer had come."""

    CONNECT = "connect"  # DNS, TCP, TLS or the wait for a free connection: nothing was sent
    EXCHANGE = "exchange"  # some or all of the request had left: it may have been acted upon


@value
class Answer:
    """A status line that arrived, its headers (names in lower case), and the beginning of its body."""

    status: int
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    complete: bool = True  # False: the body was cut off, or longer than was read

    @property
    def kind(self) -> Kind:
        """What its body is."""
        found = _FIRST.search(self.text)
        if found is None:
            return Kind.EMPTY
        if found.group() in "{[":
            return Kind.JSON
        return Kind.HTML if _HTML.match(self.text) else Kind.TEXT


def said(words: str) -> re.Pattern[str]:
    """A pattern for the words of a body, in any case."""
    return re.compile(words, re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Decides the answers with one of `statuses` that fit every condition it has."""

    name: str
    statuses: Set[int]
    kinds: Set[Kind] = frozenset()  # empty: any
    says: re.Pattern[str] | None = None  # found in the body
    header: tuple[str, re.Pattern[str]] | None = None  # a header's name in lower case, and what its value has
    outcome: Outcome
    maybe_accepted: bool = False
    spends_attempt: bool = True
    subject: Subject = Subject.MESSAGE
    source: str  # where the rule comes from
    matches: tuple[Answer, ...]
    not_matches: tuple[Answer, ...]

    def __post_init__(self) -> None:
        Verdict(self.outcome, self.maybe_accepted)  # raises where the two contradict each other

    def covers(self, answer: Answer) -> bool:
        """Whether every condition fits, whatever earlier rules say."""
        if answer.status not in self.statuses:
            return False
        if self.kinds and answer.kind not in self.kinds:
            return False
        if self.says is not None and not self.says.search(answer.text):
            return False
        return self.header is None or bool(self.header[1].search(answer.headers.get(self.header[0], "")))


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRule:
    """Decides failures without an answer: those of one phase with one of `codes` (empty: any)."""

    name: str
    phase: FailurePhase
    codes: Set[str] = frozenset()
    outcome: Outcome
    maybe_accepted: bool = False
    spends_attempt: bool = True
    subject: Subject = Subject.ROUTE
    source: str

    def __post_init__(self) -> None:
        Verdict(self.outcome, self.maybe_accepted)

    def covers(self, phase: str, code: str) -> bool:
        """Whether phase and code fit."""
        return phase == self.phase and (not self.codes or code in self.codes)


class Decider(Protocol):
    """What `first_match` and `rule_faults` need of a rule, whatever the protocol that it judges."""

    @property
    def name(self) -> str: ...

    @property
    def matches(self) -> tuple[Any, ...]: ...

    @property
    def not_matches(self) -> tuple[Any, ...]: ...

    def covers(self, answer: Any, /) -> bool: ...


AnyRule = TypeVar("AnyRule", bound=Decider)


def first_match(answer: object, rules: Sequence[AnyRule]) -> AnyRule | None:
    """The rule that decides, or None when none does."""
    return next((rule for rule in rules if rule.covers(answer)), None)


EVERY_STATUS: Final = frozenset(range(1000))


def rule_faults(rules: Sequence[Decider]) -> list[str]:
    """What is wrong with `rules` as an ordered list; empty when nothing is."""
    faults = [f"{name!r} is the name of several rules" for name in _repeated([rule.name for rule in rules])]
    for rule in rules:
        if not rule.matches or not rule.not_matches:
            faults.append(f"{rule.name!r} needs an answer that it matches and one that it doesn't")
        for answer in rule.matches:
            decider = first_match(answer, rules)
            if not rule.covers(answer):
                faults.append(f"{rule.name!r} is dead: it doesn't match its own {answer}")
            elif decider is not rule:
                faults.append(f"{rule.name!r} is shadowed by {decider.name if decider else None!r} for {answer}")
        faults += [f"{rule.name!r} matches what it must not: {a}" for a in rule.not_matches if rule.covers(a)]
    return faults


def _repeated(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
