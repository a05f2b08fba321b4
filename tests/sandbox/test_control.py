"""The ledger over HTTP, and faults that change while the sandbox runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from posthouse.sandbox.http import serve
from tests.sandbox.conftest import START, Bench, Talk, make_bench, message


class Control:
    """A client of the control API."""

    def __init__(self, client: aiohttp.ClientSession) -> None:
        self._client = client

    async def __call__(self, method: str, path: str, **options: Any) -> tuple[int, dict[str, Any]]:
        async with self._client.request(method, f"/_sandbox/{path}", **options) as answer:
            return answer.status, await answer.json()


@pytest.fixture
def bench() -> Bench:
    return make_bench("503:to=down@example.com")


@pytest.fixture
async def control(bench: Bench) -> AsyncIterator[Control]:
    server = await serve(bench.api, clock=bench.clock)
    async with aiohttp.ClientSession(server.url) as client:
        yield Control(client)
    await server.close()


async def test_the_ledger_comes_in_pages(bench: Bench, control: Control) -> None:
    for number in range(5):
        bench.send(message(f"user-{number}@example.com"), key=f"key-{number}")
    status, page = await control("GET", "ledger?offset=3&limit=1")
    assert status == 200
    assert (page["total"], page["offset"], page["limit"]) == (5, 3, 1)
    [shown] = page["acceptances"]
    assert (shown["key"], shown["at"], shown["recipients"]) == ("key-3", START, ["user-3@example.com"])
    assert shown["body"]["text"] == "Hi"
    assert shown["message_id"] == bench.ledger.acceptances[3].message_id
    assert shown["content_hash"] == bench.ledger.acceptances[3].content_hash


async def test_a_message_that_came_over_smtp_is_told_like_any_other(bench: Bench, control: Control) -> None:
    Talk(bench).deliver("ada@example.com")
    _, page = await control("GET", "ledger?key=order-1")
    [shown] = page["acceptances"]
    assert (shown["recipients"], shown["subject"]) == (["ada@example.com"], "Hello")
    assert shown["envelope_sender"] == "shop@shop.example"
    assert shown["body"]["text"] == "Hi\r\n"
    assert (await control("GET", "stats"))[1]["calls"] == {"accepted": 1}


async def test_faults_of_smtp_are_put_in_force_and_counted(bench: Bench, control: Control) -> None:
    await control("PUT", "faults", json={"faults": ["451:at=rcpt,to=ada@example.com,first=2"]})
    client = Talk(bench)
    said = client.say("EHLO x", "MAIL FROM:<a@b.example>", "RCPT TO:<ada@example.com>")
    assert said.startswith("451")
    stats = (await control("GET", "stats"))[1]
    assert stats["faults"] == {"451:to=ada@example.com,first=2,at=rcpt": 1}
    assert (await control("GET", "calls"))[1]["calls"][0]["kind"] == "rcpt"


async def test_the_ledger_is_asked_by_key_and_by_recipient(bench: Bench, control: Control) -> None:
    bench.send(message("ada@example.com"), key="one")
    bench.send(message("bob@example.com"), key="two")
    for query in ("key=two", "recipient=BOB@example.com"):
        _, page = await control("GET", f"ledger?{query}")
        assert [shown["key"] for shown in page["acceptances"]] == ["two"]


async def test_a_page_is_never_longer_than_the_maximum(control: Control) -> None:
    assert (await control("GET", "ledger?limit=99999"))[1]["limit"] == 1000


@pytest.mark.parametrize("query", ["offset=-1", "limit=many"])
async def test_a_bad_page_is_refused(control: Control, query: str) -> None:
    status, document = await control("GET", f"ledger?{query}")
    assert status == 422
    assert "must be a whole number" in document["message"]


async def test_calls_and_counts_tell_what_happened(bench: Bench, control: Control) -> None:
    bench.send(key="a")
    bench.send(key="a")
    bench.send(message("down@example.com"), key="b")
    bench.now += 30
    assert (await control("GET", "calls?offset=2"))[1]["calls"] == [
        {"at": START, "kind": "send", "result": "not_accepted", "key": "b", "fault": "503:to=down@example.com"}
    ]
    assert (await control("GET", "stats"))[1] == {
        "elapsed_s": 30.0,
        "accepted": 1,
        "distinct_keys": 1,
        "duplicates": 0,
        "calls": {"accepted": 1, "replayed": 1, "not_accepted": 1},
        "faults": {"503:to=down@example.com": 1},
    }


async def test_faults_are_replaced_and_their_schedule_begins_then(bench: Bench, control: Control) -> None:
    assert (await control("GET", "faults"))[1] == {"faults": ["503:to=down@example.com"]}
    bench.now += 1000
    assert await control("PUT", "faults", json={"faults": ["500:until=10s"]}) == (200, {"faults": ["500:until=10s"]})
    assert bench.send().status == 500
    bench.now += 10
    assert bench.send().status == 200


async def test_a_seed_replays_the_chance(bench: Bench, control: Control) -> None:
    runs = []
    for _ in range(2):
        await control("PUT", "faults", json={"faults": ["500:share=0.5"], "seed": 7})
        runs.append([bench.send().status for _ in range(50)])
    assert runs[0] == runs[1]
    assert set(runs[0]) == {200, 500}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "not a table"),
        ('{"faults": ["slwo=8s"]}', "did you mean 'slow'?"),
        ('{"faults": ["refuse"]}', "refuse:until=30s"),
    ],
)
async def test_bad_faults_change_nothing(bench: Bench, control: Control, body: str, reason: str) -> None:
    status, document = await control("PUT", "faults", data=body)
    assert status == 422
    assert reason in document["message"]
    assert len(bench.api.faults.faults) == 1


async def test_a_reset_starts_over(bench: Bench, control: Control) -> None:
    bench.send(key="a")
    bench.now += 30
    status, stats = await control("POST", "reset")
    assert status == 200
    assert (stats["accepted"], stats["elapsed_s"], stats["calls"]) == (0, 0.0, {})
    assert (await control("GET", "faults"))[1] == {"faults": ["503:to=down@example.com"]}


async def test_pages_of_other_sites_change_nothing(bench: Bench, control: Control) -> None:
    bench.send()
    status, _ = await control("POST", "reset", headers={"Sec-Fetch-Site": "cross-site"})
    assert status == 403
    assert len(bench.ledger.acceptances) == 1
