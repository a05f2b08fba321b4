"""What mailbox groups are given: their limits, and when they get less for a while."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from posthouse.setting_values import Clash, RateValue, Settings, Share


class GroupSettings(Settings):
    """`[groups.NAME]`: one mailbox group, such as `gmail` or `microsoft`."""

    rate: RateValue | None = Field(
        None, description="Sends at most to mailboxes of this group, on each route, over all workers."
    )


class HealthSettings(Settings):
    """`[health]`: when a mailbox group gets less for a while."""

    slow_down: bool = Field(True, description="Whether a group that takes our mail badly gets less, by steps.")
    pushed_back: Share = Field(
        "10%",  # type: ignore[assignment]
        description=(
            "The part of a group's mail from which on too much is put off, or refused for our pace or reputation; a "
            "group that has always put off much has to do so more than before."
        ),
    )
    complaints: Share = Field(
        "0.3%",  # type: ignore[assignment]
        description=(
            "The part of a day's mail from which on too many complain; Gmail and Yahoo ask senders to stay below "
            "0.3 %. A third of it is enough where it is three times as much as before."
        ),
    )

    def clashes(self) -> Iterator[Clash]:
        """A part that nothing is below."""
        for name, share in (("pushed_back", self.pushed_back), ("complaints", self.complaints)):
            if not share:
                yield name, "0% would slow every group; to slow none, write slow_down = false"
