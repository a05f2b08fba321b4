"""Values of which a send makes many on its way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

V = TypeVar("V")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[V]) -> type[V]:
    """A dataclass that is never changed, which the type checker sees to alone: to be kept from it at run time as well
    makes a value four times as dear."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
