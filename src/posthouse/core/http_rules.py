"""Judges what an HTTP call brought: an answer or a failure in, a Verdict out.

The rules themselves stand in `core.http_table`. What goes into a verdict's text may be shown to anybody who looks
at a send, so secrets are taken out here, and what no database stores.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from posthouse.core.answers import EVERY_STATUS, Answer, FailureRule, Kind, Rule, first_match
from posthouse.core.http_table import FAILURE_RULES, RULES
from posthouse.core.outcome import Outcome, Verdict
from posthouse.core.rate_headers import full_for_s, reset_after_s
from posthouse.core.retry import parse_retry_after

JUDGED_CHARS_MAX: Final = 8192
"""The beginning of a body is what rules read."""

TEXT_CHARS_MAX: Final = 300
RAW_CHARS_MAX: Final = 2000
ID_CHARS_MAX: Final = 255
SECRET_CHARS_MIN: Final = 4  # shorter ones would blot out half of every text

_REQUEST_ID_HEADERS: Final = ("x-request-id", "x-amzn-requestid", "request-id", "x-correlation-id", "cf-ray")

_MESSAGE_MEMBERS: Final = "message error_message errormessage detail description error errors reason title name".split()

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
_SPACE = re.compile(r"\s+")
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_TRY_AGAIN = re.compile(r"(?:try|retry) again after ([A-Z][a-z]{2}, [\w :+-]{15,40})")
_CREDENTIAL = re.compile(
    r"(?P<before>\b(?:bearer|basic) +"
    r"|\b(?:api[-_ ]?key|access[-_ ]?token|authorization|token|secret|passw(?:or)?d)\b[\"']?\s*[:=]\s*[\"']?)"
    r"(?=[\w.~+/=-]*[\d=+/_])[\w.~+/=-]{6,}"  # a word with a digit or the like: "basic authentication" stays
    r"|\b(?:SG\.[\w-]{8,}\.[\w-]+|(?:re|sk|pk)_\w{12,}|key-[0-9a-f]{16,}|xkeysib-[\w-]+|mlsn\.\w+|AKIA[0-9A-Z]{16})",
    re.IGNORECASE,
)


_RULES_FOR: Final = {status: tuple(rule for rule in RULES if status in rule.statuses) for status in EVERY_STATUS}
"""The same rules in the same order, by the status that they decide."""


def judge(
    status: int,
    headers: Mapping[str, str],
    body_text: str,
    complete: bool,
    now: float,
    *,
    extra_rules: Sequence[Rule] = (),
    secrets: Iterable[str] = (),
    message_id: str | None = None,
) -> Verdict:
    """The verdict on an answer. Header names are in lower case; `now` is in seconds since 1970.

    `extra_rules` are asked before the general ones; `secrets` are taken out of the verdict's text wherever they
    stand. `message_id` is what the provider found where its ids stand; it counts only in an accepted answer.
    """
    answer = Answer(status, body_text[:JUDGED_CHARS_MAX], headers, complete)
    rule = decide(answer, extra_rules)
    request_id = _header(headers, _REQUEST_ID_HEADERS)
    accepted = rule.outcome is Outcome.ACCEPTED
    told = "" if accepted else one_line(redact(told_by(answer), secrets))
    if not complete:
        told = f"{told} (the answer was cut off)".lstrip()
    return Verdict(
        outcome=rule.outcome,
        maybe_accepted=rule.maybe_accepted,
        spends_attempt=rule.spends_attempt,
        subject=rule.subject,
        code=str(status),
        text=told,
        message_id=message_id if accepted else None,
        request_id=one_line(redact(request_id, secrets), ID_CHARS_MAX) if request_id else None,
        retry_after_s=None if accepted else retry_after_s(answer, rule.outcome, now),
        full_for_s=None if rule.outcome is Outcome.THROTTLED else full_for_s(headers, now),
        rule=rule.name,
        raw=None if accepted else raw_of(body_text, secrets),
    )


def judge_failure(phase: str, code: str, text: str, *, secrets: Iterable[str] = ()) -> Verdict:
    """The verdict on a call that got no answer. `phase` is a FailurePhase."""
    rule = decide_failure(phase, code)
    return Verdict(
        outcome=rule.outcome,
        maybe_accepted=rule.maybe_accepted,
        spends_attempt=rule.spends_attempt,
        subject=rule.subject,
        code=code,
        text=one_line(redact(text, secrets)),
        rule=rule.name,
    )


def decide(answer: Answer, extra_rules: Sequence[Rule] = ()) -> Rule:
    """The rule that decides `answer`."""
    rule = first_match(answer, extra_rules) or first_match(answer, _RULES_FOR.get(answer.status, RULES))
    if rule is None:
        raise AssertionError(f"no rule decides the status {answer.status}")
    return rule


def decide_failure(phase: str, code: str) -> FailureRule:
    """The rule that decides a failure without an answer."""
    return next(rule for rule in FAILURE_RULES if rule.covers(phase, code))


def retry_after_s(answer: Answer, outcome: Outcome, now: float) -> float | None:
    """How many seconds the answer asks to wait, None where it doesn't say."""
    asked = parse_retry_after(answer.headers.get("retry-after"), now)
    if not asked and outcome is Outcome.THROTTLED:
        return reset_after_s(answer.headers, now) or _until_named_moment_s(answer.text, now) or asked
    return asked


