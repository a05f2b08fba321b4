"""The APIs that the sandbox answers as: its own, and those of providers, a module each."""

from __future__ import annotations

from typing import Final

from posthouse.sandbox.shape import Shape
from posthouse.sandbox.shapes.own import OWN as OWN

SHAPES: Final[tuple[Shape, ...]] = (OWN,)
