"""What a setting may be: durations, shares, rates, sizes, secrets and addresses, as people write them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from posthouse.address import Address
from posthouse.errors import ConfigError, InvalidEmail

Clash = tuple[str, str]
"""The setting to change, and what is wrong with it next to the others."""


class Clashes(ValueError):
    """All that doesn't go together in one table of settings."""

    def __init__(self, clashes: Sequence[Clash]) -> None:
        self.clashes = tuple(clashes)
        super().__init__("; ".join(f"{setting}: {reason}" for setting, reason in clashes))


class Settings(BaseModel):
    """Any table of settings: unknown names are refused, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, validate_default=True)

    def clashes(self) -> Iterator[Clash]:
        """Settings of this table that don't go together, though each by itself could be."""
        return iter(())

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, given: object, info: ValidationInfo) -> object:
        wanted = cls.model_fields[info.field_name or ""].annotation
        if isinstance(given, bool) and wanted in (int, int | None):
            raise PydanticKnownError("int_type")
        return given

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if clashes := tuple(self.clashes()):
            raise Clashes(clashes)
        return self


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DURATION_MAX_S: Final = 100 * 366 * 86400.0  # what every database can still add to a time


def parse_duration(value: object) -> float:
    """Seconds in a duration such as `250ms`, `15s`, `10m`, `2h`, `1h30m` or `3d`."""
    parts = _DURATION.findall(value) if isinstance(value, str) else []
    if not parts or "".join(number + unit for number, unit in parts) != re.sub(r"\s", "", str(value)):
        raise ValueError(f"{value!r} is not a duration; write it like '250ms', '15s', '10m', '2h' or '3d'")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds > DURATION_MAX_S:
        raise ValueError(f"{value!r} is longer than a hundred years")
    return seconds


def parse_share(value: object) -> float:
    """A part of one in a percentage such as `1%` or `0.5%`."""
    number = value.strip().removesuffix("%") if isinstance(value, str) and value.strip().endswith("%") else ""
    try:
        share = float(number) / 100
    except ValueError:
        raise ValueError(f"{value!r} is not a percentage; write it like '1%'") from None
    if not 0 <= share <= 0.5:
        raise ValueError(f"{value!r} is not between 0% and 50%")
    return share


_RATE = re.compile(r"(\d+) ?/ ?([a-z]+)", re.ASCII)
_PER_S: Final = {
    **dict.fromkeys(("s", "sec", "second"), 1.0),
    **dict.fromkeys(("m", "min", "minute"), 60.0),
    **dict.fromkeys(("h", "hour"), 3600.0),
    **dict.fromkeys(("d", "day"), 86400.0),
}


def parse_rate(value: object) -> tuple[int, float]:
    """Count and seconds in `14/second`, `100/min`, `5000/hour` or `10000/day`."""
    text = value if isinstance(value, str) else str(value)
    found = _RATE.fullmatch(text.strip())
    if found is None or found[2] not in _PER_S:
        raise ValueError(f"{text!r} is not a rate; write it like '14/second', '100/min', '5000/hour' or '10000/day'")
    if int(found[1]) == 0:
        raise ValueError(f"{text!r} allows nothing; to stop sending, use: posthouse pause")
    return int(found[1]), _PER_S[found[2]]


RateValue = Annotated[tuple[int, float], BeforeValidator(parse_rate)]
Share = Annotated[float, BeforeValidator(parse_share)]
Duration = Annotated[float, BeforeValidator(parse_duration)]
PositiveDuration = Annotated[float, BeforeValidator(parse_duration), Field(gt=0)]


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")
_SIZE_UNITS: Final = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def parse_size(value: object) -> int:
    """Bytes in a size such as `500kB`, `25MB` or `10MiB`."""
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or found[2] not in _SIZE_UNITS:
        raise ValueError(f"{value!r} is not a size; write it like '500kB', '25MB' or '10MiB'")
    return round(float(found[1]) * _SIZE_UNITS[found[2]])


PositiveSize = Annotated[int, BeforeValidator(parse_size), Field(gt=0)]


class Secret:
    """A credential: `env:NAME`, `file:PATH` or the value itself. Read when needed, so that a rotation is seen."""

    def __init__(self, source: str) -> None:
        self._source = source

    def reveal(self) -> str:
        """The value now. Raises ConfigError where the variable or the file is missing."""
        kind, _, place = self._source.partition(":")
        if kind == "env":
            if place not in os.environ:
                raise ConfigError("", f"the environment variable {place} is not set")
            return os.environ[place]
        if kind == "file":
            try:
                return Path(place).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
                raise ConfigError("", f"the file {place} can't be read: {reason}") from None
        return self._source

    def __repr__(self) -> str:
        shown = self._source if self._source.startswith(("env:", "file:")) else "***"
        return f"Secret({shown})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._source == self._source

    def __hash__(self) -> int:
        return hash(self._source)


def _secret(value: object) -> Secret:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str) or not value:
        raise ValueError("must be 'env:NAME', 'file:PATH' or the value itself")
    return Secret(value)


def _sender(value: object) -> Address:
    if isinstance(value, Address):
        return value
    try:
        return Address.parse(str(value), "sender")
    except InvalidEmail as error:
        raise ValueError(error.reason) from None


def text_of_form(form: str, example: str) -> AfterValidator:
    """Text that has a form all through; what hasn't is told what it has to be like."""
    pattern = re.compile(form)

    def checked(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(f"is not {example}")
        return value

    return AfterValidator(checked)


def _domain(value: object) -> str:
    text = str(value).strip().casefold()
    if not re.fullmatch(r"[^\s@/]+\.[^\s@/.]+", text):
        raise ValueError(f"{value!r} is not a domain such as shop.example")
    return text


SenderDomain = Annotated[str, BeforeValidator(_domain)]


def _folder(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[ -~]+", value):
        raise ValueError(f"{value!r} is not a folder's name in ASCII, as the server itself lists it")
    return value


FolderName = Annotated[str, BeforeValidator(_folder)]
SecretValue = Annotated[Secret, BeforeValidator(_secret), PlainSerializer(repr)]
SenderValue = Annotated[Address, BeforeValidator(_sender), PlainSerializer(str)]