def _until_named_moment_s(text: str, now: float) -> float | None:
    """Mailgun names the moment in the body: `try again after Sun, 06 Nov 1994 08:49:37 GMT`."""
    found = _TRY_AGAIN.search(text)
    return parse_retry_after(found.group(1), now) if found else None


def _header(headers: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((headers[name] for name in names if name in headers), None)


def told_by(answer: Answer) -> str:
    """What the answer says to a person: the message in its JSON, the title of its page, else the body."""
    if answer.kind is Kind.JSON:
        return _message(read_json(answer.text)) or answer.text
    if answer.kind is Kind.HTML:
        title = _TITLE.search(answer.text)
        return title.group(1) if title and title.group(1).strip() else _TAG.sub(" ", answer.text)
    return answer.text or answer.headers.get("location", "")


def read_json(text: str) -> Any:
    """The decoded text, None where it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _message(value: Any) -> str:
    """The first text under a member that is named like a message."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return next((found for item in value if (found := _message(item))), "")
    if isinstance(value, dict):
        members = {str(name).lower(): item for name, item in value.items()}
        return next((found for name in _MESSAGE_MEMBERS if (found := _message(members.get(name)))), "")
    return ""


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` without the given secrets and without anything else that looks like a credential."""
    for secret in secrets:
        if len(secret) >= SECRET_CHARS_MIN:
            text = text.replace(secret, "***")
    return _CREDENTIAL.sub(lambda found: f"{found['before'] or ''}***", text)


def one_line(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """`text` as one line that every database stores, shortened."""
    line = text[: chars_max * 8]
    if not line.isprintable() or "  " in line:
        line = _SPACE.sub(" ", _CONTROL.sub(" ", line))
    line = line.strip()
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"


def raw_of(body_text: str, secrets: Iterable[str] = ()) -> str | None:
    """The beginning of a body word for word, but for secrets and for what no database stores."""
    return _UNSTORABLE.sub("\ufffd", redact(body_text[: 2 * RAW_CHARS_MAX], secrets)[:RAW_CHARS_MAX]) or None


def rules_as_markdown(rules: Sequence[Rule] = RULES, failures: Sequence[FailureRule] = FAILURE_RULES) -> str:
    """The rules as a table for the documentation, in the order in which they are asked."""
    lines = ["| Answer | Outcome | May have been accepted | Spends an attempt | Source |", "|---|---|---|---|---|"]
    lines += [_row(_statuses(rule) + rule.name, rule) for rule in rules]
    lines += [_row(f"no answer, {rule.phase}: {rule.name}", rule) for rule in failures]
    return "\n".join(lines) + "\n"


def _row(what: str, rule: Rule | FailureRule) -> str:
    yes = {True: "yes", False: "no"}
    marks = yes[rule.maybe_accepted or rule.outcome is Outcome.ACCEPTED], yes[rule.spends_attempt]
    return f"| {what} | {rule.outcome} | {marks[0]} | {marks[1]} | {rule.source} |"


def _statuses(rule: Rule) -> str:
    ranges = {range(200, 300): "2xx", range(300, 400): "3xx", range(400, 500): "4xx", range(500, 600): "5xx"}
    for statuses, short in ranges.items():
        if rule.statuses == frozenset(statuses):
            return f"{short}: "
    if len(rule.statuses) > 20:
        return "4xx: " if min(rule.statuses) >= 400 else ""
    return ", ".join(str(status) for status in sorted(rule.statuses)) + ": "
