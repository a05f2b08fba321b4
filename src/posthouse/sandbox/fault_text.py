"""Faults as people write them, on the command line, in a file and over the control API: `503:share=0.2,until=5m`."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from posthouse.errors import ConfigError
from posthouse.sandbox.faults import (
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
from posthouse.setting_values import parse_duration

_ANY: Final = "any"
_ACCEPTED: Final = "-accepted"
_NOT_ACCEPTED: Final = "-not-accepted"
_NAMES: Final = [action.value for action in Action if action is not Action.STATUS]


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """A list of faults and the seed that replays it, None for any."""

    faults: tuple[Fault, ...] = ()
    seed: int | None = None


def parse_fault(text: str) -> Fault:
    """The fault that `text` describes. Raises ConfigError with the text, what is wrong and what is possible."""
    try:
        head, _, tail = text.strip().partition(":")
        options = _options(tail) if tail or ":" in text else {}
        effect = _effect(head.strip(), options.pop("retry-after", None), options.pop("text", ""))
        on = options.pop("off", True)
        return Fault(effect, Target(**options), on=on)
    except ValueError as error:
        raise ConfigError(f"fault {text!r}", str(error)) from None


def fault_text(fault: Fault) -> str:
    """The shortest text that `parse_fault` reads as `fault`."""
    options = [*_target_texts(fault.target), *_retry_after_text(fault.effect.retry_after)]
    if fault.effect.text:
        options.append(f"text={fault.effect.text}")
    if not fault.on:
        options.append("off")
    return ":".join(filter(None, [_effect_text(fault.effect), ",".join(options)]))


def parse_fault_settings(document: object, place: str = "") -> FaultSettings:
    """Reads `{"faults": ["503:share=0.2"], "seed": 7}`; `place` names the document in a ConfigError."""
    if not isinstance(document, Mapping) or (unknown := set(document) - {"faults", "seed"}):
        reason = f"there is no {min(unknown)!r}" if isinstance(document, Mapping) else "this is not a table"
        raise ConfigError(place, f'{reason}; write faults = ["503:share=0.2"] and, where wanted, seed = 7')
    texts = document.get("faults", [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(_within(place, "faults"), 'must be a list of texts, such as ["503:share=0.2", "slow=8s"]')
    seed = document.get("seed")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise ConfigError(_within(place, "seed"), "must be a whole number")
    return FaultSettings(tuple(parse_fault(text) for text in texts), seed)


def read_faults_file(path: Path) -> FaultSettings:
    """Reads a TOML file, or a JSON file where its name ends in .json. Raises ConfigError."""
    read: Callable[[str], object] = json.loads if path.suffix == ".json" else tomllib.loads
    try:
        document = read(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(str(path), f"can't be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(str(path), f"can't be understood: {error}") from None
    return parse_fault_settings(document, str(path))


def _within(place: str, name: str) -> str:
    return f"{place}: {name}" if place else name


def _effect(head: str, retry_after: RetryAfter | None, text: str) -> Effect:
    name, equals, argument = head.partition("=")
    name, accepted = _without_suffix(name)
    action = Action.STATUS if name.isdecimal() else _action(name)
    status, delay_s = (int(name), 0.0) if action is Action.STATUS else (200, 0.0)
    if equals and action in TIMED:
        delay_s = parse_duration(argument)
    elif equals and action in WORDED - {Action.STATUS}:
        status = _whole(argument)
    elif equals:
        raise ValueError(f"{name} takes no value after '='")
    if accepted is None:
        accepted = acceptance_choices(action, status)[0]
    return Effect(action, accepted, status, delay_s, retry_after, text)


def _without_suffix(name: str) -> tuple[str, bool | None]:
    if name.endswith(_NOT_ACCEPTED):
        return name.removesuffix(_NOT_ACCEPTED), False
    if name.endswith(_ACCEPTED):
        return name.removesuffix(_ACCEPTED), True
    return name, None


def _action(name: str) -> Action:
    if name in _NAMES:
        return Action(name)
    raise ValueError(f"{name!r} is not a fault{_possible(name, _NAMES)} or a status such as 503")


def _options(tail: str) -> dict[str, Any]:
    """Keyword arguments of Target, and `retry-after`, `text` and `off`."""
    found: dict[str, Any] = {}
    for option in tail.split(","):
        name, equals, value = option.strip().partition("=")
        if name not in OPTIONS:
            raise ValueError(f"{name!r} is not an option{_possible(name, OPTIONS)}")
        field, read = OPTIONS[name]
        if field in found:
            raise ValueError(f"{name} is given twice")
        if bool(equals) is (name == "off"):
            raise ValueError("off takes no value" if name == "off" else f"{name} needs a value: {name}=…")
        found[field] = read(value)
    return found


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"share={text} is not a part from 0 to 1") from None


def _retry_after(text: str) -> RetryAfter:
    seconds = text.removeprefix("date+")
    if not (seconds.isascii() and seconds.isdecimal()):
        raise ValueError(f"retry-after={text}: write seconds, such as 30, or date+30 for an HTTP date")
    return RetryAfter(int(seconds), as_date=seconds != text)


def _at(text: str) -> CallKind | None:
    kinds = [kind.value for kind in CallKind]
    if text in kinds:
        return CallKind(text)
    if text != _ANY:
        raise ValueError(f"at={text}{_possible(text, [*kinds, _ANY])}")
    return None


def _per(text: str) -> Per:
    if text not in list(Per):
        raise ValueError(f"per={text}{_possible(text, list(Per))}")
    return Per(text)


OPTIONS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "share": ("share", _share),
    "to": ("to", str),
    "first": ("first", _whole),
    "per": ("per", _per),
    "at": ("at", _at),
    "from": ("from_s", parse_duration),
    "until": ("until_s", parse_duration),
    "retry-after": ("retry-after", _retry_after),
    "text": ("text", str),
    "off": ("off", lambda _: False),
}
"""How each option is written: the field of Target it fills, and its reader.

