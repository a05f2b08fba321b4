"""Alerts reach people: once, at the configured address, and whatever happens there stops no mail."""

from __future__ import annotations

import asyncio
import json

import pytest

from posthouse.core.outcome import Outcome, Subject, Verdict
from posthouse.providers.port import OutgoingMessage
from posthouse.providers.transport import FailurePhase, HttpAnswer, HttpFailure, HttpRequest
from posthouse.worker.alarm import AlarmSettings
from tests.worker.stage import Stage, emails, play

URL = "https://chat.example/hook"


class Listening:
    """Takes what is told, and answers as it is told to."""

    def __init__(self, answer: HttpAnswer | HttpFailure) -> None:
        self.heard: list[str] = []
        self._answer = answer

    async def request(self, request: HttpRequest, *, timeout_s: float) -> HttpAnswer | HttpFailure:
        assert request.url == URL
        self.heard.append(json.loads(request.body)["text"])
        return self._answer

    async def close(self) -> None:
        """Nothing is open."""


FINE = HttpAnswer(200, {}, b"ok")


async def refused(_: OutgoingMessage) -> Verdict:
    return Verdict(
        Outcome.MISCONFIGURED, spends_attempt=False, subject=Subject.ROUTE, code="401", text="the key is wrong"
    )


@pytest.mark.parametrize(
    "answer", [FINE, HttpAnswer(500, {}, b""), HttpFailure(FailurePhase.CONNECT, "dns", "unknown")]
)
def test_a_stopped_route_is_told_once_however_many_workers_find_out(answer: HttpAnswer | HttpFailure) -> None:
    async def scene(stage: Stage) -> None:
        chat = Listening(answer)
        stage.configure({"main": {}})
        stage.script("main", refused)
        stage.alarm = AlarmSettings(quiet_s=900.0, transport=chat, url=lambda: URL)
        stage.enqueue(*emails(20))
        for _ in range(3):
            stage.worker()
        await asyncio.sleep(100)
        assert chat.heard == ["Posthouse: route main: it is stopped, its sends wait: 401 the key is wrong"]
        assert stage.statuses() == {"pending": 20}

    play(scene)


def test_a_route_that_is_still_stopped_after_the_quiet_time_is_told_again_when_it_stops_anew() -> None:
    async def scene(stage: Stage) -> None:
        chat, well = Listening(FINE), False

        async def by_turns(message: OutgoingMessage) -> Verdict:
            return Verdict(Outcome.ACCEPTED, message_id="m") if well else await refused(message)

        stage.configure({"main": {}})
        stage.script("main", by_turns)
        stage.alarm = AlarmSettings(quiet_s=60.0, transport=chat, url=lambda: URL)
        stage.enqueue(*emails(2))
        stage.worker()
        await asyncio.sleep(30)
        well = True
        await stage.until_status(within_s=600, accepted=2)
        well = False
        stage.enqueue(*emails(4)[2:])
        await stage.until(lambda: len(chat.heard) == 2, within_s=600)

    play(scene)
