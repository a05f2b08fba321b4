"""Draining through a route that takes several messages by one call, against the same route with a call for each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import drain
from benchmarks.answering import answering_server

BATCH = 50

CONFIG = """
database = "{database}"
sender = "Shop <shop@example.com>"

[routes.main]
provider = "postmark"
url = "{url}"
api_key = "k-123456"
batch = {batch}
concurrency = {concurrency}
"""


@dataclass(frozen=True)
class Compared:
    """Sends a second of both sides of one run."""

    alone: float
    together: float

    @property
    def ratio(self) -> float:
        return self.together / self.alone


def run(new_database: Callable[[], str]) -> Compared:
    """Both sides, one after the other, against the same server."""
    emails = [drain.email(number) for number in range(drain.SENDS)]
    with answering_server() as url, tempfile.TemporaryDirectory() as folder:
        speeds = []
        for batch in (1, BATCH):
            database, config_file = new_database(), Path(folder) / f"{batch}.toml"
            settings = {"database": database, "url": url, "batch": batch, "concurrency": drain.CONCURRENCY}
            config_file.write_text(CONFIG.format(**settings), encoding="utf-8")
            drain.fill(config_file, database, emails)
            speeds.append(drain.drain(config_file, database, drain.SENDS))
        return Compared(*speeds)