`retry-after`, `text` and `off` stand apart.
"""


def _possible(word: str, words: Iterable[str]) -> str:
    names = list(words)
    near = difflib.get_close_matches(word, names, n=1)
    return (
        f" (did you mean {near[0]!r}?); there are: {', '.join(names)}" if near else f"; there are: {', '.join(names)}"
    )


def _effect_text(effect: Effect) -> str:
    name = str(effect.status) if effect.action is Action.STATUS else effect.action.value
    if effect.accepted is not acceptance_choices(effect.action, effect.status)[0]:
        name += _ACCEPTED if effect.accepted else _NOT_ACCEPTED
    if effect.action in TIMED:
        return f"{name}={_duration_text(effect.delay_s)}"
    if effect.action in WORDED - {Action.STATUS} and effect.status != 200:
        return f"{name}={effect.status}"
    return name


def _target_texts(target: Target) -> list[str]:
    plain = Target()
    texts = {
        "share": _number_text(target.share) if target.share != plain.share else None,
        "to": target.to,
        "first": str(target.first) if target.first is not None else None,
        "per": target.per.value if target.per is not plain.per else None,
        "at": (target.at or _ANY) if target.at is not plain.at else None,
        "from": _duration_text(target.from_s) if target.from_s else None,
        "until": _duration_text(target.until_s) if target.until_s is not None else None,
    }
    return [f"{name}={text}" for name, text in texts.items() if text is not None]


def _retry_after_text(retry_after: RetryAfter | None) -> list[str]:
    if retry_after is None:
        return []
    return [f"retry-after={'date+' if retry_after.as_date else ''}{retry_after.seconds}"]


def _duration_text(seconds: float) -> str:
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{_number_text(seconds / size)}{unit}"
    return f"{_number_text(seconds)}s"


def _number_text(number: float) -> str:
    """Every digit of `number` without an exponent."""
    plain = format(Decimal(repr(number)), "f")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain
