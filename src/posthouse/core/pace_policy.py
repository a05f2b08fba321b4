"""Which limits hold for a lane on a route, as the configuration says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from posthouse.config import Config, RouteSettings, WarmUpSettings
from posthouse.core.lanes import group_of, service_of
from posthouse.core.limits import Rate
from posthouse.core.pace import HORIZON_S, LATE_MAX_S, SLACK_SHARE, Limit
from posthouse.core.quotas import DAY_S, Quota, WarmUp

RateAndTime = tuple[int, float]


@dataclass(frozen=True, slots=True)
class RoutePace:
    """What limits one route."""

    limits: tuple[Limit, ...] = ()
    warm_up: WarmUp | None = None
    by_recipient: bool = False

    def at(self, route: str, now: float) -> list[Limit]:
        """Those of the day."""
        daily = None if self.warm_up is None else self.warm_up.daily_limit(now)
        if daily is None:
            return [*self.limits]
        quota = Quota(daily, DAY_S, slack_s=HORIZON_S + LATE_MAX_S)
        return [*self.limits, Limit(f"warm-up of {route}", quota=quota, by_recipient=self.by_recipient)]


@dataclass(frozen=True, slots=True)
class PacePolicy:
    """All limits of a configuration."""

    routes: Mapping[str, RoutePace] = field(default_factory=dict)
    services: Mapping[str, tuple[Limit, ...]] = field(default_factory=dict)
    groups: Mapping[str, Rate] = field(default_factory=dict)

    def limits(self, lane: str, route: str, now: float) -> tuple[Limit, ...]:
        """The limits that hold for this lane's sends on this route; nearly always none."""
        found = list(self.services.get(service_of(lane), ())) if self.services else []
        if (pace := self.routes.get(route)) is not None:
            found += pace.at(route, now)
        if self.groups and (rate := self.groups.get(group_of(lane))) is not None:
            found.append(Limit(f"{group_of(lane)} on {route}", rate=rate))
        return tuple(found)

    def quotas(self, now: float) -> list[Limit]:
        """Every limit with a quota."""
        of_routes = [limit for name, pace in self.routes.items() for limit in pace.at(name, now)]
        of_services = [limit for limits in self.services.values() for limit in limits]
        return [limit for limit in of_routes + of_services if limit.quota is not None]


def pace_policy(config: Config) -> PacePolicy:
    """The limits that a configuration sets."""
    routes = {name: _route(name, settings) for name, settings in config.routes.items()}
    return PacePolicy(
        routes={name: pace for name, pace in routes.items() if pace.limits or pace.warm_up},
        services={
            name: _limits(f"service {name}", settings.rate, settings.quota)
            for name, settings in config.services.items()
        },
        groups={name: _rate(settings.rate) for name, settings in config.groups.items() if settings.rate},
    )


def _route(name: str, settings: RouteSettings) -> RoutePace:
    by_recipient = settings.counts == "recipients"
    limits = _limits(f"route {name}", settings.rate, settings.quota, settings.burst, by_recipient)
    return RoutePace(limits, None if settings.warm_up is None else _warm_up(settings.warm_up), by_recipient)


def _limits(
    name: str, rate: RateAndTime | None, quota: RateAndTime | None, burst: int = 1, by_recipient: bool = False
) -> tuple[Limit, ...]:
    if rate is None and quota is None:
        return ()
    return (
        Limit(
            name,
            None if rate is None else _rate(rate, burst),
            None if quota is None else Quota(*quota, slack_s=HORIZON_S + LATE_MAX_S),
            by_recipient,
        ),
    )


def _rate(rate: RateAndTime, burst: int = 1) -> Rate:
    count, per_s = rate
    return Rate(count, per_s, burst, slack_s=SLACK_SHARE * min(per_s, 1.0))


def _warm_up(settings: WarmUpSettings) -> WarmUp:
    day = datetime(settings.start.year, settings.start.month, settings.start.day, tzinfo=UTC)
    return WarmUp(day.timestamp(), settings.first, settings.growth, settings.until)
