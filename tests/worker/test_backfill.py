"""News whose webhook never came is filled in from the provider's log: by one worker, once, and in nobody's way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sqlalchemy import func, select

from posthouse.providers.placeholders import OUR_ID
from posthouse.providers.transport import HttpAnswer, HttpFailure, HttpRequest
from posthouse.store.schema import events
from posthouse.worker.alarm import AlarmSettings
from tests.providers.test_mailgun import fields_of
from tests.worker.stage import Stage, email, emails, play
from tests.worker.test_alarm import FINE, URL, Listening

EVERY_S = 600.0
LAG_S = 60.0
HOUR_S = 3600.0


class PlayedMailgun:
    """Takes every message, delivers it at once, and writes that down; no webhook tells of it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.delivered: list[dict[str, Any]] = []
        self.reads: list[tuple[float, float, float]] = []  # when, and the stretch
        self.log_status = 200

    async def request(self, request: HttpRequest, *, timeout_s: float) -> HttpAnswer | HttpFailure:
        if request.method == "POST":
            return self._take(request)
        if self.log_status != 200:
            return HttpAnswer(self.log_status, {}, b'{"message":"no"}')
        return self._page(request)

    def _take(self, request: HttpRequest) -> HttpAnswer:
        number, fields = len(self.delivered) + 1, dict(fields_of(request))
        event = {"event": "delivered", "id": f"e-{number}", "timestamp": self._now() + 1}
        about = {"recipient": fields["to"].decode(), "user-variables": {OUR_ID: fields[f"v:{OUR_ID}"].decode()}}
        self.delivered.append(event | about | {"message": {"headers": {"message-id": f"m-{number}"}}})
        return HttpAnswer(200, {}, json.dumps({"id": f"<m-{number}>", "message": "Queued."}).encode())

    def _page(self, request: HttpRequest) -> HttpAnswer:
        url = urlsplit(request.url)
        if url.path.endswith("/events"):
            query = parse_qs(url.query)
            begin, end = float(query["begin"][0]), float(query["end"][0])
            self.reads.append((self._now(), begin, end))
            items = [each for each in self.delivered if begin <= each["timestamp"] <= end]
        else:
            items = []
        page = {"items": items, "paging": {"next": f"https://mailgun.example{url.path}/events/end"}}
        return HttpAnswer(200, {}, json.dumps(page).encode())

    async def close(self) -> None: ...


class LongMailgun(PlayedMailgun):
    """The same, with so many slow pages of news that they take longer to read than from one turn to the next."""

    async def request(self, request: HttpRequest, *, timeout_s: float) -> HttpAnswer | HttpFailure:
        if "/page-" in request.url:
            await asyncio.sleep(10)
        return await super().request(request, timeout_s=timeout_s)

    def _page(self, request: HttpRequest) -> HttpAnswer:
        page = json.loads(super()._page(request).body)
        number = int(urlsplit(request.url).path.partition("/page-")[2] or 0)
        if 0 < number * 10 < 2 * EVERY_S:
            page["items"] = self.delivered
        page["paging"]["next"] = f"https://mailgun.example/v3/mg.shop.example/events/page-{number + 1}"
        return HttpAnswer(200, {}, json.dumps(page).encode())


def set_up(
    stage: Stage, workers: int = 2, played: type[PlayedMailgun] = PlayedMailgun, **settings: Any
) -> tuple[PlayedMailgun, Listening]:
    chat = Listening(FINE)
    stage.alarm = AlarmSettings(transport=chat, url=lambda: URL)
    own = {"provider": "mailgun", "url": "https://mailgun.example", "api_key": "k", "domain": "mg.shop.example"}
    more = {"look_up_lag": f"{LAG_S:.0f}s", "backfill_every": f"{EVERY_S:.0f}s", "auth": None}
    slow = {"heartbeat": "60s", "dead_after": "600s", "sweep": "60s", "poll_min": "5s", "poll_max": "5s"}
    stage.configure({"main": own | more | {"idempotency_header": None} | settings}, worker=slow)
    server = played(stage.now)
    stage.transports["main"] = server
    for _ in range(workers):
        stage.worker()
    return server, chat


