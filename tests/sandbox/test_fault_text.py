"""Faults are written as people read them, and what is wrong with a text is said with what is possible."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from posthouse.errors import ConfigError
from posthouse.sandbox.fault_text import (
    OPTIONS,
    FaultSettings,
    fault_text,
    parse_fault,
    parse_fault_settings,
    read_faults_file,
)
from posthouse.sandbox.faults import (
    MAGIC_RECIPIENTS,
    MAGIC_RECIPIENTS_IN_STEPS,
    STEPS,
    TIMED,
    WORDED,
    Action,
    CallKind,
    Effect,
    Fault,
    Per,
    RetryAfter,
    Target,
    acceptance_choices,
)

DOCS = Path(__file__).parents[2] / "docs" / "sandbox.md"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "503:share=0.2,from=60s,until=5m",
            Fault(Effect(Action.STATUS, status=503), Target(share=0.2, from_s=60, until_s=300)),
        ),
        ("slow=8s:share=0.5", Fault(Effect(Action.SLOW, accepted=True, delay_s=8), Target(share=0.5))),
        ("slow-not-accepted=1m30s", Fault(Effect(Action.SLOW, delay_s=90))),
        ("429:retry-after=30", Fault(Effect(Action.STATUS, status=429, retry_after=RetryAfter(30)))),
        ("429:retry-after=date+30", Fault(Effect(Action.STATUS, status=429, retry_after=RetryAfter(30, as_date=True)))),
        ("drop-accepted:share=0.02", Fault(Effect(Action.DROP, accepted=True), Target(share=0.02))),
        (
            "503:first=2,to=ada@example.com",
            Fault(Effect(Action.STATUS, status=503), Target(first=2, to="ada@example.com")),
        ),
        ("slow=8s:first=150,per=all", Fault(Effect(Action.SLOW, True, delay_s=8.0), Target(first=150, per=Per.ALL))),
        ("504-accepted:first=1,per=key", Fault(Effect(Action.STATUS, True, 504), Target(first=1, per=Per.KEY))),
        ("refuse:from=1m,until=90s", Fault(Effect(Action.REFUSE), Target(from_s=60, until_s=90))),
        ("html=502:at=any", Fault(Effect(Action.HTML, status=502), Target(at=None))),
        ("html-not-accepted", Fault(Effect(Action.HTML, accepted=False))),
        ("malformed", Fault(Effect(Action.MALFORMED, accepted=True))),
        (
            "451:at=rcpt,to=ada@example.com,first=2",
            Fault(Effect(Action.STATUS, status=451), Target(to="ada@example.com", first=2, at=CallKind.RCPT)),
        ),
        ("stall-accepted:at=dot", Fault(Effect(Action.STALL, True), Target(at=CallKind.DOT))),
        ("421:at=idle", Fault(Effect(Action.STATUS, status=421), Target(at=CallKind.IDLE))),
        ("swapped:at=mail", Fault(Effect(Action.SWAPPED, True), Target(at=CallKind.MAIL))),
        (
            "452:at=rcpt,text=4.5.3 Too many recipients",
            Fault(Effect(Action.STATUS, status=452, text="4.5.3 Too many recipients"), Target(at=CallKind.RCPT)),
        ),
        ("stall:at=look-up,off", Fault(Effect(Action.STALL), Target(at=CallKind.LOOK_UP), on=False)),
    ],
)
def test_a_text_means_what_it_says(text: str, fault: Fault) -> None:
    assert parse_fault(text) == fault
    assert parse_fault(fault_text(fault)) == fault


@st.composite
def effects(draw: st.DrawFn) -> Effect:
    action = draw(st.sampled_from(Action))
    status = draw(st.integers(300 if action is Action.STATUS else 200, 599)) if action in WORDED else 200
    retry_after = st.builds(RetryAfter, st.integers(0, 10_000), st.booleans())
    texts = st.from_regex(r"[1-5]\.[0-9]\.[0-9] [A-Za-z=:é.]+", fullmatch=True)
    return Effect(
        action,
        draw(st.sampled_from(acceptance_choices(action, status))),
        status,
        draw(st.floats(0.001, 1e6)) if action in TIMED else 0.0,
        draw(st.none() | retry_after) if action is Action.STATUS else None,
        draw(st.just("") | texts) if action is Action.STATUS else "",
    )


@st.composite
def windows(draw: st.DrawFn) -> tuple[float, float | None]:
    start = draw(st.just(0.0) | st.floats(0, 1e6))
    return start, draw(st.none() | st.floats(start, 1e7, exclude_min=True))


@st.composite
def any_fault(draw: st.DrawFn) -> Fault:
    effect = draw(effects())
    from_s, until_s = draw(windows())
    on = draw(st.booleans())
    if effect.action is Action.REFUSE:
        return Fault(effect, Target(from_s=from_s, until_s=until_s), on)
    first = draw(st.none() | st.integers(1, 99))
    target = Target(
        share=draw(st.floats(0, 1)),
        to=draw(st.none() | st.just("ada+tag@example.com")),
        first=first,
        per=draw(st.sampled_from(Per)) if first is not None else Per.RECIPIENT,
        at=draw(st.none() | st.sampled_from(CallKind)),
        from_s=from_s,
        until_s=until_s,
    )
    try:
        return Fault(effect, target, on)
    except ValueError:  # not every effect can happen at every step
        reject()


@given(any_fault())
def test_every_fault_is_read_back_from_its_text(fault: Fault) -> None:
    assert parse_fault(fault_text(fault)) == fault


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "'' is not a fault"),
        ("slwo=8s", "did you mean 'slow'?"),
        ("slow", "needs a duration"),
        ("slow=8", "is not a duration"),
        ("503=2", "takes no value"),
        ("999", "999 is not a status"),
        ("200", "200 is not a status"),
        ("html=abc", "'abc' is not a whole number"),
        ("422-accepted", "422 always means not accepted"),
        ("drip-not-accepted=3s", "drip always means accepted"),
        ("503:shar=0.2", "'shar' is not an option (did you mean 'share'?); there are: share, to, first"),
        ("503:", "'' is not an option"),
        ("503:share", "share needs a value"),
        ("503:share=1.5", "share=1.5 is not a part from 0 to 1"),
        ("503:share=nan", "is not a part from 0 to 1"),
        ("503:share=0.1,share=0.2", "share is given twice"),
        ("503:to=ada", "to=ada is not an address"),
        ("503:first=0", "first=0 is not a number from 1"),
        ("503:first=-1", "'-1' is not a whole number"),
        ("503:per=key", "give first as well"),
        ("503:first=1,per=day", "there are: recipient, key, all"),
        (
            "503:at=reading",
            "there are: send, look-up, health, banner, ehlo, starttls, auth, mail, rcpt, data, dot, idle, webhook, any",
        ),
        ("swapped", "give a step with a following one, such as at=rcpt"),
        ("swapped:at=any", "give a step"),
        ("swapped:at=idle", "give a step"),
        ("swapped:at=starttls", "give a step"),
        ("drip=3s:at=idle", "drip is an answer, and at=idle nobody has asked"),
        ("451:at=rcpt,retry-after=3", "at=rcpt has no retry-after"),
        ("drop-accepted:at=rcpt", "no message is accepted at=rcpt; at=dot is where it is"),
        ("451-accepted:at=any", "451 always means not accepted, except at=dot"),
        ("drop:text=gone", "text goes with an error status"),
        ("452:text= 4.5.3", "without spaces around it"),
        ("503:from=5m,until=60s", "until must be later than from"),
        ("429:retry-after=soon", "date+30"),
        ("slow=8s:retry-after=3", "retry-after goes with an error status"),
        ("503:off=1", "off takes no value"),
        ("refuse:share=0.5", "refuse hits every connection"),
        ("refuse-accepted", "refuse always means not accepted"),
    ],
)
def test_a_bad_text_is_refused_with_what_is_wrong_and_possible(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_fault(text)
    assert caught.value.setting == f"fault {text!r}"
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("faults.toml", 'faults = ["503:share=0.2", "slow=8s"]\nseed = 7\n'),
        ("faults.json", '{"faults": ["503:share=0.2", "slow=8s"], "seed": 7}'),
    ],
)
def test_a_file_holds_the_same_texts(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    expected = FaultSettings((parse_fault("503:share=0.2"), parse_fault("slow=8s")), seed=7)
    assert read_faults_file(tmp_path / name) == expected


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("faults.toml", "faults = [", "can't be understood"),
        ("faults.json", "[]", "this is not a table"),
        ("faults.toml", "fault = []", "there is no 'fault'"),
        ("faults.toml", "faults = [503]", "must be a list of texts"),
        ("faults.toml", "seed = true", "must be a whole number"),
        ("faults.toml", 'faults = ["slwo=8s"]', "did you mean 'slow'?"),
    ],
)
def test_a_bad_file_is_refused_with_its_reason(tmp_path: Path, name: str, content: str, reason: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=re.escape(reason)):
        read_faults_file(tmp_path / name)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: can't be read"):
        read_faults_file(tmp_path / "none.toml")


def test_no_faults_and_no_seed_is_a_document_too() -> None:
    assert parse_fault_settings({}) == FaultSettings((), None)


def documented(heading: str) -> str:
    return DOCS.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]


def test_every_action_is_documented_with_its_acceptance() -> None:
    effects_table = documented("Faults").partition("| Option |")[0]
    rows = re.findall(r"^\| `([^`]+)` \|.*\| (not )?accepted\b.* \|$", effects_table, re.MULTILINE)
    found = {text: parse_fault(text).effect for text, _ in rows}
    assert {effect.action for effect in found.values()} == set(Action)
    taken_on_arrival = {text: not negation for text, negation in rows if not text.startswith("slow-not")}
    assert {text: found[text].accepted for text in taken_on_arrival} == taken_on_arrival


def test_every_option_is_documented_with_an_example() -> None:
    options_table = documented("Faults").partition("| Option |")[2]
    rows = re.findall(r"^\| (`[^|]+`) \|.*\| `([^`]+)` \|$", options_table, re.MULTILINE)
    assert all(fault_text(parse_fault(example)) for _, example in rows)
    names = {name for names, _ in rows for name in re.findall(r"`([^`]+)`", names)}
    assert names | {"retry-after"} == set(OPTIONS)


def test_every_step_is_documented() -> None:
    assert re.findall(r"^\| `([a-z]+)` \|", documented("Faults over SMTP"), re.MULTILINE) == [
        kind.value for kind in CallKind if kind in STEPS
    ]


def test_every_example_in_the_docs_is_a_fault() -> None:
    examples = re.findall(r"^\| .* \| `([^`]+)` \|$", documented("Faults over SMTP"), re.MULTILINE)
    assert len(examples) >= 5
    assert all(fault_text(parse_fault(example)) for example in examples)


def test_every_magic_recipient_is_documented_with_its_fault() -> None:
    section = documented("Magic recipients")
    rows = re.findall(r"^\| `([^`@]+)@` \| `([^`]+)`", section, re.MULTILINE)
    assert {name: parse_fault(text) for name, text in rows} == dict(MAGIC_RECIPIENTS)


def test_every_magic_recipient_is_documented_with_its_fault_over_smtp() -> None:
    section = documented("Magic recipients")
    rows = re.findall(r"^\| `([^`@]+)@` \| `[^`]+` \| `([^`]+)`", section, re.MULTILINE)
    assert {name: parse_fault(text) for name, text in rows} == dict(MAGIC_RECIPIENTS_IN_STEPS)
