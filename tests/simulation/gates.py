"""What one seed draws of what may hold mail back: limits of routes, services and mailbox groups, and priorities."""

from __future__ import annotations

import random
from datetime import date
from typing import Any

GATED_SHARE = 0.6
"""Of the worlds; in the others nothing but the providers' own trouble holds anything up."""

CROWDED_SHARE = 0.25
"""Of the gated worlds: those in which bulk mail waits while codes are asked for."""

SERVICES = ("shop", "crm")
DOMAINS = ("example.com", "example.com", "example.com", "gmail.com")

RATES = ((30, "min"), (2, "second"), (5, "second"), (20, "second"))
QUOTAS = ("10/min", "40/min", "60/hour", "80/day")


def draw_kind(chance: random.Random) -> tuple[bool, bool]:
    """Whether the world is gated, and whether it is crowded too."""
    gated = chance.random() < GATED_SHARE
    return gated, gated and chance.random() < CROWDED_SHARE


def draw_route_limits(chance: random.Random) -> dict[str, Any]:
    """What is added to a route's table."""
    settings: dict[str, Any] = {}
    if chance.random() < 0.5:
        count, unit = chance.choice(RATES)
        settings |= {"rate": f"{count}/{unit}", "burst": chance.choice([1, min(count, chance.randint(2, 5))])}
    if chance.random() < 0.2:
        settings["quota"] = chance.choice(QUOTAS)
    if chance.random() < 0.1:
        first = chance.choice([20, 60])
        settings["warm_up"] = {"start": date(2027, 1, 14), "first": first, "growth": 1.5, "until": 100 * first}
    if chance.random() < 0.3:
        settings["counts"] = "recipients"
    if chance.random() < 0.3:
        settings["total_concurrency"] = chance.choice([1, 2, 5])
    return settings


def draw_other_limits(chance: random.Random) -> dict[str, Any]:
    """The tables `[services.NAME]` and `[groups.NAME]`."""
    services: dict[str, Any] = {}
    if chance.random() < 0.4:
        services["shop"] = {"rate": chance.choice(["30/min", "2/second"])}
    if chance.random() < 0.3:
        services["crm"] = {"rate": "5/second", "quota": chance.choice(QUOTAS)}
    groups = {"gmail": {"rate": chance.choice(["20/min", "3/second"])}} if chance.random() < 0.4 else {}
    return {"services": services, "groups": groups}


def draw_type(chance: random.Random) -> dict[str, Any]:
    """What is added to a type's table."""
    return {
        "failover": chance.choice(["automatic", "automatic", "automatic", "manual"]),
        "standby_share": chance.choice(["0%", "0%", "10%", "50%"]),
    }