def deliveries(stage: Stage) -> dict[str, str]:
    return {row["dedupe_key"]: row["delivery"] for row in stage.rows()}


def news(stage: Stage) -> int:
    with stage.store.database.read() as connection:
        return connection.scalar(select(func.count()).select_from(events)) or 0


def test_what_no_webhook_told_is_filled_in_once_by_one_of_the_workers() -> None:
    async def scene(stage: Stage) -> None:
        server, chat = set_up(stage, workers=3)
        stage.enqueue(*emails(30))
        await stage.until_status(accepted=30)
        await stage.until(lambda: set(deliveries(stage).values()) == {"delivered"}, within_s=2 * EVERY_S)
        await asyncio.sleep(2 * EVERY_S)

        assert news(stage) == 30
        assert not chat.heard
        ends = [end for _, _, end in server.reads]
        begins = [begin for _, begin, _ in server.reads]
        assert all(end - 2 <= begin <= end for end, begin in zip(ends, begins[1:], strict=False)), "no gap, no overlap"
        assert all(end <= at - LAG_S + 2 for at, _, end in server.reads), "what may still come is not asked for"
        passes = {round(at / EVERY_S) for at, begin, end in server.reads if end - begin < HOUR_S}
        assert len(passes) <= stage.at() / EVERY_S + 2, "one worker at a time"

    play(scene)


def test_a_log_that_fails_is_told_after_a_while_and_stops_nothing() -> None:
    async def scene(stage: Stage) -> None:
        server, chat = set_up(stage)
        server.log_status = 401
        stage.enqueue(email(1))
        await stage.until_status(accepted=1)
        await asyncio.sleep(HOUR_S / 2)
        assert not chat.heard
        stage.enqueue(email(2))
        await stage.until_status(accepted=2)
        await asyncio.sleep(HOUR_S)
        (told,) = chat.heard
        assert told.startswith("Posthouse: log of main: it can't be read for 1.")
        assert stage.store.control.route_health()["main"].state == "open"

        server.log_status = 200
        await stage.until(lambda: set(deliveries(stage).values()) == {"delivered"}, within_s=2 * EVERY_S)
        cursor = stage.store.log_cursors.of("main")
        assert cursor is not None
        assert cursor.failing_since is None

    play(scene)


def test_a_route_that_asks_for_none_has_its_log_left_alone() -> None:
    async def scene(stage: Stage) -> None:
        server, _ = set_up(stage, backfill_every=None)
        stage.enqueue(email(1))
        await stage.until_status(accepted=1)
        await asyncio.sleep(3 * EVERY_S)
        assert not server.reads

    play(scene)


def test_a_worker_that_dies_while_it_reads_leaves_the_rest_to_another() -> None:
    async def scene(stage: Stage) -> None:
        server, _ = set_up(stage, workers=1)
        stage.enqueue(*emails(5))
        await stage.until(lambda: len(server.reads) > 3, within_s=60)
        stage.running[0].process.kill()
        read = server.reads[-1]
        stage.worker()
        await stage.until(lambda: len(server.reads) > 6, within_s=3 * EVERY_S)
        assert server.reads[len([each for each in server.reads if each[0] <= read[0]])][1] <= read[2]
        await stage.until(lambda: set(deliveries(stage).values()) == {"delivered"}, within_s=5 * EVERY_S)

    play(scene)


def test_a_stretch_that_takes_longer_than_a_turn_is_read_by_one_worker_all_the_same() -> None:
    async def scene(stage: Stage) -> None:
        server, _ = set_up(stage, workers=3, played=LongMailgun)
        stage.enqueue(email(1))
        await stage.until_status(accepted=1)
        await stage.until(lambda: set(deliveries(stage).values()) == {"delivered"}, within_s=3 * EVERY_S)
        await asyncio.sleep(6 * EVERY_S)
        begins = [begin for _, begin, _ in server.reads]
        assert begins == sorted(set(begins)), "none is begun by two"

    play(scene)
