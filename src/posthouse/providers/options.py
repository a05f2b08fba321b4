"""What an email asks of one provider alone: its `options`, by the name of a provider or of a route."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from posthouse.core.policy import RouteFacts


def own_options(options: Mapping[str, Mapping[str, Any]], facts: RouteFacts) -> dict[str, Any]:
    """Those for this route: its provider's, with those under its own name laid over them."""
    if not options:
        return {}
    return merged(options.get(facts.kind, {}), options.get(facts.name, {}))


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are joined, member by member; anything else in `above` replaces what is in `below`."""
    joined = dict(below)
    for name, value in above.items():
        other = joined.get(name)
        joined[name] = merged(other, value) if isinstance(other, Mapping) and isinstance(value, Mapping) else value
    return joined
